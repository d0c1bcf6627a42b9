"""Find photos in folders, tables and data sets, and assign their ids and labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from .. import files
from ..errors import UsageError

if TYPE_CHECKING:
    from ..data.base import ImageSource, LabelledImages
    from ..data.folder import Listing
    from ..data.remote import Place

Progress = Callable[[int], object]
_MANY_FOLDERS = 64
_TABLES = (".csv", ".tsv", ".parquet")


class Photo(NamedTuple):
    """An image file and its id in the index.

    Attributes:
        id: Path below `root`, with slashes, or as written in a table, after an optional prefix.
        path: The file.
        root: The folder or table it was found in.
        labels: Its labels: the top-level folder below `root`, or those of the table.
        place: Where the image is, if it is no local file; then `path` is its address.
    """

    id: str
    path: Path
    root: Path
    labels: tuple[str, ...] = ()
    place: Place | None = None

    @property
    def file(self) -> Path | Place:
        """What is read: the local file, or the place of the image."""
        return self.place or self.path


@dataclass(frozen=True)
class ScanOptions:
    """How sources are scanned.

    Attributes:
        exclude: Patterns of files and folders; see `hadahash.data.folder.scan`.
        follow_links: Whether symbolic links to folders, and out of the folder, are followed.
        data_root: The folder that holds the files of a named data set.
        pictures: Where images of a data set that are not files are written.
    """

    exclude: tuple[str, ...] = ()
    follow_links: bool = False
    data_root: Path | None = None
    pictures: Path | None = None


@dataclass(frozen=True, eq=False)
class Scan:
    """What a scan found.

    Attributes:
        photos: The image files, in an order that depends on their names alone, or in that of a
            table.
        unsupported: Files that have no suffix of a supported image type.
        hidden: Number of files and folders whose names begin with a dot.
        excluded: Number of files and folders that match a pattern.
        links: Number of symbolic links that were not followed.
        home: The folder, table or data set, if all of one was scanned.
        labelled: Whether labels come from elsewhere than the paths, and may change.
        options: How the sources were scanned.
    """

    photos: list[Photo] = field(default_factory=list)
    unsupported: list[Path] = field(default_factory=list)
    hidden: int = 0
    excluded: int = 0
    links: int = 0
    home: Path | None = None
    labelled: bool = False
    options: ScanOptions = field(default_factory=ScanOptions)

    @property
    def notice(self) -> str | None:
        """One sentence about the files that were left out, or None if there are none.

        >>> Scan([], [Path("a.MOV"), Path("b.db"), Path("c.mov")], 1).notice
        'Skipped 3 files of unsupported types (2 .mov, 1 .db) and 1 hidden file.'
        """
        from ..data.folder import skipped_notice

        return skipped_notice(self.unsupported, self.hidden, self.excluded, self.links) or None

    @property
    def folders(self) -> list[Path]:
        """The folders that contain the photos, links resolved, none below another.

        >>> Scan([Photo("b/1.jpg", Path("/a/b/1.jpg"), Path("/a"))]).folders
        [PosixPath('/a')]
        """
        real: dict[Path, Path] = {}
        tops = set()
        for photo in (photo for photo in self.photos if photo.place is None):
            parent = photo.path.parent
            if photo.path.is_symlink():
                place = _real(photo.path).parent
            else:
                place = real.get(parent) or real.setdefault(parent, _real(parent))
            root = photo.root.parent if photo.root.suffix.lower() in _TABLES else photo.root
            tops.add(root if place.is_relative_to(root) else place)
        return outermost(tops)


def outermost(folders: Iterable[Path]) -> list[Path]:
    """Remove folders that are below another one.

    Args:
        folders: Absolute paths.

    Returns:
        The others, in order; the folder that contains all if there are very many.

    Example:
        >>> [str(each) for each in outermost([Path("/a/b"), Path("/a"), Path("/ab")])]
        ['/a', '/ab']
    """
    kept: list[Path] = []
    for folder in sorted(set(folders)):  # a folder comes directly before those below it
        if not kept or not folder.is_relative_to(kept[-1]):
            kept.append(folder)
    return kept if len(kept) <= _MANY_FOLDERS else [Path(os.path.commonpath(kept))]


def source_of(photos: list[Photo]) -> ImageSource:
    """Return photos as a source of images.

    Args:
        photos: Local files, or images that are all elsewhere.

    Returns:
        The images, with the ids of the photos.
    """
    from ..data.base import FileImages, ImageSource, name_ids
    from ..data.remote import RemoteImages

    places = [photo.place for photo in photos if photo.place is not None]
    images = RemoteImages(places) if places else FileImages([photo.path for photo in photos])
    return ImageSource(images, name_ids(photo.id for photo in photos))


def scan_source(
    source: str | Path,
    options: ScanOptions | None = None,
    *,
    prefix: str = "",
    progress: Progress = lambda count: None,
) -> Scan:
    """Find all images of a folder, a table, or a data set.

    Args:
        source: A folder, searched recursively; a table (.csv, .tsv, .parquet), whose labels are
            optional; an address or an archive (`hadahash.data.remote`); or the name of a data set.
        options: What to leave out of a folder; where the files of a data set are.
        prefix: Put before each id.
        progress: Called with numbers of images while a folder is searched.

    Returns:
        The images, and what was left out.

    Raises:
        DataError: The folder or table cannot be read.
        UsageError: The images of the data set are not files, and `options.pictures` is None.
    """
    from ..data.datasets import DATASETS
    from ..data.remote import is_stored
    from ..data.table import is_table

    if isinstance(source, str) and source in DATASETS:
        return _scan_dataset(source, options or ScanOptions(), prefix)
    if is_stored(source):
        return _scan_stored(source, options or ScanOptions(), prefix)
    if is_table(source):
        return _scan_table(_resolve(source), prefix)
    return scan_folder(source, options, prefix=prefix, progress=progress)


def scan_folder(
    folder: str | Path,
    options: ScanOptions | None = None,
    *,
    prefix: str = "",
    progress: Progress = lambda count: None,
) -> Scan:
    """Find all images below a folder.

    Args:
        folder: The folder, searched recursively.
        options: What to leave out.
        prefix: Put before each id.
        progress: Called with numbers of images that were found.

    Returns:
        The images, and what was left out.

    Raises:
        DataError: The folder cannot be read.
    """
    root, options = _resolve(folder), options or ScanOptions()
    listing = _list(root, options, progress)
    photos = [_photo(path, root, prefix) for path in listing.images]
    return replace(_scan([photos], [listing], home=root), options=options)


def scan_paths(
    sources: Iterable[str | Path],
    options: ScanOptions | None = None,
    *,
    home: Path | None = None,
    prefix: str = "",
) -> Scan:
    """Find the images among files, folders and tables.

    Args:
        sources: Image files, tables, addresses, archives, and folders that are searched
            recursively.
        options: What to leave out of folders.
        home: The folder an index was built from. Files below it get the same ids as in a build.
        prefix: Put before each id.

    Returns:
        The images, and what was left out.

    Raises:
        DataError: A file or folder cannot be read.
        UsageError: Two files would have the same id.
    """
    from ..data.remote import is_stored
    from ..data.table import is_table

    photos, listings, labelled = [], [], False
    for given in sources:
        if is_stored(given):
            found = _scan_stored(given, options or ScanOptions(), prefix)
            photos.append(found.photos)
            labelled |= found.labelled
            continue
        source = _resolve(given)
        if is_table(source):
            labelled = True
            photos.append(_scan_table(source, prefix).photos)
            continue
        if source.is_file():
            root, images = source.parent, [source]
        else:
            listings.append(_list(source, options))
            root, images = source, listings[-1].images
        if home is not None and source.is_relative_to(home):
            root = home
        photos.append([_photo(path, root, prefix) for path in images])
    return _scan(photos, listings, labelled=labelled)


def _scan(
    parts: Sequence[list[Photo]],
    listings: Sequence[Listing],
    *,
    home: Path | None = None,
    labelled: bool = False,
) -> Scan:
    found: dict[str, Photo] = {}
    for photo in (photo for part in parts for photo in part):
        first = found.setdefault(photo.id, photo)
        if first is not photo and first.path != photo.path:  # comparing paths is slow
            raise UsageError(
                f"Two files would get the id '{photo.id}': {found[photo.id].path} and "
                f"{photo.path}. Add them one at a time, with different prefixes."
            )
    return Scan(
        list(found.values()),
        [path for listing in listings for path in listing.others],
        sum(listing.hidden for listing in listings),
        sum(listing.excluded for listing in listings),
        sum(listing.links for listing in listings),
        home,
        labelled,
    )


def _list(
    folder: Path, options: ScanOptions | None, progress: Progress = lambda count: None
) -> Listing:
    from ..data.folder import scan  # imported here: commands that scan nothing start faster

    options = options or ScanOptions()
    links: Literal["all", "inside"] = "all" if options.follow_links else "inside"
    return scan(folder, exclude=options.exclude, links=links, progress=progress)


def _scan_table(table: Path, prefix: str) -> Scan:
    from ..data.table import read_photos

    photos = [
        Photo(prefix + row.path, _absolute(path), table, row.labels)
        for row, path in read_photos(table)
    ]
    return _scan([photos], [], home=table, labelled=True)


def _scan_stored(source: str | Path, options: ScanOptions, prefix: str) -> Scan:
    """The images of an address, archive or shard. A `Path` is their address with one slash."""
    from ..data.remote import is_address, list_stored

    found = list_stored(source, exclude=options.exclude)
    root = Path(source) if is_address(source) else _absolute(Path(source))
    photos = [
        Photo(prefix + name, Path(place.name), root, found.label_of(row), place)
        for row, (name, place) in enumerate(zip(found.names, found.places, strict=True))
    ]
    labelled = found.labels is not None
    return replace(_scan([photos], [found.left], home=root, labelled=labelled), options=options)


def _scan_dataset(name: str, options: ScanOptions, prefix: str) -> Scan:
    from ..data.sources import open_dataset

    data, root = open_dataset(name, options.data_root), Path(f"dataset:{name}")
    paths = _image_files(data, options.pictures)
    photos = [
        Photo(prefix + str(data.ids[row]), _absolute(path), root, _label_names(data, row))
        for row, path in enumerate(paths)
    ]
    return _scan([photos], [], home=root, labelled=True)


def _label_names(data: LabelledImages, row: int) -> tuple[str, ...]:
    return tuple(data.classes[number] for number in data.labels.classes_of(row))


def _image_files(data: LabelledImages, pictures: Path | None) -> Sequence[Path]:
    """The files of a data set; images in memory are written as PNG files."""
    from PIL import Image

    from ..data.base import FileImages

    if isinstance(data.images, FileImages):
        return data.images.paths
    if pictures is None:
        raise UsageError(
            f"The images of the data set '{data.name}' are not files. Give a folder or a table."
        )
    paths = [pictures / f"{str(name).replace('/', '-')}.png" for name in data.ids]
    pictures.mkdir(parents=True, exist_ok=True)
    for row, path in enumerate(paths):
        if not path.exists():
            with files.replacing(path) as temporary:
                Image.fromarray(data.images[row]).save(temporary, "PNG")
    return paths


def _resolve(path: str | Path) -> Path:
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError):  # a symbolic link loop, or a name that is too long
        return Path(path).absolute()  # scanning it reports the reason


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - without "..", and links as they are


def _photo(path: Path, root: Path, prefix: str) -> Photo:
    below = os.fspath(path)[len(os.path.join(root, "")) :]  # noqa: PTH118 - for every file
    if os.sep != "/":
        below = below.replace(os.sep, "/")
    top, slash, _ = below.partition("/")
    return Photo(prefix + below, path, root, (top,) if slash else ())
