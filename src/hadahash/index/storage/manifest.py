"""The manifest of an index folder, `index.json`: the files of the index with sizes and checksums.

Format 1 (version 0.1) had other names, no label counts and no .labels files. It is converted when
read. Format 2 (version 0.2) had no content bits and no ranking.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import files
from ..._version import __version__
from ...errors import HadaHashError, NewerFileError, StorageError, UsageError
from ...json_parts import json_parts
from ...native.tables import MAX_ITEMS
from ...projections import features_of
from ...ranking import Ranking
from ..items import Id, LabelSet

MANIFEST = "index.json"
NEXT = "upgrade.json"  # the revision that an upgrade prepares, see revisions.py
PREVIOUS = "previous.json"  # the revision before the last upgrade
MANIFESTS = (MANIFEST, NEXT, PREVIOUS)
FORMAT = 3
DATA_FILE = re.compile(
    r"(\d{6,})-\d+\."
    r"(codes|content|items|labels|deleted|ordinals|blocks|centroids|projection"
    r"|gone|ranks|runs|centres)"
)
MAX_LABEL_SETS = 1024  # maximum in the manifest, per segment; more are read from the items
_OLD_KINDS = {"gone": "deleted", "ranks": "ordinals", "runs": "blocks", "centres": "centroids"}
_ID_TYPES: dict[str | None, type[Id] | None] = {"int": int, "str": str, None: None}


def damaged(path: Path, reason: str) -> StorageError:
    """Create the error for a damaged file; the reason may have several lines."""
    reason = " ".join(reason.split())
    return StorageError(f"{path} is damaged ({reason}). Restore it or build the index again.")


def row_width(bits: int) -> int:
    """Bytes per code in a .codes file."""
    return 4 if bits <= 32 else 8 * -(-bits // 64)


@dataclass(frozen=True)
class FileEntry:
    """A file of a segment.

    Attributes:
        name: Name in the folder.
        size: Size in bytes.
        crc32: Checksum of the content.
    """

    name: str
    size: int
    crc32: int

    @staticmethod
    def describe(name: str, content: bytes | memoryview) -> FileEntry:
        """The entry of a file with this content."""
        return FileEntry(name, len(memoryview(content).cast("B")), zlib.crc32(content))


@dataclass(frozen=True)
class SegmentEntry:
    """A segment in the manifest.

    Attributes:
        count: Number of items, deleted ones included.
        files: Files by kind: codes, content, items, labels, deleted, ordinals, blocks, centroids.
        by_subdistances: Whether the blocks of a routed table have equal sub-distances.
        label_counts: Label sets in the order of their numbers, with the number of items that are
            not deleted. None if there are too many, and in format 1.
    """

    count: int
    files: dict[str, FileEntry]
    by_subdistances: bool = False
    label_counts: tuple[tuple[LabelSet, int], ...] | None = None


@dataclass(frozen=True)
class Manifest:
    """The content of `index.json`.

    Attributes:
        engine: Name of the engine.
        bits: Length of the codes.
        id_type: int or str; None for an index without segments.
        generation: Increases with every save.
        codewords: Packed codewords, uint8 (C, ceil(bits / 8)), or None.
        meta: JSON values of the application.
        segments: The segments, oldest first.
        content_bits: Number of content bits of each item; 0 without.
        ranking: How probabilities of classes and content are computed, or None.
        projection: The file with the projection to content bits, or None.
    """

    engine: str
    bits: int
    id_type: type[Id] | None
    generation: int
    codewords: NDArray[np.uint8] | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    segments: tuple[SegmentEntry, ...] = ()
    content_bits: int = 0
    ranking: Ranking | None = None
    projection: FileEntry | None = None

    def write(self, folder: Path, name: str = MANIFEST) -> None:
        """Replace the manifest of a folder, atomically.

        Args:
            folder: The folder of an index.
            name: One of `MANIFESTS`.

        Raises:
            UsageError: `meta` holds values that JSON does not have.
            StorageError: The file cannot be written.
        """
        try:  # normalize to what a reader will get: keys as strings, tuples as lists
            content = json.loads(json.dumps(self._as_json()))
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"index.meta must contain JSON values only: {error}.") from error
        content["crc32"] = checksum(content)
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
        files.write_text(folder / name, "{\n" + ",\n".join(lines) + "\n}\n")

    def _as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "written_by": f"hadahash {__version__}",
            "engine": self.engine,
            "bits": self.bits,
            "content_bits": self.content_bits,
            "id_type": None if self.id_type is None else self.id_type.__name__,
            "generation": self.generation,
            "codewords": None if self.codewords is None else self.codewords.tobytes().hex(),
            "ranking": None if self.ranking is None else self.ranking.to_dict(),
            "projection": None if self.projection is None else _file_as_json(self.projection),
            "meta": self.meta,
            "segments": [_segment_as_json(entry) for entry in self.segments],
        }


def read_manifest(folder: Path, name: str = MANIFEST) -> Manifest:
    """Read the manifest of a folder and validate its checksum and all values.

    Args:
        folder: The folder of an index.
        name: One of `MANIFESTS`.

    Returns:
        The manifest.

    Raises:
        NewerFileError: It was written by a later version.
        StorageError: There is none, it is damaged, or cannot be read.
    """
    path = folder / name
    try:
        if not path.is_file():
            raise StorageError(
                f"{folder} contains no index (no {name}). Create one with: hadahash index build"
            )
    except OSError as error:
        raise files.storage_error("read", path, error) from error
    try:
        content = files.read_json(path)
        version = content.get("format") if isinstance(content, dict) else None
        if type(version) is not int or version < 1:
            raise damaged(path, "it has no valid format number")
        if version > FORMAT:
            writer = content.get("written_by", "a later version of hadahash")
            raise NewerFileError(
                f"{path} was written by {writer}. Update with: pip install -U hadahash"
            )
        if content.get("crc32") != checksum(content):
            raise damaged(path, "its checksum does not match")
    except RecursionError:
        raise damaged(path, "its values are nested too deeply") from None
    try:
        return _parse(_current(content, version))
    except ValueError as error:
        raise damaged(path, str(error)) from None


def checksum(content: dict[str, Any]) -> int:
    """CRC-32 of a manifest as JSON, apart from its own checksum."""
    rest = {key: value for key, value in content.items() if key != "crc32"}
    found = 0
    for part in json_parts(rest, sort_keys=True):
        found = zlib.crc32(part.encode(), found)
    return found


# ---- JSON ----------------------------------------------------------------------------------------


def _file_as_json(file: FileEntry) -> dict[str, Any]:
    return {"name": file.name, "bytes": file.size, "crc32": file.crc32}


def _segment_as_json(entry: SegmentEntry) -> dict[str, Any]:
    return {
        "count": entry.count,
        "by_subdistances": entry.by_subdistances,
        "label_counts": entry.label_counts,
        "files": {kind: _file_as_json(file) for kind, file in entry.files.items()},
    }


def _current(content: dict[str, Any], version: int) -> dict[str, Any]:
    """A manifest with the names of this format."""
    if version == 1:
        content = _from_format_1(content)
    return content if version >= 3 else {**content, "content_bits": 0, "ranking": None}


def _from_format_1(content: dict[str, Any]) -> dict[str, Any]:
    """A manifest of version 0.1 with the names of this format."""
    segments = content.get("segments")
    return {
        **content,
        "id_type": content.get("ids", ""),
        "codewords": content.get("codebook", ""),
        "meta": content.get("meta", {}),
        "segments": [_segment_from_format_1(entry) for entry in segments]
        if isinstance(segments, list)
        else segments,
    }


def _segment_from_format_1(entry: Any) -> Any:
    listed = entry.get("files") if isinstance(entry, dict) else None
    if not isinstance(listed, dict):
        return entry
    return {
        "count": entry.get("count"),
        "by_subdistances": entry.get("by_quarters", False),
        "label_counts": None,
        "files": {_OLD_KINDS.get(kind, kind): file for kind, file in listed.items()},
    }


def _parse(content: dict[str, Any]) -> Manifest:
    """Parse and validate the manifest; raises ValueError with the reason."""
    bits: Any = content.get("bits")
    content_bits: Any = content.get("content_bits")
    id_type = content.get("id_type", "")
    _require(_is_whole(bits, 8, 512), "bits must be between 8 and 512")
    _require(_is_whole(content_bits, 0, 512), "content_bits must be between 0 and 512")
    _require(isinstance(content.get("engine"), str), "the engine is missing")
    _require(id_type is None or id_type in ("int", "str"), "id_type must be int, str or null")
    generation = content.get("generation")
    _require(_is_whole(generation, 1, 2**62), "the generation must be a positive number")
    _require(isinstance(content.get("meta"), dict), "meta must be an object")
    listed = content.get("segments")
    _require(isinstance(listed, list), "the segments are missing")
    _require(bool(listed) == (id_type is not None), "segments and id_type do not fit together")
    return Manifest(
        engine=content["engine"],
        bits=bits,
        id_type=_ID_TYPES[id_type],
        generation=content["generation"],
        codewords=_parse_codewords(content.get("codewords", ""), bits),
        meta=content["meta"],
        segments=tuple(_parse_segment(each, bits, content_bits) for each in listed or ()),
        content_bits=content_bits,
        ranking=_parse_ranking(content.get("ranking", ""), bits),
        projection=_parse_projection(content.get("projection"), content_bits),
    )


def _parse_projection(value: Any, content_bits: int) -> FileEntry | None:
    if value is None:
        return None
    _require(content_bits > 0, "there is a projection, but there are no content bits")
    entry = _parse_file("projection", value)
    features_of(entry.size, content_bits)
    return entry


def _parse_ranking(value: Any, bits: int) -> Ranking | None:
    if value is None:
        return None
    _require(isinstance(value, dict), "the ranking is not an object")
    length = value.get("bits")
    _require(length is None or _is_whole(length, bits, bits), "the ranking has other bits")
    try:
        return Ranking.from_dict(value)
    except (HadaHashError, ValueError, TypeError, ArithmeticError, AttributeError) as error:
        raise ValueError(f"the ranking is not valid: {' '.join(str(error).split())}") from None


def _parse_codewords(text: Any, bits: int) -> NDArray[np.uint8] | None:
    if text is None:
        return None
    width = -(-bits // 8)
    valid = isinstance(text, str) and re.fullmatch(f"([0-9a-f]{{{2 * width}}})+", text)
    _require(bool(valid), "the codewords do not fit the number of bits")
    return np.frombuffer(bytes.fromhex(text), np.uint8).reshape(-1, width)


def _parse_segment(entry: Any, bits: int, content_bits: int) -> SegmentEntry:
    _require(isinstance(entry, dict), "a segment is not an object")
    count, flag, listed = entry.get("count"), entry.get("by_subdistances"), entry.get("files")
    _require(_is_whole(count, 1, MAX_ITEMS), "a segment has no valid count")
    _require(type(flag) is bool, "by_subdistances must be true or false")
    _require(
        isinstance(listed, dict) and {"codes", "items"} <= set(listed),
        "a segment does not list its codes and items",
    )
    _require(("content" in listed) == (content_bits > 0), "content bits and files do not match")
    parsed = {kind: _parse_file(kind, file) for kind, file in listed.items()}
    sizes = {
        "codes": count * row_width(bits),
        "content": count * row_width(content_bits),
        "ordinals": 4 * count,
        "labels": 4 * count,
        "deleted": -(-count // 8),
    }
    for kind, size in sizes.items():
        if kind in parsed:
            name = parsed[kind].name
            _require(parsed[kind].size == size, f"{name} does not fit the number of items")
    return SegmentEntry(count, parsed, flag, _parse_label_counts(entry.get("label_counts"), count))


def _parse_file(kind: str, file: Any) -> FileEntry:
    name = file.get("name") if isinstance(file, dict) else None
    match = DATA_FILE.fullmatch(name) if isinstance(name, str) else None
    valid = match is not None and _OLD_KINDS.get(match[2], match[2]) == kind
    _require(valid, f"the {kind} file has no valid name")
    size, crc32 = file.get("bytes"), file.get("crc32")
    valid = _is_whole(size, 1, 2**60) and _is_whole(crc32, 0, 2**32 - 1)
    _require(valid, f"{name} has no valid size and checksum")
    return FileEntry(str(name), size, crc32)


def _parse_label_counts(value: Any, count: int) -> tuple[tuple[LabelSet, int], ...] | None:
    if value is None:
        return None
    valid = isinstance(value, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], list)
        and all(type(label) in (int, str) for label in pair[0])
        and _is_whole(pair[1], 0, count)
        for pair in value
    )
    _require(valid, "label_counts must list label sets and numbers of items")
    return tuple((tuple(labels), number) for labels, number in value)


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def _is_whole(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high
