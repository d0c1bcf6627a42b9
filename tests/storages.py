"""The toy folder in every kind of storage, and a file system that fails on demand."""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from hadahash.data.base import FileImages


def image_files(folder: Path) -> dict[str, bytes]:
    """Path below the folder and content of every file, in the order of names."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder with their content, to compare it later."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(paths)}


def zip_bytes(files: dict[str, bytes]) -> bytes:
    """A .zip file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tar_bytes(files: dict[str, bytes]) -> bytes:
    """A .tar file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def parquet_bytes(files: dict[str, bytes], *, paths: bool = True, classes: bool = True) -> bytes:
    """A .parquet file in the layout of Hugging Face, with three images in a row group."""
    import pyarrow as pa
    import pyarrow.parquet

    names = sorted({name.split("/")[0] for name in files})
    image = [{"bytes": data, "path": name if paths else None} for name, data in files.items()]
    labels: list[Any] = [name.split("/")[0] for name in files]
    kind: dict[str, Any] = {"dtype": "string", "_type": "Value"}
    if classes:
        labels = [names.index(label) for label in labels]
        kind = {"names": names, "_type": "ClassLabel"}
    table = pa.table({"image": image, "label": labels})
    features = {"image": {"_type": "Image"}, "label": kind}
    info = json.dumps({"info": {"features": features}})
    buffer = io.BytesIO()
    table = table.replace_schema_metadata({"huggingface": info})
    pyarrow.parquet.write_table(table, buffer, row_group_size=3)
    return buffer.getvalue()


def put(address: str, content: bytes) -> str:
    """Write a file to an address."""
    files, path = fsspec.core.url_to_fs(address)
    files.makedirs(path.rpartition("/")[0], exist_ok=True)
    files.pipe_file(path, content)
    return address


def put_folder(address: str, files: dict[str, bytes]) -> str:
    """Write files below an address."""
    for name, content in files.items():
        put(f"{address}/{name}", content)
    return address


class FlakyFileSystem(MemoryFileSystem):
    """Files in memory behind a bad network: reads are counted, and some fail."""

    protocol = "flaky"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    reads: ClassVar[Counter[str]] = Counter()
    failures: ClassVar[Counter[str]] = Counter()  # how often reading a file will still fail
    broken: ClassVar[set[str]] = set()  # files whose connection always fails

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("flaky://").strip("/")

    def unstrip_protocol(self, name: str) -> str:
        """The address of a file."""
        return f"flaky://{self._strip_protocol(name).lstrip('/')}"

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        """The content of a file, or an error."""
        path = self._strip_protocol(path)
        self.reads[path] += 1
        if path in self.broken:
            raise ConnectionResetError("connection reset by peer")
        if self.failures[path] > 0:
            self.failures[path] -= 1
            raise TimeoutError("timed out")
        content: bytes = self.store[path].getvalue()[start:end]
        return content

    @classmethod
    def reset(cls) -> None:
        """Forget files, counts and failures."""
        for each in (cls.store, cls.reads, cls.failures, cls.broken):
            each.clear()


fsspec.register_implementation("flaky", FlakyFileSystem, clobber=True)


class DeadlyImages(FileImages):
    """Images in files; reading one of them kills the process."""

    def __init__(self, paths: Any, deadly: int, mark: Path, *, once: bool) -> None:
        super().__init__(paths)
        object.__setattr__(self, "rule", (str(paths[deadly]), mark, once))

    def read_reduced(self, index: int, side: int) -> Any:
        """Return one image, or end the process."""
        path, mark, once = self.rule
        if str(self.paths[index]) == path and not (once and mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read_reduced(index, side)

    def take(self, indices: Any) -> FileImages:
        """Return the images with these indices, of which the same one kills."""
        part = FileImages([self.paths[int(index)] for index in indices])
        found = DeadlyImages.__new__(DeadlyImages)
        object.__setattr__(found, "paths", part.paths)
        object.__setattr__(found, "rule", self.rule)
        return found
