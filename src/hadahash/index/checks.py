"""Checks and conversions of what callers pass to an index."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes, as_codes, pack, unpack
from ..errors import UsageError
from ..queries import Queries
from ..ranking import Ranking
from ..ranking.model import check_rank, check_weight
from .items import ItemTable, item_table, quote_ids
from .query import Ranked

if TYPE_CHECKING:
    from ..model import HashModel
    from .engine import Engine

MIN_BITS, MAX_BITS = 8, 512


def packed_queries(codes: Any, bits: int) -> NDArray[np.uint8]:
    """Packed codes of queries: `Queries`, `Codes`, packed uint8, or anything `as_codes` takes.

    Raises:
        UsageError: The codes have a different number of bits.
    """
    if isinstance(codes, np.ndarray) and codes.dtype == np.uint8:
        if codes.shape[1:] == (bits / 8,):
            return codes  # nothing more to check, and single queries must be fast
        return Codes(packed=codes, bits=bits).packed
    checked = codes.codes() if isinstance(codes, Queries) else as_codes(codes)
    if checked.bits != bits:
        raise UsageError(
            f"This index contains codes of {bits} bits, got codes of {checked.bits} bits."
        )
    return checked.packed


def sorted_items(codes: Any, labels: Any, paths: Any, index: Engine) -> tuple[Codes, ItemTable]:
    """Codes and items in the order of ids.

    Raises:
        UsageError: The codes, ids, labels or paths are invalid, or an id is repeated.
    """
    codes = as_codes(codes)
    packed_queries(codes, index.bits)
    _check_content_bits(codes.content_bits, index.content_bits)
    check_fingerprint(index, codes.content_fingerprint)
    table = item_table(codes.ids, paths=paths, labels=labels)
    if len(codes) > 1 and not (codes.ids[:-1] < codes.ids[1:]).all():
        order = np.argsort(codes.ids, kind="stable")
        codes, table = codes[order], table.take(order)
        repeated = table.ids[1:] == table.ids[:-1]
        if repeated.any():
            raise UsageError(f"Ids must be unique, got {quote_ids(table.ids[1:][repeated])} twice.")
    return codes, table


def _check_content_bits(got: int, stored: int) -> None:
    if got == stored:
        return
    if stored == 0:
        raise UsageError(
            f"This index has no content bits, got codes with {got}. "
            "Use codes.class_codes(), or build the index again."
        )
    raise UsageError(
        f"This index contains codes with {stored} content bits, got codes with {got or 'none'}. "
        "Encode with the model of the index."
    )


def check_fingerprint(index: Engine, made_by: str | None) -> None:
    """Refuse content bits of another projection than that of an index.

    Args:
        index: The index.
        made_by: Fingerprint of the projection; None: unknown.

    Raises:
        UsageError: The projections differ.
    """
    stored = index.content_fingerprint
    if index.content_bits and None not in (stored, made_by) and stored != made_by:
        raise UsageError(
            f"The content bits of this index were made by the projection {str(stored)[:12]}, got "
            f"those of {str(made_by)[:12]}: they cannot be compared. Encode with the model of the "
            "index."
        )


def keep_projection(index: Engine, model: HashModel | None, made_by: str | None) -> None:
    """Let a new index keep the projection of its content bits, and its fingerprint.

    Args:
        index: The index, without items.
        model: The model that made its codes, or None.
        made_by: Fingerprint of the projection that the codes name; None: unknown.

    Raises:
        UsageError: The codes were made by another projection.
    """
    from .storage.projection_file import KeptProjection

    projection = None if model is None else model.content_projection
    if index.content_bits and projection is not None:
        index._projection, made_by = KeptProjection(projection), projection.fingerprint
    if index.content_bits and made_by is not None and index.content_fingerprint is None:
        index.ranking = replace(ranking_of(index), content_fingerprint=made_by)
    check_fingerprint(index, made_by)


# ---- queries -------------------------------------------------------------------------------------


def ranked_queries(query: Any, rank: str, weight: float | None, index: Engine) -> Ranked | None:
    """Queries of a ranking with its weight; None for the order of distances.

    Raises:
        UsageError: The ranking is unknown, the weight is invalid, or content bits are missing.
    """
    check_rank(rank)
    if weight is not None and rank != "photo":
        raise UsageError(f'weight is for rank="photo" only, got rank="{rank}".')
    if rank == "hamming":
        return None
    queries = query
    if not isinstance(query, Queries):
        packed = isinstance(query, np.ndarray) and query.dtype == np.uint8
        queries = Queries.from_codes(Codes(query, index.bits) if packed else as_codes(query))
    ranking, content_bits = ranking_of(index), index.content_bits
    if rank == "class":
        return Ranked(rank, queries, ranking, 0.0)
    if content_bits == 0:
        raise UsageError(
            'rank="photo" needs content bits, and this index has none. Use rank="class", or encode '
            "with a model that has content bits and build the index again."
        )
    if queries.content_bits != content_bits:
        raise UsageError(
            f'rank="photo" needs queries with {content_bits} content bits, got '
            f"{queries.content_bits or 'none'}. Use Queries or Codes of the model of the index."
        )
    chosen = ranking.content_weight if weight is None else _content_weight(weight)
    return Ranked(rank, queries, ranking, chosen)


def _content_weight(weight: Any) -> float:
    if isinstance(weight, (bool, np.bool_)) or not isinstance(weight, (int, float, np.number)):
        raise UsageError(f"weight must be a number >= 0, got {weight!r}.")
    return check_weight(float(weight))


def packed_content(query: Any, index: Engine) -> NDArray[np.uint8] | None:
    """Packed content bits of queries, for distances; None if query or index has none.

    Raises:
        UsageError: They were made by another projection.
    """
    if index.content_bits == 0 or not isinstance(query, (Codes, Queries)):
        return None
    if query.content_bits != index.content_bits:
        return None
    check_fingerprint(index, query.content_fingerprint)
    return query.content if isinstance(query, Codes) else query.codes().content


def ranking_of(index: Engine) -> Ranking:
    """The ranking of an index; without one, its codewords with the default sharpness."""
    if index.ranking is not None:
        return index.ranking
    codewords = getattr(index, "codewords", None)
    return Ranking(None if codewords is None else unpack(codewords, index.bits))


def check_lengths(codes: Codes) -> None:
    """Refuse codes that an index cannot store.

    Raises:
        UsageError: They are too short or too long.
    """
    if not MIN_BITS <= codes.bits <= MAX_BITS:
        raise UsageError(f"bits must be between {MIN_BITS} and {MAX_BITS}, got {codes.bits}.")
    if codes.content_bits > MAX_BITS:
        raise UsageError(f"content_bits must be <= {MAX_BITS}, got {codes.content_bits}.")


def check_ranking(ranking: Ranking | None, codes: Codes) -> None:
    """Refuse a ranking for codes of another length.

    Raises:
        UsageError: Its codewords have another length.
    """
    if ranking is not None and not isinstance(ranking, Ranking):
        raise UsageError(f"ranking must be a Ranking, got {type(ranking).__name__}.")
    words = None if ranking is None else ranking.codewords
    if words is not None and words.shape[1] != codes.bits:
        raise UsageError(
            f"The codewords of the ranking have {words.shape[1]} bits, the codes {codes.bits}. "
            "ranking.prefix(bits) shortens them."
        )


def model_meta(model: HashModel | None, codes: Codes) -> dict[str, str]:
    """Values of `Index.meta` that identify the model of the codes; none without a model.

    Raises:
        UsageError: The model makes codes of another length.
    """
    if model is None:
        return {}
    if not (hasattr(model, "folder") and hasattr(model, "ranking")):
        raise UsageError(f"model must be a HashModel, got {type(model).__name__}.")
    lengths = (model.bits, model.content_bits), (codes.bits, codes.content_bits)
    if lengths[0] != lengths[1]:
        made, got = (f"{bits} + {content}" for bits, content in lengths)
        raise UsageError(f"model makes codes of {made} bits, got codes of {got} bits.")
    return {"model": model.id} | ({} if model.folder is None else {"run": str(model.folder)})


def whole_number(name: str, value: Any, minimum: int) -> int:
    """Check that a value is an integer >= `minimum`; floats and bools are refused.

    Raises:
        UsageError: It is not.
    """
    if type(value) is int and value >= minimum:
        return value
    try:
        number = operator.index(value)
    except TypeError:
        number = minimum - 1
    if number < minimum or isinstance(value, (bool, np.bool_)):
        raise UsageError(f"{name} must be an integer >= {minimum}, got {value!r}.")
    return number


def pack_codewords(codewords: Any, bits: int) -> NDArray[np.uint8] | None:
    """Packed codewords, uint8 (C, ceil(bits / 8)).

    Args:
        codewords: +-1 (C, bits), `Codes`, or None.
        bits: Length of the codes.

    Returns:
        The packed codewords, or None.

    Raises:
        UsageError: The shape does not fit.
    """
    if codewords is None:
        return None
    values = codewords.signs() if isinstance(codewords, Codes) else np.asarray(codewords)
    if values.ndim != 2 or len(values) == 0 or values.shape[1] != bits:
        raise UsageError(f"codewords must have the shape (classes, {bits}), got {values.shape}.")
    return pack(values)
