"""Content bits beside class bits: class mAP and known-item search under every ranking.

Content bits are fitted as those of a trained model: `hadahash.content.fit_content` on features of
the original backbone of training images. The rankings of a database with K class bits s and K2
content bits t per image:

    hamming           -d(sgn v, s): the paper's ranking
    class             P(same class), see `hadahash.ranking`; the query's class probabilities are
                      those of its classifier (single-label), or follow from v
    class-real        the same, always from v
    features          cosine of the original float features, nothing binary: a reference
    content-K2        -d(sgn z, t): content bits alone
    content-real-K2   <z, t>: the limit of photo-K2-w for large w
    weighted-K2-a     -(a d(sgn v, s) + d(sgn z, t)): Hamming, the class bits stored a times
    photo-K2-w        log P(same class) + w <z, t> / K2

with v the query's real-valued code and z its content values, scaled to unit variance. Every measure
is the exact expectation over the order of items with equal score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..content import ContentProjection
from ..evaluation import metrics
from ..evaluation.known_item import KnownItem, measure_places
from ..ranking import fit_ranking
from .rankings import RankingInputs, shares_none

BITS = (64, 128)
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
CLASS_WEIGHTS = (1, 2, 4)
SAMPLE = 500  # database images that are altered and searched
QUERIES = 10_000  # most queries of the class mAP, evenly spaced: all of the three data sets
_FITTED = 5000  # training images on which the class probabilities are fitted
_BLOCK = 256  # queries ranked at once
_DEPTH = 1000
_GRID = 1e9  # scores are multiples of 1 / _GRID: equal up to rounding errors is equal
_DIGITS = 5


@dataclass(frozen=True, eq=False)
class Encoded:
    """Outputs for some images, on one device.

    Attributes:
        real: float (n, bits), real-valued codes in [-1, 1].
        features: float (n, d), features of the original backbone.
        classes: float (n, C), class probabilities of the classifier, or None.
    """

    real: Tensor
    features: Tensor
    classes: Tensor | None = None

    def __len__(self) -> int:
        return len(self.real)

    def __getitem__(self, rows: Any) -> Encoded:
        classes = None if self.classes is None else self.classes[rows]
        return Encoded(self.real[rows], self.features[rows], classes)


@dataclass(frozen=True, eq=False)
class ContentInputs:
    """What the rankings are computed from.

    Attributes:
        ranking: Outputs, labels and codewords of queries, database and training images.
        query: The queries.
        database: The database.
        altered: The altered copies of some database images, by alteration.
        items: int64 (q,), rows of these images in the database.
        projections: Content bits of each length.
    """

    ranking: RankingInputs
    query: Encoded
    database: Encoded
    altered: Mapping[str, Encoded]
    items: Tensor
    projections: Sequence[ContentProjection]


def measure_content(inputs: ContentInputs, *, sweep: bool = True) -> dict[str, Any]:
    """Measure the rankings of one model.

    Args:
        inputs: Outputs, features and labels.
        sweep: Measure all rankings. False: only `hamming`, `class`, and for
            the longest content bits `content-real` and `photo` with the default weight.

    Returns:
        JSON values: `content_weight`, the default weight of the content; and `rankings`, by name,
        with `map` (the whole ranking), `map_1000` (found),
        `precision_1`, `precision_10`, `first_ten_tie`, `agreement_10` (expected fraction of the ten
        nearest images by features among the first ten) and `known_item` by alteration.
    """
    scorer = _Scorer(inputs, sweep=sweep)
    queries = np.arange(0, len(inputs.query), max(1, -(-len(inputs.query) // QUERIES)))
    found = _class_measures(inputs, scorer, torch.from_numpy(queries))
    for alteration, part in inputs.altered.items():
        for name, measured in _known_items(inputs, scorer, part):
            found[name].setdefault("known_item", {})[alteration] = measured.to_dict()
    ranking = scorer.same_class.ranking
    return {
        "queries": len(queries),
        "sharpness": None if ranking.multilabel else _short(ranking.sharpness),
        "content_weight": ranking.content_weight,
        "known_items": len(inputs.items),
        "bits": [projection.bits for projection in scorer.projections],
        "rankings": found,
    }


class _SameClass:
    """Scores of the database by class: the formulas of `hadahash.ranking`, on the device."""

    def __init__(self, inputs: RankingInputs) -> None:
        rows = slice(None, None, max(1, -(-len(inputs.train) // _FITTED)))
        words = None if inputs.codewords is None else inputs.codewords.cpu().numpy()
        train, targets = (own[rows].cpu().numpy() for own in (inputs.train, inputs.train_targets))
        self.ranking = fit_ranking(train, targets, words, multilabel=inputs.multilabel)
        self._stored = self._probabilities(inputs.database, binary=True)

    def __call__(self, part: Encoded, *, classifier: bool) -> Tensor:
        """float64 (q, n): P(same class), or <v, s> without codewords."""
        by_class = self.ranking.codewords is not None and not self.ranking.multilabel
        own = part.classes if classifier and by_class else None
        own = self._probabilities(part.real) if own is None else own.double()
        if self.ranking.codewords is None or not self.ranking.multilabel:
            return own @ self._stored.T
        return -torch.expm1(-shares_none(own, self._stored))

    def _probabilities(self, values: Tensor, *, binary: bool = False) -> Tensor:
        """float64 (n, C) of codes or real-valued queries; without codewords the values."""
        ranking = self.ranking
        if ranking.codewords is None:
            return values.double()
        words = torch.from_numpy(ranking.codewords).to(values.device).double()
        agreement = values.double() @ words.T / words.shape[1]
        if not ranking.multilabel:
            return (ranking.sharpness * agreement).softmax(1)
        kind = "" if binary else "query_"
        slope, offset = (
            torch.from_numpy(getattr(ranking, f"{kind}{name}")).to(values.device)
            for name in ("slope", "offset")
        )
        return torch.sigmoid(agreement * slope + offset)


class _Scorer:
    """Scores of the whole database under every ranking, for a block of queries."""

    def __init__(self, inputs: ContentInputs, *, sweep: bool) -> None:
        self.projections = inputs.projections if sweep else inputs.projections[-1:]
        self.sweep = sweep
        self.same_class = _SameClass(inputs.ranking)
        self._signs = _signs(inputs.database.real)
        self._units = _units(inputs.database.features)
        self._content = [_signs(p.values(inputs.database.features)) for p in self.projections]

    def scores(self, part: Encoded) -> Iterator[tuple[str, Tensor]]:
        """Name and scores float64 (q, n) of each ranking, on the grid."""
        distance = _distance(part.real, self._signs)
        yield "hamming", -distance
        same = self.same_class(part, classifier=True)
        yield "class", _on_grid(same)
        if self.sweep:
            yield "class-real", _on_grid(self.same_class(part, classifier=False))
            yield "features", _on_grid(_units(part.features) @ self._units.T)
        for projection, stored in zip(self.projections, self._content, strict=True):
            z, own = projection.values(part.features), projection.bits
            if self.sweep:
                apart = _distance(z, stored)
                yield f"content-{own}", -apart
                for weight in CLASS_WEIGHTS:
                    yield f"weighted-{own}-{weight}", -(weight * distance + apart)
            match, evidence = z.double() @ stored.double().T / own, self._evidence(same, own)
            yield f"content-real-{own}", _on_grid(match)
            for factor in WEIGHTS if self.sweep else (self.same_class.ranking.content_weight,):
                yield f"photo-{own}-{factor:g}", _on_grid(evidence + factor * match)

    def _evidence(self, same: Tensor, content_bits: int) -> Tensor:
        """The class term of `photo`."""
        ranking = self.same_class.ranking
        if ranking.codewords is None:
            return ranking.class_weight * same / content_bits
        return same.clamp(min=1e-300).log()

    def nearest(self, part: Encoded, count: int) -> Tensor:
        """Rows of the images that are nearest by features."""
        return (_units(part.features) @ self._units.T).topk(count, dim=1).indices


def _class_measures(
    inputs: ContentInputs, scorer: _Scorer, queries: Tensor
) -> dict[str, dict[str, Any]]:
    """Means over queries of all class measures, by ranking."""
    rows = queries.to(inputs.query.real.device)
    count = min(10, len(inputs.database))
    parts: dict[str, list[Tensor]] = {}
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        own = inputs.query[block]
        targets = inputs.ranking.query_targets[block].double()
        relevant = (targets @ inputs.ranking.database_targets.double().T > 0).double()
        nearest = scorer.nearest(own, count)
        for name, scores in scorer.scores(own):
            parts.setdefault(name, []).append(_measured(scores, relevant, nearest))
    names = ("map", "map_1000", "precision_1", "precision_10", "first_ten_tie", "agreement_10")
    return {
        name: dict(zip(names, map(_short, torch.cat(own).mean(0).tolist()), strict=True))
        for name, own in parts.items()
    }


def _measured(scores: Tensor, relevant: Tensor, nearest: Tensor) -> Tensor:
    """float64 (q, 6): the class measures of each query."""
    ordered, order = scores.neg().sort(dim=1)
    group = torch.zeros_like(order)
    group[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).cumsum(1)
    empty = scores.new_zeros(len(scores), int(group.max()) + 1)
    n = empty.scatter_add(1, group, torch.ones_like(scores))
    r = empty.scatter_add(1, group, relevant.gather(1, order))
    count = nearest.shape[1]
    above, equal = _places(ordered, -scores.gather(1, nearest))
    columns = (
        _precision(n, r),
        _precision_at_depth(n, r, _DEPTH),
        _hits(n, r, 1),
        _hits(n, r, count) / count,
        (n[:, 0] >= count).double(),
        ((count - above) / equal).clamp(0, 1).mean(1),
    )
    return torch.stack(columns, dim=1)


def _precision(n: Tensor, r: Tensor) -> Tensor:
    """Average precision (q,) of the whole ranking."""
    before, hits_before = n.cumsum(1) - n, r.cumsum(1) - r
    harmonic = torch.zeros(int(n.sum(1).max()) + 1, dtype=torch.float64, device=n.device)
    harmonic[1:] = (1 / torch.arange(1, len(harmonic), device=n.device).double()).cumsum(0)
    difference = harmonic[(before + n).long()] - harmonic[before.long()]
    sums: Tensor = metrics.tie_sum(n, r, before, hits_before, n, difference)
    return sums.sum(1) / r.sum(1).clamp(min=1)


def _precision_at_depth(n: Tensor, r: Tensor, depth: int) -> Tensor:
    """Average precision (q,), divided by the relevant items found within `depth`."""
    if n[0].sum() <= depth:
        return _precision(n, r)
    n, r = n[:, :depth], r[:, :depth]  # a tie has at least one item
    before = n.cumsum(1) - n
    kept = (before + n <= depth).double()
    found = _precision(n * kept, r * kept)
    cut = torch.nonzero(((before < depth) & (before + n > depth)).any(1))[:, 0]
    if len(cut):  # the number found is random: the exact expectation, on the CPU
        tables = (own[cut].long().cpu().numpy() for own in (n, r))
        exact = metrics.average_precision(*tables, depth=depth)
        found[cut] = torch.from_numpy(np.nan_to_num(exact)).to(found.device)
    return found


def _hits(n: Tensor, r: Tensor, k: int) -> Tensor:
    """Expected number of relevant items among the first `k`."""
    n, r = n[:, :k], r[:, :k]
    taken = torch.minimum((k - (n.cumsum(1) - n)).clamp(min=0), n)
    return (taken * r / n.clamp(min=1)).sum(1)


def _places(ordered: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Number of entries below each value, and equal to it, in ascending rows."""
    below = torch.searchsorted(ordered, values.contiguous())
    return below, torch.searchsorted(ordered, values.contiguous(), right=True) - below


