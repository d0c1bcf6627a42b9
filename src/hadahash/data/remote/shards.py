"""Images in .tar files (webdataset) and in .parquet files (the layout of Hugging Face).

A .tar file holds one file per image: the label of `0001.jpg` is the text in `0001.cls`, or the
folder of the image. A .parquet file holds one row per image: a column {bytes, path}, or of bytes,
and a column of labels whose names may be in the metadata of the file.
"""

from __future__ import annotations

import json
import tarfile
import threading
from collections import OrderedDict
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError, MissingExtraError
from ..formats import image_suffixes
from .address import Storage, reason_of
from .place import Health, Place

_BLOCK = 1 << 22  # bytes read ahead while the headers of a .tar file are read
_LABEL_BYTES = 1000  # of a .cls file
_GROUPS_BYTES = 512 << 20  # of row groups that are kept in memory
_IMAGE_NAMES = ("image", "img", "images", "jpg", "jpeg", "png", "webp", "image_bytes", "bytes")
_LABEL_NAMES = ("label", "labels")


class Shard(NamedTuple):
    """The images of one file.

    Attributes:
        names: Name of each image in the file; None where a row has no path.
        places: Where the images are.
        labels: The labels of each image; None if the file has none.
        classes: The names of all classes, in order, if the file has them.
    """

    names: list[str | None]
    places: list[Place]
    labels: list[tuple[str, ...]] | None
    classes: tuple[str, ...] | None = None


class TarShard:
    """A .tar file, of which parts are read.

    Args:
        storage: The file system.
        path: The file.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self.files, self.path, self.far = storage.files, path, storage.far
        self.health = Health()

    def fetch(self, key: tuple[int, int]) -> bytes:
        """Return the bytes of one member, by its place and size."""
        content: bytes = self.files.cat_file(self.path, start=key[0], end=key[0] + key[1])
        if len(content) != key[1]:
            raise ValueError("the file has become shorter")
        return content


def read_tar(storage: Storage, path: str, name: str, version: str) -> Shard:
    """List the images of a .tar file by its headers.

    Args:
        storage: The file system.
        path: The file.
        name: Its address.
        version: Changes when the file does.

    Returns:
        The images.

    Raises:
        DataError: It is not a .tar file.
    """
    shard, members = TarShard(storage, path), _members(storage, path, name)
    suffixes = image_suffixes()
    images = [each for each in members if PurePosixPath(each).suffix.lower() in suffixes]
    places = [
        Place(shard, members[each], f"{name}/{each}", members[each][1], version) for each in images
    ]
    given = [f"{_key(each)}.cls" for each in images]
    if not any(each in members for each in given):
        return Shard([*images], places, None)
    labels: list[tuple[str, ...]] = []
    for each in given:
        labels.append(_label(shard, members[each]) if each in members else ())
    return Shard([*images], places, labels)


def _label(shard: TarShard, key: tuple[int, int]) -> tuple[str, ...]:
    """The first word of a .cls file."""
    start, size = key
    text = shard.fetch((start, min(size, _LABEL_BYTES))).decode("utf-8", "replace")
    return tuple(text.split()[:1])


def _members(storage: Storage, path: str, name: str) -> dict[str, tuple[int, int]]:
    """Place and size of every regular file; the last of those with one name, as tar unpacks it."""
    found = {}
    try:
        with (
            storage.files.open(path, "rb", block_size=_BLOCK) as file,
            tarfile.open(fileobj=file, mode="r:") as archive,
        ):
            for member in archive:
                if member.isreg() and not member.issparse() and ".." not in member.name.split("/"):
                    found[member.name.removeprefix("./")] = member.offset_data, member.size
                archive.members = []  # type: ignore[attr-defined]  # memory stays small
    except tarfile.TarError as error:
        raise DataError(
            f"{name} is not a .tar file, is compressed, or is damaged ({reason_of(error)}). "
            "Write it again, without compression."
        ) from error
    return found


def _key(name: str) -> str:
    """The name up to the first dot: all files of one sample share it."""
    folder, slash, base = name.rpartition("/")
    return folder + slash + base.partition(".")[0]


class ParquetShard:
    """A .parquet file, read by row groups, some of which are kept in memory.

    Args:
        storage: The file system.
        path: The file.
        column: The column of images.
    """

    def __init__(self, storage: Storage, path: str, column: str) -> None:
        self.files, self.path, self.column = storage.files, path, column
        self.far, self.health = storage.far, Health()
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._file: Any = None
        self._groups: OrderedDict[int, Any] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        storage = Storage(self.files, self.path, self.path, self.far)
        return ParquetShard, (storage, self.path, self.column)

    def fetch(self, key: tuple[int, int]) -> bytes:
        """Return the bytes of one image, by row group and row in it."""
        column = self._group(key[0])
        cell = column[key[1]].as_py()
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if not data:
            raise FileNotFoundError("the row has no bytes")
        return bytes(data)

    def _group(self, number: int) -> Any:
        with self._lock:
            if number in self._groups:
                self._groups.move_to_end(number)
                return self._groups[number]
            if self._file is None:
                self._file = open_parquet(self.files, self.path)
            column = self._read(number)
            self._groups[number] = column
            while len(self._groups) > 1 and self._kept() > _GROUPS_BYTES:
                self._groups.popitem(last=False)
            return column

    def _read(self, number: int) -> Any:
        try:
            return self._file.read_row_group(
                number, columns=[self.column], use_threads=False
            ).column(0)
        except OSError as error:
            if error.errno is not None:
                raise
            # Arrow's own: the content is damaged, not the connection.
            raise ValueError(f"damaged row group ({error})") from error

    def _kept(self) -> int:
        return sum(column.nbytes for column in self._groups.values())


def open_parquet(files: Any, path: str) -> Any:
    """Open a parquet file of a file system.

    Args:
        files: The file system.
        path: The file.

    Returns:
        A `pyarrow.parquet.ParquetFile`.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    return pyarrow.parquet.ParquetFile(files.open(path, "rb"))


