"""All measures of a trained model that are computed from codes and labels, on the CPU."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes
from ..evaluation import metrics
from ..evaluation.counting import count
from ..evaluation.metrics import Counts, Reals

DEPTHS = (1000, 5000)
_RANKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
_TRAIN_QUERIES = 2000  # number of training images used as queries
_DIGITS = 5

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Coded:
    """Codes of a whole data set with its labels and parts.

    Attributes:
        bits: Code length.
        codes: Packed codes (n, bytes) by threshold: "zero", "mean", "median".
        labels: Class numbers (n,), or 0 and 1 (n, C).
        query: Rows of the queries.
        database: Rows of the database.
        train: Rows of the training images.
        second_database: Rows of another database, or None.
        prefixes: Shorter code lengths that are measured too.
        depth: Depth of the main measure; None: the whole ranking.
        rankings: Tables of ties and hits of other rankings, see `rankings.Ranked`.
        trial: Whether the queries are held-out training images.
    """

    bits: int
    codes: Mapping[str, NDArray[np.uint8]]
    labels: NDArray[Any]
    query: Rows
    database: Rows
    train: Rows
    second_database: Rows | None = None
    prefixes: tuple[int, ...] = ()
    depth: int | None = None
    rankings: Mapping[str, tuple[Counts, Counts]] = field(default_factory=dict)
    trial: bool = False

    def part(self, rows: Rows, *, threshold: str = "zero", bits: int | None = None) -> Codes:
        """Select codes.

        Args:
            rows: Rows of the images.
            threshold: "zero", "mean" or "median".
            bits: Keep only the first bits.

        Returns:
            The codes.
        """
        packed = self.codes[threshold][rows]
        if bits is None or bits == self.bits:
            return Codes(packed, self.bits)
        plain = np.unpackbits(packed, axis=1, count=bits)
        return Codes(np.packbits(plain, axis=1), bits)


def measure(coded: Coded) -> dict[str, Any]:
    """Measure codes in every way that a result file stores.

    Args:
        coded: The codes of all images, the labels, and the parts of the split.

    Returns:
        JSON values by name. All mean average precisions are exact expectations over ties. A trial
        has few measures, and `validation_map` instead of `map`.
    """
    if coded.trial:
        return _measure_trial(coded)
    total, relevant = _counts(coded, coded.database)
    ap = _average_precision(total, relevant, coded.depth)
    whole = _average_precision(total, relevant, None)
    found = {
        "map": _rounded(ap.mean()),
        "depth": coded.depth,
        "denominator": "found",
        "maps": _maps(total, relevant),
        "ap": _encoded(ap),
        "ap_all": None if coded.depth is None else _encoded(whole),
        "per_class": _per_class(ap, coded.labels[coded.query]),
        "queries_without_relevant": int((relevant.sum(1) == 0).sum()),
        "precision_at": _precision_at(total, relevant),
        **_curve(total, relevant),
        **_radius_two(total, relevant),
        "first_ten_tie": _rounded(_first_ten_tie(total).mean()),
        **code_statistics(coded.part(coded.database)),
        "train_map": training_map(coded.part(coded.train), coded.labels[coded.train]),
    }
    found["thresholds"] = {
        name: _maps(*_counts(coded, coded.database, threshold=name)) for name in coded.codes
    }
    found["prefixes"] = _prefixes(coded)
    if coded.second_database is not None:
        found["second_database"] = {
            "size": len(coded.second_database),
            **_maps(*_counts(coded, coded.second_database)),
        }
    return found | _rankings(coded)


def _measure_trial(coded: Coded) -> dict[str, Any]:
    total, relevant = _counts(coded, coded.database)
    return {
        "validation_map": _rounded(_average_precision(total, relevant, coded.depth).mean()),
        "depth": coded.depth,
        "denominator": "found",
        "maps": _maps(total, relevant),
        "train_map": training_map(coded.part(coded.train), coded.labels[coded.train]),
        "distinct_codes": len(np.unique(coded.part(coded.database).packed, axis=0)),
        **({"prefixes": _prefixes(coded)} if coded.prefixes else {}),
        **_rankings(coded),
    }


def _prefixes(coded: Coded) -> dict[str, dict[str, float]]:
    """mAP of the first bits of the codes, by their number."""
    return {str(bits): _maps(*_counts(coded, coded.database, bits=bits)) for bits in coded.prefixes}


def _rankings(coded: Coded) -> dict[str, Any]:
    """mAP of the first 1,000 results of other rankings; nothing without any."""
    found = {}
    for name, (ties, hits) in coded.rankings.items():
        table = ties.astype(np.int64), hits.astype(np.int64)
        found[name] = _rounded(_average_precision(*table, 1000).mean())
    return {"rankings": found} if found else {}


def training_map(codes: Codes, labels: NDArray[Any]) -> float:
    """mAP with training images as queries and database; each query is excluded from its results.

    Args:
        codes: Codes of the training images.
        labels: Their labels, class numbers (n,) or 0 and 1 (n, C).

    Returns:
        The mean over at most 2,000 evenly spaced queries.
    """
    rows = np.arange(0, len(codes), max(1, len(codes) // _TRAIN_QUERIES))
    total, relevant = _count((codes[rows], codes), (labels[rows], labels))
    total[:, 0] -= 1
    relevant[:, 0] -= labels[rows].any(axis=1) if labels.ndim == 2 else 1
    return _rounded(_average_precision(total, relevant, None).mean())


def decode_ap(text: str) -> NDArray[np.float16]:
    """Decode the average precisions of all queries.

    Args:
        text: The entry `ap` or `ap_all` of a record.

    Returns:
        float16 (queries,).
    """
    return np.frombuffer(base64.b64decode(text), "<f2")


def _encoded(ap: Reals) -> str:
    return base64.b64encode(ap.astype("<f2").tobytes()).decode()


def _counts(
    coded: Coded, database: Rows, *, threshold: str = "zero", bits: int | None = None
) -> tuple[Counts, Counts]:
    sides = (
        coded.part(coded.query, threshold=threshold, bits=bits),
        coded.part(database, threshold=threshold, bits=bits),
    )
    return _count(sides, (coded.labels[coded.query], coded.labels[database]))


def _count(
    sides: tuple[Codes, Codes], labels: tuple[NDArray[Any], NDArray[Any]]
) -> tuple[Counts, Counts]:
    query, database = (
        own.astype(bool) if own.ndim == 2 else own.astype(np.int64) for own in labels
    )
    return count(sides[0], query, sides[1], database)


def _average_precision(
    total: Counts, relevant: Counts, depth: int | None, denominator: metrics.Denominator = "found"
) -> Reals:
    ap = metrics.average_precision(total, relevant, depth=depth, denominator=denominator)
    return np.where(np.isnan(ap), 0.0, ap)


def _maps(total: Counts, relevant: Counts) -> dict[str, float]:
    """mAP of the whole ranking, and at each depth with both denominators."""
    found = {"all": _rounded(_average_precision(total, relevant, None).mean())}
    size = int(total[0].sum())
    for depth in (depth for depth in DEPTHS if depth < size):
        for name in ("found", "possible"):
            ap = _average_precision(total, relevant, depth, name)
            found[f"{depth}_{name}"] = _rounded(ap.mean())
    return found


def _precision_at(total: Counts, relevant: Counts) -> dict[str, float]:
    size = int(total[0].sum())
    return {str(k): _rounded(metrics.precision_at(total, relevant, k)) for k in _RANKS if k <= size}


def _curve(total: Counts, relevant: Counts) -> dict[str, Any]:
    curve = metrics.precision_recall(total, relevant)
    step = -(-len(curve.radius) // 101)
    return {
        "precision_recall": {
            "radius": curve.radius[::step].tolist(),
            "precision": np.round(curve.precision[::step], _DIGITS).tolist(),
            "recall": np.round(curve.recall[::step], _DIGITS).tolist(),
        }
    }


def _radius_two(total: Counts, relevant: Counts) -> dict[str, float]:
    return {
        "precision_radius_2": _rounded(metrics.precision_within(total, relevant, 2)),
        "nonempty_radius_2": _rounded(metrics.nonempty_within(total, 2)),
    }


def _first_ten_tie(total: Counts) -> NDArray[np.bool_]:
    """Whether the first ten results of each query have the same distance."""
    nearest = (total > 0).argmax(axis=1)
    return np.asarray(total[np.arange(len(total)), nearest] >= 10)


def _per_class(ap: Reals, labels: NDArray[Any]) -> dict[str, float]:
    members = labels if labels.ndim == 2 else labels[:, None] == np.arange(labels.max() + 1)
    sizes = members.sum(0)
    return {str(c): _rounded(ap @ members[:, c] / sizes[c]) for c in np.flatnonzero(sizes)}


def code_statistics(codes: Codes) -> dict[str, Any]:
    """Number of distinct codes, fraction of ones per bit, and absolute correlation of bits.

    Args:
        codes: Codes of a database.

    Returns:
        `distinct_codes`, `bit_balance` and `bit_correlation`, as stored in results.
    """
    bits = np.unpackbits(codes.packed, axis=1, count=codes.bits).astype(np.float32)
    centered = bits - bits.mean(0)
    spread = np.sqrt((centered**2).mean(0))
    scaled = centered / np.where(spread > 0, spread, 1)
    pairs = np.abs(scaled.T @ scaled / len(bits))[np.triu_indices(codes.bits, 1)]
    return {
        "distinct_codes": len(np.unique(codes.packed, axis=0)),
        "bit_balance": np.round(bits.mean(0, dtype=np.float64), 4).tolist(),
        "bit_correlation": {"mean": _rounded(pairs.mean()), "largest": _rounded(pairs.max())},
    }


def _rounded(value: Any) -> float:
    return round(float(value), _DIGITS)
