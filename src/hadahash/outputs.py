"""What a network gives for images, and the codes and queries that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .codes import Codes, Skipped, is_one, pack
from .errors import ImageError
from .queries import Queries
from .ranking.model import softmax as softmax_of

Floats = NDArray[np.float32]


class Outputs(NamedTuple):
    """Real-valued outputs, one row per image that could be decoded.

    Attributes:
        values: float32 (n, width).
        rows: The indices of those images.
        failed: Index and reason of the images that could not be decoded.
        content: Values (n, content_bits) of the content bits; beside features, those of the
            original backbone where it is a different one. None without content bits.
        scores: Scores of the method's classifier (n, classes), where they were asked for.
    """

    values: Floats
    rows: NDArray[np.int64]
    failed: list[tuple[int, str]]
    content: Floats | None = None
    scores: Floats | None = None


def join_outputs(parts: Iterable[Outputs], nothing: Outputs) -> Outputs:
    """Join outputs in order.

    Args:
        parts: The outputs.
        nothing: Outputs of no image, which has the same columns.

    Returns:
        All rows.
    """
    values, rows, failed, content, scores = zip(nothing, *parts, strict=True)
    return Outputs(
        np.concatenate(values),
        np.concatenate(rows),
        [row for part in failed for row in part],
        None if nothing.content is None else np.concatenate(content),
        None if nothing.scores is None else np.concatenate(scores),
    )


def fill_outputs(
    parts: Iterable[Outputs], nothing: Outputs, count: int, allocate: Callable[..., Floats]
) -> Outputs:
    """Join outputs in order, as they come, in arrays that are allocated once.

    Args:
        parts: The outputs, without scores.
        nothing: Outputs of no image, which has the same columns.
        count: Largest number of rows.
        allocate: Makes an array of a shape and a type, in memory or mapped from a file.

    Returns:
        All rows. `join_outputs` takes twice the memory.
    """
    columns = [each for each in (nothing.values, nothing.content) if each is not None]
    arrays = [allocate((count, each.shape[1]), np.float32, "features") for each in columns]
    filled, rows, failed = 0, [nothing.rows], list(nothing.failed)
    for part in parts:
        end = filled + len(part.rows)
        for array, values in zip(arrays, (part.values, part.content), strict=False):
            array[filled:end] = values
        filled = end
        rows.append(part.rows)
        failed += part.failed
    own, *original = (array[:filled] for array in arrays)
    return Outputs(own, np.concatenate(rows), failed, original[0] if original else None)


def to_codes(
    values: Outputs,
    ids: NDArray[Any],
    skipped: Sequence[Skipped] = (),
    fingerprint: str | None = None,
) -> Codes:
    """Binarize values.

    Args:
        values: Real values, with those of the content bits if there are any.
        ids: One id per row of values.
        skipped: Images that have no values.
        fingerprint: Identifies the projection to content bits.

    Returns:
        The codes.
    """
    packed, bits = pack(values.values), values.values.shape[1]
    if values.content is None:
        return Codes(packed, bits, ids, tuple(skipped))
    content = pack(values.content)
    length = values.content.shape[1]
    return Codes(packed, bits, ids, tuple(skipped), content, length, fingerprint)


def to_queries(
    values: Outputs,
    relaxed: Floats,
    ids: NDArray[Any],
    skipped: Sequence[Skipped] = (),
    *,
    softmax: bool = False,
    fingerprint: str | None = None,
) -> Queries:
    """Make real-valued queries.

    Args:
        values: Real values, with scores and values of the content bits if there are any.
        relaxed: Values in [-1, 1] of the same images, see `relaxed_values`.
        ids: One id per row of values.
        skipped: Images that have no values.
        softmax: Whether the scores are logits of a softmax; other scores are not calibrated and
            left out.
        fingerprint: Identifies the projection to content bits.

    Returns:
        The queries. Their codes are those of `to_codes`.
    """
    probabilities = None
    if softmax and values.scores is not None:
        probabilities = softmax_of(values.scores.astype(np.float64)).astype(np.float32)
    return Queries(relaxed, ids, tuple(skipped), values.content, probabilities, fingerprint)


def relaxed_values(values: Floats, relaxed: Floats, *, clamp: bool) -> Floats:
    """Bring relaxed values to [-1, 1] without changing a bit.

    Args:
        values: Real values (n, bits).
        relaxed: What the method's loss sees, (n, bits); not bounded for some methods.
        clamp: Clamp values beyond -1 and 1, as for methods with codewords, which ask how sure a bit
            is. Otherwise rows with such values are divided by their largest one, which keeps the
            order of their products with codes.

    Returns:
        float32 (n, bits) in [-1, 1], with the signs of `values`.
    """
    relaxed = relaxed.astype(np.float32)
    if not clamp and relaxed.size:
        relaxed = relaxed / np.maximum(np.abs(relaxed).max(1, keepdims=True), np.float32(1))
    tiny = np.finfo(np.float32).tiny
    positive, negative = np.clip(relaxed, 0, 1), np.clip(relaxed, -1, -tiny)
    return np.where(is_one(values), positive, negative)


def check_single(source: Any, skipped: Sequence[Skipped], count: int) -> None:
    """Refuse a source that is one file that cannot be read.

    Args:
        source: What was to be encoded.
        skipped: The images that could not be read.
        count: Number of images in the source.

    Raises:
        ImageError: The only image could not be read.
    """
    if skipped and count == 1 and isinstance(source, (str, Path)):
        raise ImageError(source, skipped[0].reason)