def _known_items(
    inputs: ContentInputs, scorer: _Scorer, part: Encoded
) -> Iterator[tuple[str, KnownItem]]:
    """Search the altered copies, under every ranking."""
    for name, scores in scorer.scores(part):
        own = scores.gather(1, inputs.items[:, None])
        levels, level = torch.unique(own[:, 0], return_inverse=True)
        reached = torch.bucketize(scores.flatten(), levels, right=True)
        pairs = reached.bincount(minlength=len(levels) + 1)[1:]
        counts = ((scores > own).sum(1), (scores == own).sum(1), level, pairs)
        yield name, measure_places(*(own.cpu().numpy() for own in counts))


def _signs(values: Tensor) -> Tensor:
    return torch.where(values >= 0, 1.0, -1.0)


def _units(features: Tensor) -> Tensor:
    return torch.nn.functional.normalize(features.float()).double()


def _distance(values: Tensor, signs: Tensor) -> Tensor:
    """Hamming distances float64 (q, n) of the signs of values and stored signs."""
    return ((signs.shape[1] - _signs(values) @ signs.T) / 2).round().double()


def _on_grid(scores: Tensor) -> Tensor:
    return (scores * _GRID).round() / _GRID


def _short(value: float) -> float:
    return round(value, _DIGITS)
