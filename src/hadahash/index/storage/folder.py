"""An index in a folder.

    index.json        the manifest: format, engine, bits, codebook, meta, and each segment's files with size and checksum
    000003-0.codes    packed codes, memory-mapped as they are scanned (4 bytes a code up to 32 bits, else a multiple of 8)
    000003-0.items    SQLite: id, path and labels of each item
    000003-0.gone     one bit an item: removed since
    000003-0.ranks    routed: the place of each code in the order of ids; .runs and .centres: how the table is cut, by the
                      distance to a centre or also by that in each quarter of the code ("by_quarters" in the manifest)

No file is ever changed. `save` writes the files that are new, then replaces the manifest in one step, then removes what
no manifest names: a crash or a full disk at any moment leaves the old index or the new one. Programs that have the old
one open keep it. The items are in SQLite because an id must be found, and the items of a handful of hits fetched, without
reading all of them first, because strings, numbers and nothing fit side by side, and because any language can read it.

`open` reads only the manifest (which has a checksum too) and compares sizes; the content of a file is compared with its
checksum before it is first used. So opening takes no longer for a large index, and no answer rests on damaged bytes.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import files
from ..._version import __version__
from ...errors import HadaHashError, NewerFileError, StorageError
from ...native import search as native
from ..items import Mask
from ..segment import Segment
from .segment_files import StoredCodes, StoredFile, StoredItems, damaged, row_width, write_items

MANIFEST = "index.json"
_FORMAT = 1
_LOCK = ".lock"
_OURS = re.compile(r"(\d{6,})-\d+\.(codes|items|gone|ranks|runs|centres)")
_LEFTOVER = re.compile(r"\..*\.part")
_TRIES = 5  # to open an index that another program replaces over and over


class Origin(NamedTuple):
    """The folder and the generation that an index in memory was opened from or saved to."""

    folder: Path
    generation: int


class Stored(NamedTuple):
    """A segment's place on disk: its entry in the manifest, and the mask of removed items that is written there."""

    folder: Path
    entry: dict[str, Any]
    gone: Mask | None


class State(NamedTuple):
    """All there is to save."""

    engine: str
    bits: int
    codebook: NDArray[np.uint8] | None
    segments: tuple[Segment, ...]
    meta: dict[str, Any]


class Opened(NamedTuple):
    bits: int
    codebook: NDArray[np.uint8] | None
    segments: tuple[Segment, ...]
    origin: Origin
    meta: dict[str, Any]


