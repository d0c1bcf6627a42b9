"""Other rankings of the same codes: real-valued queries, and the probability of a shared class.

The formulas are those of `hadahash.ranking`, here over whole databases on a GPU. The database stays
one binary code per image. Items with the same code always tie, so a ranking is computed over the
distinct codes, and its measures are exact expectations over ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..evaluation.metrics import Counts, tie_sum
from ..ranking.fitting import logistic
from ..ranking.model import SHARPNESS as SHARPNESS

_QUERIES = 256  # ranked at once
_DEPTH = 1000


@dataclass(frozen=True, eq=False)
class RankingInputs:
    """Inputs of a ranking, on one device.

    Attributes:
        query: Float (q, bits), real-valued outputs in [-1, 1].
        database: (n, bits) of +-1.
        train: Float (t, bits), real-valued outputs of the training images.
        query_targets: Float (q, C) of 0 and 1.
        database_targets: Float (n, C).
        train_targets: Float (t, C'), of the C' classes that were trained on.
        multilabel: Whether images have any number of classes.
        codewords: (C', bits) of +-1, or None.
        class_scores: (q, C'), the classifier's scores of the queries, or None.
    """

    query: Tensor
    database: Tensor
    train: Tensor
    query_targets: Tensor
    database_targets: Tensor
    train_targets: Tensor
    multilabel: bool
    codewords: Tensor | None
    class_scores: Tensor | None


@dataclass(frozen=True, eq=False)
class Ranked:
    """A measured ranking.

    Attributes:
        ap: float64 (q,), average precision of the whole ranking.
        ties: (q, groups), sizes of the groups of equal score up to depth 1,000; the last column
            holds all further items.
        hits: (q, groups), how many of these are relevant.
    """

    ap: Tensor
    ties: Counts
    hits: Counts


def rank_all(inputs: RankingInputs) -> dict[str, Ranked]:
    """Measure all rankings that the inputs allow.

    - `real`: dot product of the real-valued query and the code.
    - `same_class_real`, `same_class_binary`: probability that query and item share a class, with
      class probabilities computed from the real-valued or the binary query.
    - `same_class_classifier`: the same, with those of the query's classifier. Single-label only.

    Args:
        inputs: Outputs, labels and codewords.

    Returns:
        Rankings by name. Without codewords only `real`.
    """
    groups = _distinct(inputs)
    found = {"real": _rank(inputs, groups, inputs.query, groups.codes)}
    if inputs.codewords is None:
        return found
    binary = torch.where(inputs.query >= 0, 1.0, -1.0).to(inputs.query.dtype)
    if inputs.multilabel:
        items = _label_probabilities(inputs, _signs(inputs.train), groups.codes)
        for name, query, train in (
            ("same_class_real", inputs.query, inputs.train),
            ("same_class_binary", binary, _signs(inputs.train)),
        ):
            query_probabilities = _label_probabilities(inputs, train, query)
            found[name] = _rank(inputs, groups, query_probabilities, items, independent=True)
        return found
    items = _class_probabilities(groups.codes, inputs.codewords)
    queries = {
        "same_class_real": _class_probabilities(inputs.query, inputs.codewords),
        "same_class_binary": _class_probabilities(binary, inputs.codewords),
    }
    if inputs.class_scores is not None:
        queries["same_class_classifier"] = inputs.class_scores.double().softmax(1)
    return found | {name: _rank(inputs, groups, query, items) for name, query in queries.items()}


@dataclass(frozen=True, eq=False)
class _Groups:
    codes: Tensor  # float (u, bits): distinct codes
    member: Tensor  # int64 (n,): group of each item
    sizes: Tensor  # float64 (u,)
    class_counts: Tensor  # float64 (u, C)


def _distinct(inputs: RankingInputs) -> _Groups:
    words = _packed(inputs.database)
    _, member = torch.unique(words, dim=0, return_inverse=True)
    count = int(member.max()) + 1
    codes = torch.empty(count, inputs.database.shape[1], device=words.device, dtype=torch.float64)
    codes[member] = inputs.database.double()
    sizes = torch.zeros(count, device=words.device, dtype=torch.float64)
    sizes.index_add_(0, member, torch.ones_like(member, dtype=torch.float64))
    classes = torch.zeros(
        count, inputs.database_targets.shape[1], device=words.device, dtype=torch.float64
    )
    classes.index_add_(0, member, inputs.database_targets.double())
    return _Groups(codes, member, sizes, classes)


def _packed(signs: Tensor) -> Tensor:
    """int64 (n, words): 32 bits in each word."""
    n, bits = signs.shape
    padded = torch.zeros(n, -(-bits // 32) * 32, dtype=torch.int64, device=signs.device)
    padded[:, :bits] = (signs >= 0).long()
    return (padded.view(n, -1, 32) << torch.arange(32, device=signs.device)).sum(2)


def _signs(values: Tensor) -> Tensor:
    return torch.where(values >= 0, 1.0, -1.0).to(values.dtype)


def _class_probabilities(values: Tensor, codewords: Tensor) -> Tensor:
    """Probabilities of the classes, float64 (n, C)."""
    sharpness = SHARPNESS / codewords.shape[1]
    return (sharpness * values.double() @ codewords.double().T).softmax(1)


def _label_probabilities(inputs: RankingInputs, train: Tensor, values: Tensor) -> Tensor:
    """float64 (n, C): sigmoid of an affine function of <s, w_c> / bits, fitted on `train`."""
    if inputs.codewords is None:
        raise ValueError("Class probabilities need codewords.")
    words = inputs.codewords.double().T / inputs.codewords.shape[1]
    x, y = (each.double().cpu().numpy() for each in (train.double() @ words, inputs.train_targets))
    slope, offset = (torch.from_numpy(each).to(values.device) for each in logistic(x, y))
    return torch.sigmoid(values.double() @ words * slope + offset)


def _rank(
    inputs: RankingInputs,
    groups: _Groups,
    queries: Tensor,
    items: Tensor,
    *,
    independent: bool = False,
) -> Ranked:
    """Rank the groups by <query, item>, or by 1 - prod_c (1 - query_c item_c) if `independent`."""
    aps, ties, hits = [], [], []
    for rows in _slices(len(queries)):
        scores = _scores(queries[rows].double(), items.double(), independent)
        ap, tie, hit = _measured(scores, groups.sizes, _relevant(inputs, groups, rows))
        aps.append(ap)
        ties.append(tie)
        hits.append(hit)
    width = max(tie.shape[1] for tie in ties)
    return Ranked(torch.cat(aps), _joined(ties, width), _joined(hits, width))


def _slices(count: int) -> Iterator[slice]:
    return (slice(start, start + _QUERIES) for start in range(0, count, _QUERIES))


def _scores(queries: Tensor, items: Tensor, independent: bool) -> Tensor:
    scores = shares_none(queries, items) if independent else queries @ items.T
    return (scores * 1e9).round()  # equal up to rounding errors is equal


def shares_none(queries: Tensor, items: Tensor) -> Tensor:
    """-log of the probability that no class is shared, with independent classes.

    Args:
        queries: float64 (q, C), class probabilities.
        items: float64 (n, C).

    Returns:
        float64 (q, n).
    """
    scores = torch.zeros(len(queries), len(items), dtype=torch.float64, device=queries.device)
    for c in range(queries.shape[1]):
        scores -= torch.log1p(-queries[:, c, None] * items[None, :, c] * (1 - 1e-12))
    return scores


def _relevant(inputs: RankingInputs, groups: _Groups, rows: slice) -> Tensor:
    """float64 (q, u): how many items of each group share a class with the query."""
    targets = inputs.query_targets[rows].double()
    if not inputs.multilabel:
        return targets @ groups.class_counts.T
    shared = (targets @ inputs.database_targets.double().T > 0).double()
    found = torch.zeros(len(targets), len(groups.sizes), dtype=torch.float64, device=shared.device)
    return found.index_add_(1, groups.member, shared)


def _measured(scores: Tensor, sizes: Tensor, relevant: Tensor) -> tuple[Tensor, Counts, Counts]:
    """Average precision (q,) of the whole ranking, and the groups up to depth 1,000."""
    order = scores.argsort(dim=1, descending=True)
    ordered = scores.gather(1, order)
    step = torch.zeros_like(order)
    step[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    group = step.cumsum(1)
    n = torch.zeros_like(scores).scatter_add_(1, group, sizes[order])
    r = torch.zeros_like(scores).scatter_add_(1, group, relevant.gather(1, order))
    before, hits_before = n.cumsum(1) - n, r.cumsum(1) - r
    harmonic = torch.zeros(int(sizes.sum()) + 1, dtype=torch.float64, device=scores.device)
    harmonic[1:] = (1 / torch.arange(1, len(harmonic), device=scores.device).double()).cumsum(0)
    difference = harmonic[(before + n).long()] - harmonic[before.long()]
    sums = tie_sum(n, r, before, hits_before, n, difference)
    ap = sums.sum(1) / r.sum(1).clamp(min=1)
    width = int(((before < _DEPTH) & (n > 0)).sum(1).max())
    return ap, _top(n, width), _top(r, width)


def _top(counts: Tensor, width: int) -> Counts:
    rest = counts[:, width:].sum(1, keepdim=True)
    return torch.cat([counts[:, :width], rest], 1).to(torch.int32).cpu().numpy()


def _joined(parts: list[Counts], width: int) -> Counts:
    """Rows of several tables; the narrower ones get empty columns before their rest."""
    filled = [
        np.hstack([p[:, :-1], np.zeros((len(p), width - p.shape[1]), p.dtype), p[:, -1:]])
        for p in parts
    ]
    return np.concatenate(filled)
