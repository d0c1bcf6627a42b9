"""The query of a search: what clients send, and the text of a query for the next search."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...codes import Codes
from ...errors import HadaHashError, UsageError
from ...index import Item
from ...photos import available_ranks, content_weight, default_rank
from ...queries import Queries
from ...ranking import Rank, Ranking
from ..problem import invalid, model_changed, unknown_id
from .collection import Collection, Packed
from .names import Id

_TINY = np.float16(6e-8)  # the smallest number above 0
_MODEL_DIGITS = 12  # of the model's id, in the text of a query
Halves = NDArray[np.float16]


@dataclass(frozen=True)
class SearchQuery:
    """Parameters of a search. Exactly one of id, code, values, vector and an image is given.

    Attributes:
        id: Id of an item.
        code: Class bits, in hexadecimal digits.
        content: Content bits of `code`, in hexadecimal digits.
        values: Real-valued query, as `values_text` wrote it.
        looks: What the image of `code` looks like, in hexadecimal digits.
        vector: A vector, in an index of embeddings.
        k: Number of results.
        radius: Maximum distance.
        labels: Only items with one of these labels.
        rank: "hamming", "class" or "photo"; None for the default of the index.
        weight: Weight of the content for "photo"; None for the default of the index.
        model: Id of the model that made `code`; None: not known.
    """

    id: Id | None = None
    code: str | None = None
    content: str | None = None
    values: str | None = None
    looks: str | None = None
    vector: Sequence[float] | None = None
    k: int = 10
    radius: int | None = None
    labels: tuple[str, ...] = ()
    rank: Rank | None = None
    weight: float | None = None
    model: str | None = None


@dataclass(frozen=True)
class NewItem:
    """An item to add, as the client sent it; `code` and `content` are None if an image is sent."""

    id: Id
    labels: Sequence[str] = ()
    code: str | None = None
    content: str | None = None
    model: str | None = None  # id of the model that made `code`


def choose_rank(
    query: SearchQuery, content: bool, collection: Collection
) -> tuple[Rank, float | None]:
    """Choose the ranking of a search.

    Args:
        query: What the client sent.
        content: Whether the query has content bits.
        collection: The collection.

    Returns:
        The ranking, and the weight of the content (None unless the ranking is "photo").

    Raises:
        Problem: 422, if index or query cannot be ranked like that.
    """
    index = collection.index
    possible = available_ranks(index, content=content)
    rank = query.rank or default_rank(index, content=content)
    if rank not in possible:
        if "photo" in available_ranks(index):
            hint = "Send `content` with the code, or search from an image or an id."
            raise invalid(f"rank: {rank} needs the content bits of the query.", hint)
        raise invalid(f"rank: {rank} is not possible in this index.", _one_of(possible))
    if query.weight is not None and rank != "photo":
        raise invalid(f"weight: only rank photo has a weight, got rank {rank}.", "Leave it out.")
    if rank != "photo":
        return rank, None
    weight = query.weight
    return rank, content_weight(index) if weight is None else weight


def _one_of(ranks: Sequence[str]) -> str:
    return f"Use {' or '.join(ranks)}."


def parse_code(digits: str, bits: int, name: str = "code") -> Packed:
    """Return packed bits that a client sent.

    Args:
        digits: Hexadecimal digits.
        bits: Number of bits.
        name: Name of the parameter.

    Returns:
        The packed bits.

    Raises:
        Problem: 422, if the number of bits is wrong.
    """
    width = -(-bits // 8)
    packed = np.frombuffer(bytes.fromhex(digits), np.uint8)
    padding = 8 * width - bits
    if len(packed) != width or (padding and packed[-1] & ((1 << padding) - 1)):
        last = f"; the last {padding} bits must be 0." if padding else "."
        kind = "content bits" if name == "content" else "bits"
        hint = f"Send {2 * width} hexadecimal digits{last}"
        raise invalid(f"{name}: the codes of this index have {bits} {kind}.", hint)
    return packed


def parse_codes(code: str, content: str | None, collection: Collection) -> Codes:
    """Return one code that a client sent, with its content bits if there are any.

    Args:
        code: Class bits, in hexadecimal digits.
        content: Content bits, in hexadecimal digits.
        collection: The collection.

    Returns:
        One row.

    Raises:
        Problem: 422, if the number of bits is wrong.
    """
    index = collection.index
    packed = parse_code(code, index.bits)[None]
    if content is None:
        return Codes(packed, index.bits)
    if not index.content_bits:
        raise invalid("content: this index has no content bits.", "Send the code alone.")
    bits = parse_code(content, index.content_bits, "content")[None]
    return Codes(packed, index.bits, content=bits, content_bits=index.content_bits)


def stored_query(collection: Collection, given: Id | None) -> tuple[Item, Codes]:
    """Return an item and its code.

    Args:
        collection: The collection.
        given: Id that a client sent.

    Returns:
        The item, and one row.

    Raises:
        Problem: 404, if there is no such item.
    """
    item_id = collection.parse_id("" if given is None else given)
    try:
        if item_id is not None:
            (item,), codes = collection.index.lookup([item_id])
            return item, codes
    except UsageError:  # unknown, or removed after it was found
        pass
    raise unknown_id()


def stored_queries(collection: Collection, given: Sequence[Id]) -> dict[Id, tuple[Item, Codes]]:
    """Return several items and their codes, looked up together.

    Args:
        collection: The collection.
        given: Ids that clients sent.

    Returns:
        What `stored_query` returns, by the id that was sent. It is empty if one of them is not
        known or cannot be read; `stored_query` then tells which.
    """
    parsed = {each: collection.parse_id(each) for each in given}
    ids = list({each for each in parsed.values() if each is not None})
    try:
        items, codes = collection.index.lookup(ids)
    except HadaHashError:
        return {}
    rows = [codes] if len(codes) == 1 else [codes[row] for row in range(len(codes))]
    found = {item.id: (item, row) for item, row in zip(items, rows, strict=True)}
    return {each: found[item_id] for each, item_id in parsed.items() if item_id is not None}


def vector_query(collection: Collection, vector: Sequence[float]) -> Queries:
    """Return the query of a vector.

    Args:
        collection: The collection.
        vector: What a client sent.

    Returns:
        One row, rounded to numbers of 16 bits.

    Raises:
        Problem: 422, if the index has no embeddings, or embeddings of another width.
    """
    width = collection.index.meta.get("embeddings")
    if width is None:
        hint = "Send an image, a code or an id."
        raise invalid("vector: this index has no embeddings.", hint)
    if len(vector) != width:
        raise invalid(f"vector must have {width} numbers, got {len(vector)}.", "Send all of them.")
    with np.errstate(over="ignore"):  # too large numbers become infinite, which is refused
        values = np.asarray(vector, np.float32)[None]
    queries = collection.model.queries(values)
    if not len(queries):
        raise invalid("vector: its numbers are too large.", "Send numbers that fit into 32 bits.")
    return to_halves(queries)


def to_halves(queries: Queries) -> Queries:
    """Round a query to numbers of 16 bits, so that it equals what `values_text` writes.

    Args:
        queries: One row.

    Returns:
        The rounded row. Signs do not change, so the codes are the same.
    """
    return _split(_joined(queries), queries.bits, queries.content_bits)


def check_made(model: str | None, collection: Collection) -> None:
    """Refuse a code of another model than that of the index.

    Args:
        model: Id of the model, as a client sent it; None: not known.
        collection: The collection.

    Raises:
        Problem: 409, if it is another model.
    """
    if model is not None and model != collection.model.id:
        raise model_changed()


def values_text(queries: Queries, model: str, looks: bytes | None = None) -> str:
    """Write a query as text, from which the same search can be repeated.

    Args:
        queries: One row.
        model: Id of the model that made it.
        looks: What the image looks like, 8 bytes, if that is known.

    Returns:
        Base64 of values, content and probabilities, in numbers of 16 bits (little-endian), after
        the first digits of the id, and before the looks in hexadecimal digits.

    Example:
        >>> values_text(Queries([[1, -0.5]]), "0123456789abcdef", b"ABCDEFGH")
        '0123456789ab:ADwAuA==:4142434445464748'
    """
    text = base64.b64encode(_joined(queries).astype("<f2").tobytes()).decode()
    return ":".join([model[:_MODEL_DIGITS], text, *([] if looks is None else [looks.hex()])])


def parse_values(text: str, collection: Collection) -> tuple[Queries, bytes | None]:
    """Return the query that `values_text` wrote.

    Args:
        text: What a client sent.
        collection: The collection.

    Returns:
        One row, and what the image looks like, if that is known.

    Raises:
        Problem: 409, if another model made it; 422, if it is not a query of this index.
    """
    index = collection.index
    model, _, text = text.partition(":")
    text, _, looks = text.partition(":")
    if text and model != collection.model.id[:_MODEL_DIGITS]:
        raise model_changed()
    hint = "Send `values` of the response to an earlier search or to /v1/encode."
    try:
        halves = np.frombuffer(base64.b64decode(text, validate=True), "<f2").astype(np.float16)
        if (
            not text
            or not _fits(len(halves) - index.bits - index.content_bits, index.ranking)
            or not np.isfinite(halves).all()
        ):
            raise ValueError
        query = _split(halves, index.bits, index.content_bits)
        return query, bytes.fromhex(looks) if looks else None
    except (ValueError, binascii.Error):  # includes UsageError of Queries
        raise invalid("values: not a query of this index.", hint) from None


def _joined(queries: Queries) -> Halves:
    parts = [queries.values, queries.content, queries.probabilities]
    values = np.concatenate([part[0] for part in parts if part is not None])
    halves = values.astype(np.float16)
    return np.where(values < 0, np.minimum(halves, -_TINY), halves).astype(np.float16)


def _fits(probabilities: int, ranking: Ranking | None) -> bool:
    """Whether a query can have this number of class probabilities; any without codewords."""
    words = None if ranking is None else ranking.codewords
    return probabilities >= 0 and (words is None or probabilities in (0, len(words)))


def _split(halves: Halves, bits: int, content_bits: int) -> Queries:
    parts = np.split(halves.astype(np.float32)[None], [bits, bits + content_bits], axis=1)
    values, content, probabilities = parts
    return Queries(
        values,
        content=content if content_bits else None,
        probabilities=probabilities if probabilities.size else None,
    )
