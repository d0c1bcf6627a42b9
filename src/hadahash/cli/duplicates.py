"""`hadahash duplicates`: find files that show the same photo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..errors import UsageError
from . import options, output
from .folders import as_index

if TYPE_CHECKING:
    from ..index import DuplicateGroup, Duplicates
    from ..photos import PhotoDuplicates

Source = Annotated[
    Path,
    typer.Argument(help="Folder of an index, or of photos, which are indexed first."),
]
Threshold = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        help="Two files are linked if at most this number of bits differs: of the content bits "
        "and of 64 bits that tell what a photo looks like. Default: 30 of 192."
    ),
]
Dismiss = Annotated[
    Optional[list[int]],  # noqa: UP045
    typer.Option(
        metavar="GROUP", help="Do not show this group again (its number). May be repeated."
    ),
]
DismissedFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="File with dismissed groups; default: dismissed.json in the index."),
]
Page = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Also write an HTML page with the images, side by side, to this file."),
]


def duplicates(
    index: Source,
    threshold: Threshold = None,
    limit: Annotated[int, typer.Option(help="Number of groups to show; 0: all.")] = 20,
    skip: Annotated[int, typer.Option(help="Number of groups to skip, to page on.")] = 0,
    dismiss: Dismiss = None,
    dismissed: DismissedFile = None,
    html: Page = None,
    json: options.Json = False,
) -> None:
    """Find groups of files that show the same photo: equal files and altered copies.

    Content bits and a perceptual hash are compared, so photos of one class are not duplicates. The
    last search is kept in the index: a smaller --threshold needs no new one. A group that was
    dismissed is shown again when another file joins it.

    Example: hadahash duplicates photos/ --html duplicates.html
    """
    from ..photos import PhotoDuplicates

    for name, value in (("--limit", limit), ("--skip", skip)):
        if value < 0:
            raise UsageError(f"{name} must be >= 0, got {value}.")
    photos = PhotoDuplicates(as_index(index), dismissed=dismissed)
    if not photos.compares_content:
        output.info(
            "This index has no content bits, so a group may be a whole class. Train with content "
            "bits (the default of `hadahash train`) and build the index again."
        )
    _read(photos)
    with output.progress("comparing", len(photos.index)) as progress:
        found = photos.find(threshold, progress=progress)
    if dismiss:
        _dismiss(photos, found, dismiss)
        return
    page = list(enumerate(found, 1))[skip : skip + limit if limit else None]
    if html is not None:
        _write_page(html, photos, found, page)
    if json:
        output.as_json(_facts(photos, found, page))
    else:
        _print(photos, found, page)
    if html is not None:
        output.info(f"wrote {html}")


def _read(photos: PhotoDuplicates) -> None:
    """Read photos that were not decoded when they were indexed."""
    paths = photos.unread()
    if not paths:
        return
    with output.progress("reading photos", len(paths)) as progress:
        failed = photos.read(paths, progress)
    if failed:
        output.info(f"{failed:,} photos cannot be read and are left out. Build the index again.")


def _dismiss(photos: PhotoDuplicates, found: Duplicates, numbers: list[int]) -> None:
    for number in numbers:
        if not 1 <= number <= len(found):
            raise UsageError(f"--dismiss must be 1 to {len(found)}, got {number}.")
    for number in numbers:
        photos.dismiss(found[number - 1])
        output.result(f"dismissed group {number}: {', '.join(map(str, found[number - 1].ids))}")


def _print(
    photos: PhotoDuplicates, found: Duplicates, page: list[tuple[int, DuplicateGroup]]
) -> None:
    from ..visuals.duplicates_sheet import describe_size

    for number, group in page:
        output.result(f"group {number}, {_about(photos, group)}")
        for file in photos.files(group):
            size = "" if file.size is None else describe_size(file.size)
            output.result(f"  {size:>9}  {file.id}")
    shown = f", {len(page):,} shown" if len(page) < len(found) else ""
    hidden = f"; {len(photos.dismissed):,} dismissed" if len(photos.dismissed) else ""
    output.info(
        f"{len(found):,} groups within {found.threshold} of {found.bits} bits{shown}: "
        f"{found.surplus:,} files are copies of others{hidden}"
    )


def _about(photos: PhotoDuplicates, group: DuplicateGroup) -> str:
    count = f"{len(group):,} files"
    if photos.are_equal(group):
        return f"{count}, all equal"
    return f"{count}, at most {group.widest} bits apart"


def _facts(
    photos: PhotoDuplicates, found: Duplicates, page: list[tuple[int, DuplicateGroup]]
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "threshold": found.threshold,
        "bits": found.bits,
        "part": found.part,
        "total": len(found),
        "surplus": found.surplus,
        "dismissed": len(photos.dismissed),
        "groups": [
            {
                "number": number,
                "widest": group.widest,
                "equal": photos.are_equal(group),
                "files": [asdict(file) for file in photos.files(group)],
            }
            for number, group in page
        ],
    }


def _write_page(
    path: Path,
    photos: PhotoDuplicates,
    found: Duplicates,
    page: list[tuple[int, DuplicateGroup]],
) -> None:
    from ..visuals.duplicates_sheet import ShownFile, ShownGroup, write_duplicates_sheet

    groups = [
        ShownGroup(
            number,
            _about(photos, group),
            [ShownFile(str(f.id), f.path or str(f.id), f.size) for f in photos.files(group)],
        )
        for number, group in page
    ]
    title = f"Duplicates in {photos.folder.name}: {len(found):,} groups"
    for problem in write_duplicates_sheet(path, groups, title=title):
        output.info(f"Image not shown: {problem}")