# ---- reading -----------------------------------------------------------------------------------------------------


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, checked: its checksum, and that every value is what it must be."""
    path = folder / MANIFEST
    if not path.is_file():
        raise StorageError(
            f"{folder} holds no index (no {MANIFEST}). Make one with: hadahash index build"
        )
    manifest = files.read_json(path)
    if (
        not isinstance(manifest, dict)
        or type(manifest.get("format")) is not int
        or manifest["format"] < 1
    ):
        raise damaged(path, "it has no valid format number")
    if manifest["format"] > _FORMAT:
        writer = manifest.get("written_by", "a later version of hadahash")
        raise NewerFileError(
            f"{folder} was written by {writer}, please update: pip install -U hadahash"
        )
    if manifest.get("crc32") != _checksum(manifest):
        raise damaged(path, "its checksum does not match")
    problem = _problem(manifest)
    if problem:
        raise damaged(path, problem)
    return manifest


def open_folder(folder: Path) -> Opened:
    for attempt in range(_TRIES):
        manifest = read_manifest(folder)
        try:
            segments = tuple(
                _open_segment(folder, entry, manifest) for entry in manifest["segments"]
            )
        except FileNotFoundError as error:  # another program may just have replaced the index
            if attempt + 1 == _TRIES:
                raise StorageError(
                    f"{error.filename} is missing. Restore it or build the index again."
                ) from error
        else:
            break
    book = manifest["codebook"]
    codebook = (
        None
        if book is None
        else np.frombuffer(bytes.fromhex(book), np.uint8).reshape(-1, -(-manifest["bits"] // 8))
    )
    origin = Origin(folder.resolve(), manifest["generation"])
    return Opened(manifest["bits"], codebook, segments, origin, manifest.get("meta", {}))


def verify(segments: tuple[Segment, ...]) -> None:
    """Compare every stored file with its checksum, whether it was compared before or not."""
    for segment in segments:
        if isinstance(segment.stored, Stored):
            for entry in segment.stored.entry["files"].values():
                StoredFile(segment.stored.folder, entry).check()


def _open_segment(folder: Path, entry: dict[str, Any], manifest: dict[str, Any]) -> Segment:
    opened = {kind: StoredFile(folder, file) for kind, file in entry["files"].items()}
    kind = str if manifest["ids"] == "str" else int
    gone = opened["gone"].mask(entry["count"]) if "gone" in opened else None
    codes = StoredCodes(
        entry["count"], manifest["bits"], opened, by_quarters=entry.get("by_quarters", False)
    )
    return Segment(
        codes,
        StoredItems(opened["items"], entry["count"], kind),
        gone,
        Stored(folder.resolve(), entry, gone),
    )


def _checksum(manifest: dict[str, Any]) -> int:
    rest = {key: value for key, value in manifest.items() if key != "crc32"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def _problem(manifest: dict[str, Any]) -> str:
    """What is wrong with a manifest of this format; '' when nothing is."""
    if not _whole(manifest.get("bits"), 8, 512):
        return "bits must be 8 to 512"
    if not isinstance(manifest.get("engine"), str) or manifest.get("ids") not in (
        "int",
        "str",
        None,
    ):
        return "the engine or the kind of ids is not named"
    if not _whole(manifest.get("generation"), 1, 2**62):
        return "the generation must be a positive number"
    if not isinstance(manifest.get("meta", {}), dict):
        return "meta must be an object"
    book = manifest.get("codebook", "")
    width = 2 * -(-manifest["bits"] // 8)
    if book is not None and not (
        isinstance(book, str) and re.fullmatch(f"([0-9a-f]{{{width}}})+", book)
    ):
        return "the codebook does not fit the number of bits"
    segments = manifest.get("segments")
    if not isinstance(segments, list) or (segments and manifest["ids"] is None):
        return "the segments are not listed"
    problems = (_segment_problem(entry, row_width(manifest["bits"])) for entry in segments)
    return next(filter(None, problems), "")


def _segment_problem(entry: Any, width: int) -> str:
    if not isinstance(entry, dict) or not _whole(entry.get("count"), 1, native.MOST_ITEMS):
        return "a segment has no valid count"
    if type(entry.get("by_quarters", False)) is not bool:
        return "by_quarters must be true or false"
    listed = entry.get("files")
    if not isinstance(listed, dict) or not {"codes", "items"} <= set(listed):
        return "a segment does not list its codes and items"
    for kind, file in listed.items():
        name = file.get("name") if isinstance(file, dict) else None
        if not isinstance(name, str) or not _OURS.fullmatch(name) or not name.endswith(f".{kind}"):
            return f"a segment's {kind} file has no valid name"
        if not _whole(file.get("bytes"), 1, 2**60) or not _whole(file.get("crc32"), 0, 2**32 - 1):
            return f"{name} has no valid size and checksum"
    count = entry["count"]
    sizes = {"codes": count * width, "ranks": 4 * count, "gone": -(-count // 8)}
    wrong = [
        listed[kind]["name"]
        for kind, size in sizes.items()
        if kind in listed and listed[kind]["bytes"] != size
    ]
    return f"{wrong[0]} does not fit the number of items" if wrong else ""


def _whole(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


# ---- writing -----------------------------------------------------------------------------------------------------


def save_folder(
    folder: Path, state: State, origin: Origin | None
) -> tuple[tuple[Segment, ...], Origin]:
    """Make the folder hold this state; returns the segments, which now know their place, and the new origin."""
    with _locked(folder):
        generation = _next_generation(folder, origin)
        segments = tuple(
            _save_segment(folder, segment, f"{generation:06d}-{number}")
            for number, segment in enumerate(state.segments)
        )
        manifest: dict[str, Any] = {
            "format": _FORMAT,
            "written_by": f"hadahash {__version__}",
            "engine": state.engine,
            "bits": state.bits,
            "ids": state.segments[0].items.ids_are.__name__ if state.segments else None,
            "generation": generation,
            "codebook": None if state.codebook is None else state.codebook.tobytes().hex(),
            "meta": state.meta,
            "segments": [segment.stored.entry for segment in segments],  # type: ignore[attr-defined]
        }
        files.write_json(folder / MANIFEST, {**manifest, "crc32": _checksum(manifest)})
        _sweep(folder, manifest)
    return segments, Origin(folder.resolve(), generation)


def _next_generation(folder: Path, origin: Origin | None) -> int:
    """One more than any there was. An index that came from here must be the newest; another takes the place of what is here."""
    current = 0
    try:
        if (folder / MANIFEST).exists():
            current = int(read_manifest(folder)["generation"])
    except NewerFileError:
        raise
    except HadaHashError:
        current = -1  # damaged: a whole index may take its place
    if origin is not None and origin.folder == folder.resolve() and origin.generation != current:
        raise StorageError(
            f"{folder} was changed by another program since it was opened. Open it again and repeat the change."
        )
    names = [path.name for path in folder.iterdir()]
    foreign = [
        name
        for name in names
        if not (name in (MANIFEST, _LOCK) or _OURS.fullmatch(name) or _LEFTOVER.fullmatch(name))
    ]
    if foreign and current == 0:
        raise StorageError(
            f"{folder} holds other files ({foreign[0]}) and no index. Choose an empty or a new folder."
        )
    used = [int(match[1]) for match in map(_OURS.fullmatch, names) if match]
    return 1 + max([current, *used, 0])


def _save_segment(folder: Path, segment: Segment, name: str) -> Segment:
    """Write what of a segment is not there yet."""
    stored = (
        segment.stored
        if isinstance(segment.stored, Stored) and segment.stored.folder == folder.resolve()
        else None
    )
    entry: dict[str, Any] = dict(stored.entry) if stored else {"count": len(segment.codes)}
    written: dict[str, Any] = dict(stored.entry["files"]) if stored else {}
    if not stored:
        table = segment.codes.load()
        written["codes"] = _write(folder / f"{name}.codes", table.rows)
        if table.runs is not None and table.ranks is not None:
            written["ranks"] = _write(folder / f"{name}.ranks", table.ranks)
            written["centres"] = _write(folder / f"{name}.centres", table.runs.centres)
            written["runs"] = _write(folder / f"{name}.runs", table.runs.listed())
            entry |= {} if table.runs.quarters is None else {"by_quarters": True}
        with files.replacing(folder / f"{name}.items") as temporary:
            write_items(temporary, segment.items.table())
            written["items"] = _described(f"{name}.items", temporary.read_bytes())
    if segment.gone is not None and (stored is None or segment.gone is not stored.gone):
        written["gone"] = _write(
            folder / f"{name}.gone", np.packbits(segment.gone, bitorder="little")
        )
    return replace(
        segment, stored=Stored(folder.resolve(), entry | {"files": written}, segment.gone)
    )


def _write(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    content = np.ascontiguousarray(array).view(np.uint8).data
    with files.replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content)
    return _described(path.name, content)


def _described(name: str, content: bytes | memoryview) -> dict[str, Any]:
    return {"name": name, "bytes": len(memoryview(content).cast("B")), "crc32": zlib.crc32(content)}


def _sweep(folder: Path, manifest: dict[str, Any]) -> None:
    """Remove what an older manifest named and what a crash left."""
    named = {file["name"] for entry in manifest["segments"] for file in entry["files"].values()}
    for path in folder.iterdir():
        if path.name not in named and (
            _OURS.fullmatch(path.name) or _LEFTOVER.fullmatch(path.name)
        ):
            with suppress(OSError):  # where open files cannot be removed, the next save does it
                path.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time; the system frees the lock of a program that ended, however it ended."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise files.storage_error("write", folder, error) from error
    try:
        _lock(handle)
        yield
    finally:
        os.close(handle)


if os.name == "nt":
    import msvcrt

    def _lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined,unused-ignore]

else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX)
