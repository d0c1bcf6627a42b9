from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..data import open_image, shrink_to_square
from ..errors import ImageError
from ..index import Index
from ..photos import Found, find, model_of
from ..visuals.html import Shown, paragraph, sheet, write_page
from . import options, output

_SIDE = 132  # pixels of a picture on a sheet


def search(
    index: Annotated[Path, typer.Argument(help="Folder of an index.")],
    image: Annotated[Path, typer.Argument(help="The image to look for.")],
    k: Annotated[int, typer.Option("-k", help="So many results.")] = 10,
    radius: Annotated[
        int | None, typer.Option(help="Only results that differ in at most so many bits.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Only results with this label. May be repeated.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--sheet", help="Also write the pictures as a page, out.html.")
    ] = None,
    run: options.Run = None,
    json: options.Json = False,
    device: options.Device = "auto",
) -> None:
    """Find the images nearest to one.

    Example: hadahash search photos.index cat.jpg -k 10 --sheet cat.html
    """
    opened = Index.open(index)
    found = find(
        opened,
        model_of(opened, index, run, device=device),
        image,
        k=k,
        radius=radius,
        labels=label or (),
    )
    if page is not None:
        _write_sheet(page, image, found)
    if json:
        output.as_json({"image": str(image), "hits": [hit._asdict() for hit in found]})
        return
    output.result(f"{'rank':>4}  {'bits':>4}  {'label':<16}id")
    for rank, hit in enumerate(found, 1):
        output.result(
            f"{rank:>4}  {hit.distance:>4}  {', '.join(map(str, hit.labels)) or '-':<16}{hit.id}"
        )
    if page is not None:
        output.info(f"pictures in {page}")


def _write_sheet(page: Path, image: Path, found: list[Found]) -> None:
    shown = [_picture(image, image.name)]
    for hit in found:
        caption = " ".join([*map(str, hit.labels), str(hit.distance)])
        try:
            shown.append(_picture(Path(hit.path or str(hit.id)), caption, right=True))
        except ImageError as error:
            output.info(f"not on the sheet: {error}")
    note = f"The {len(found)} images nearest to {image.name}, which stands first. Under each: its label, and the bits that differ."
    write_page(page, f"Nearest to {image.name}", [paragraph(note), sheet([shown])])


def _picture(path: Path, caption: str, *, right: bool | None = None) -> Shown:
    return Shown(shrink_to_square(open_image(path), _SIDE), caption, right)
