"""`hadahash search`: find the images most similar to a query image."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options, output


def search(
    index: Annotated[Path, typer.Argument(help="Folder of an index.")],
    image: Annotated[Path, typer.Argument(help="The query image.")],
    k: Annotated[int, typer.Option("-k", help="Number of results.")] = 10,
    radius: Annotated[
        int | None, typer.Option(help="Maximum Hamming distance of a result.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Only results with this label. May be repeated.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--sheet", help="Also write an HTML page with the images to this file."),
    ] = None,
    run: options.Run = None,
    json: options.Json = False,
    device: options.Device = "auto",
) -> None:
    """Find the images most similar to a query image.

    Example: hadahash search photos.index cat.jpg -k 10 --sheet cat.html
    """
    from ..index import Index
    from ..photos import find_similar, load_model_of

    opened = Index.open(index)
    found = find_similar(
        opened,
        load_model_of(opened, index, run, device=device),
        image,
        k=k,
        radius=radius,
        labels=label or (),
    )
    if page is not None:
        from ..visuals.search_sheet import write_search_sheet

        for problem in write_search_sheet(page, image, found, bits=opened.bits):
            output.info(f"Image not shown: {problem}")
    if json:
        output.as_json({"image": str(image), "hits": [hit._asdict() for hit in found]})
        return
    output.result(f"{'rank':>4}  {'bits':>4}  {'label':<16}id")
    for rank, hit in enumerate(found, 1):
        output.result(
            f"{rank:>4}  {hit.distance:>4}  {', '.join(map(str, hit.labels)) or '-':<16}{hit.id}"
        )
    if page is not None:
        output.info(f"wrote {page}")
