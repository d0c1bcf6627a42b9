"""What a network gives for images, and the codes and queries that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .codes import Codes, Skipped, is_one, pack
from .errors import ImageError
from .queries import Queries


class Outputs(NamedTuple):
    """Real-valued outputs, one row per image that could be decoded.

    Attributes:
        values: float32 (n, width), on the CPU.
        rows: The indices of those images.
        failed: Index and reason of the images that could not be decoded.
        content: Values (n, content_bits) of the content bits; beside features, those of the
            original backbone where it is a different one. None without content bits.
        scores: Scores of the method's classifier (n, classes), where they were asked for.
    """

    values: Tensor
    rows: NDArray[np.int64]
    failed: list[tuple[int, str]]
    content: Tensor | None = None
    scores: Tensor | None = None


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
        torch.cat(values),
        np.concatenate(rows),
        [row for part in failed for row in part],
        None if nothing.content is None else torch.cat(content),
        None if nothing.scores is None else torch.cat(scores),
    )


def to_codes(values: Outputs, ids: NDArray[Any], skipped: Sequence[Skipped] = ()) -> Codes:
    """Binarize values.

    Args:
        values: Real values, with those of the content bits if there are any.
        ids: One id per row of values.
        skipped: Images that have no values.

    Returns:
        The codes.
    """
    packed, bits = pack(values.values.numpy()), values.values.shape[1]
    if values.content is None:
        return Codes(packed, bits, ids, tuple(skipped))
    content = pack(values.content.numpy())
    return Codes(packed, bits, ids, tuple(skipped), content, values.content.shape[1])


def to_queries(
    values: Outputs,
    relaxed: Tensor,
    ids: NDArray[Any],
    skipped: Sequence[Skipped] = (),
    *,
    softmax: bool = False,
) -> Queries:
    """Make real-valued queries.

    Args:
        values: Real values, with scores and values of the content bits if there are any.
        relaxed: Values in [-1, 1] of the same images, see `relaxed_values`.
        ids: One id per row of values.
        skipped: Images that have no values.
        softmax: Whether the scores are logits of a softmax; other scores are not calibrated and
            left out.

    Returns:
        The queries. Their codes are those of `to_codes`.
    """
    probabilities = None
    if softmax and values.scores is not None:
        probabilities = values.scores.softmax(1).numpy()
    content = None if values.content is None else values.content.numpy()
    return Queries(relaxed.numpy(), ids, tuple(skipped), content, probabilities)


def relaxed_values(values: Tensor, relaxed: Tensor, *, clamp: bool) -> Tensor:
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
    relaxed = relaxed.float()
    if not clamp:
        relaxed = relaxed / relaxed.abs().amax(1, keepdim=True).clamp(min=1)
    tiny = torch.finfo(torch.float32).tiny
    bits = is_one(values)
    positive, negative = relaxed.clamp(0, 1), relaxed.clamp(-1, -tiny)
    return torch.where(bits, positive, negative)


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
