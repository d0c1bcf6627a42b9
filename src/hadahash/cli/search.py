"""`hadahash search`: find the images most similar to a query image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, cast

import typer

from ..errors import UsageError
from . import options, output

if TYPE_CHECKING:
    from ..data.embeddings import Embeddings
    from ..index import Index
    from ..photos import SearchHit

ItemId = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--id", help="Search from this item of the index instead; needs no model."),
]
Vector = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        help="Search from this vector (.npy) instead: an embedding in an index of embeddings, "
        "features of the original backbone in an index of photos with content bits."
    ),
]
Rank = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        help="Order: hamming (distance of the class bits), class (probability of sharing a "
        "class), photo (class and content). Default: photo if the index has content bits, "
        "class if its codes were made without labels, else hamming."
    ),
]
Radius = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="Maximum Hamming distance of the class bits."),
]
Label = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(help="Only results with this label. May be repeated."),
]
Sheet = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--sheet", help="Also write an HTML page with the images to this file."),
]


def search(
    index: Annotated[Path, typer.Argument(help="Folder of an index.")],
    image: Annotated[Optional[Path], typer.Argument(help="The query image.")] = None,  # noqa: UP045
    id_: ItemId = None,
    vector: Vector = None,
    k: Annotated[int, typer.Option("-k", help="Number of results.")] = 10,
    rank: Rank = None,
    weight: options.Weight = None,
    radius: Radius = None,
    label: Label = None,
    page: Sheet = None,
    run: options.Run = None,
    json: options.Json = False,
    device: options.Device = "auto",
) -> None:
    """Find the images most similar to a query image, the most similar first.

    The column "alike" falls with the rank. It is the probability of sharing a class (--rank class),
    kind and content together (photo), or the fraction of class bits that are equal (hamming).

    Example: hadahash search photos.index cat.jpg -k 10 --sheet cat.html
    """
    from ..index import Index
    from ..photos import check_rank, default_rank, find_similar, find_similar_to, load_model_of

    given = rank, weight, radius
    if sum(each is not None for each in (image, id_, vector)) != 1:
        raise UsageError("Give either an image file, --vector FILE or --id ID.")
    image = image if vector is None else vector
    opened = Index.open(index)
    rank = check_rank(opened, rank or default_rank(opened))
    if weight is not None and rank != "photo":
        raise UsageError(f"--weight is for --rank photo, got --rank {rank}.")
    settings: dict[str, Any] = {
        "k": k,
        "radius": radius,
        "labels": label or (),
        "rank": rank,
        "weight": weight,
        "folder": index,
    }
    if id_ is not None:
        found = find_similar_to(opened, id_, **settings)
    elif vector is not None and "embeddings" not in opened.meta:
        found = _by_features(opened, vector, given, k=k, labels=label or ())
    else:
        model = load_model_of(opened, index, run, device=device)
        found = find_similar(opened, model, image, **settings)
    if page is not None:
        _write_sheet(page, image or _file_of(opened, id_), found, opened, rank)
    if json:
        query = {"image": str(image)} if id_ is None else {"id": id_}
        output.as_json({**query, "rank": rank, "hits": [hit._asdict() for hit in found]})
    else:
        _print(found, content=bool(opened.content_bits))
    if page is not None:
        output.info(f"wrote {page}")


def _by_features(
    opened: Index, vector: Path, given: tuple[str | None, Any, Any], **options: Any
) -> list[SearchHit]:
    """The photos whose content is most similar to a file of features."""
    from ..data.embedding_files import open_embeddings
    from ..photos import find_by_features

    rank, weight, radius = given
    if rank not in (None, "photo") or weight is not None or radius is not None:
        raise UsageError(
            "--vector in an index of photos compares the content alone. "
            "Leave out --rank, --weight and --radius, or give an image file."
        )
    features = cast("Embeddings", open_embeddings(vector).images)
    return find_by_features(opened, features.array, **options)


def _print(found: list[SearchHit], *, content: bool) -> None:
    title = "  content" if content else ""
    output.result(f"{'rank':>4}  {'alike':>5}  {'bits':>4}{title}  {'label':<16}id")
    for place, hit in enumerate(found, 1):
        labels = ", ".join(map(str, hit.labels)) or "-"
        bits = f"  {hit.content_distance:>7}" if content else ""
        alike = f"{100 * hit.similarity:.0f} %"
        same = "  (same photo)" if hit.same_photo else ""
        output.result(
            f"{place:>4}  {alike:>5}  {hit.distance:>4}{bits}  {labels:<16}{hit.id}{same}"
        )


def _write_sheet(page: Path, query: Path, found: list[SearchHit], opened: Index, rank: str) -> None:
    from ..visuals.search_sheet import write_search_sheet

    for problem in write_search_sheet(
        page, query, found, bits=opened.bits, content_bits=opened.content_bits, rank=rank
    ):
        output.info(f"Image not shown: {problem}")


def _file_of(opened: Index, given: Any) -> Path:
    """The image file of an item."""
    from ..index import parse_id

    (item,) = opened.get([parse_id(given, opened.id_type)])
    return Path(str(item.id if item.path is None else item.path))