def read_parquet(storage: Storage, path: str, name: str, version: str) -> Shard:
    """List the images of a .parquet file; no image is read.

    Args:
        storage: The file system.
        path: The file.
        name: Its address.
        version: Changes when the file does.

    Returns:
        The images.

    Raises:
        DataError: It is not a parquet file, or has no column of images.
    """
    import pyarrow

    try:
        file = open_parquet(storage.files, path)
        schema = file.schema_arrow
        column = image_column(schema)
        if column is None:
            raise DataError(
                f"{name} has no column of images: bytes, or a struct with bytes and path; its "
                f"columns are {', '.join(schema.names[:8])}."
            )
        label = _label_column(schema)
        wanted = [f"{column}.path"] if _has_paths(schema, column) else []
        table = file.read(columns=[*wanted, *([label] if label else [])], use_threads=False)
    except (pyarrow.ArrowException, UnicodeError) as error:
        raise DataError(f"{name} is not a parquet file, or is damaged ({error}).") from error
    shard, keys = ParquetShard(storage, path, column), _rows(file)
    places = [
        Place(shard, key, f"{name}/{row}", None, f"{version} {row}") for row, key in enumerate(keys)
    ]
    names: list[str | None] = [None] * len(keys)
    if wanted:
        names = [cell.get("path") if cell else None for cell in table.column(column).to_pylist()]
    if label is None:
        return Shard(names, places, None)
    classes = _class_names(schema, label)
    labels = [_label_texts(cell, classes) for cell in table.column(label).to_pylist()]
    return Shard(names, places, labels, classes)


def image_column(schema: Any) -> str | None:
    """Return the column of images: a struct with bytes, or bytes under a usual name; or None.

    Args:
        schema: Of pyarrow.

    Returns:
        Its name, or None.
    """
    import pyarrow as pa

    def is_bytes(kind: Any) -> bool:
        return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

    for field in schema:
        if pa.types.is_struct(field.type):
            place = field.type.get_field_index("bytes")
            if place >= 0 and is_bytes(field.type.field(place).type):
                return str(field.name)
    for field in schema:
        if is_bytes(field.type) and field.name.lower() in _IMAGE_NAMES:
            return str(field.name)
    return None


def _has_paths(schema: Any, column: str) -> bool:
    kind = schema.field(column).type
    return hasattr(kind, "get_field_index") and kind.get_field_index("path") >= 0


def _rows(file: Any) -> list[tuple[int, int]]:
    """Row group, and row in it, of every row."""
    found = file.metadata
    sizes = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
    return [(number, row) for number, size in enumerate(sizes) for row in range(size)]


def _features(schema: Any) -> dict[str, Any]:
    """What Hugging Face says about the columns; empty if it says nothing."""
    try:
        found = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _label_column(schema: Any) -> str | None:
    """The column `label` or `labels`, or the only column of classes."""
    for name in schema.names:
        if name.lower() in _LABEL_NAMES:
            return str(name)
    named = [name for name in schema.names if _class_names(schema, name)]
    return named[0] if len(named) == 1 else None


def _class_names(schema: Any, column: str) -> tuple[str, ...] | None:
    """The names of the classes of a column (ClassLabel, or a list of them)."""
    feature = _features(schema).get(column)
    if isinstance(feature, list):
        feature = feature[0] if feature else None
    if isinstance(feature, dict) and isinstance(feature.get("feature"), dict):
        feature = feature["feature"]
    names = feature.get("names") if isinstance(feature, dict) else None
    if isinstance(names, dict):  # an earlier layout: {"0": "cat", "1": "dog"}
        names = [names[key] for key in sorted(names, key=int)]
    return tuple(map(str, names)) if isinstance(names, list) and names else None


def _label_texts(cell: Any, classes: tuple[str, ...] | None) -> tuple[str, ...]:
    """The labels of a row as text; none for a missing one, and for -1 in a column of classes."""
    cells = cell if isinstance(cell, (list, tuple, np.ndarray)) else [cell]
    texts = []
    for each in cells:
        if each is None or each != each:
            continue
        if classes is None or not isinstance(each, int):
            texts.append(str(each))
        elif 0 <= each < len(classes):
            texts.append(classes[each])
    return tuple(dict.fromkeys(texts))
