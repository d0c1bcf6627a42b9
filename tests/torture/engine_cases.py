"""Adversarial collections of codes, and the answers of an exhaustive search in numpy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hadahash.codes import Codes, pack, unpack
from hadahash.queries import Queries
from hadahash.ranking import Ranking

BITS = [8, 9, 13, 16, 20, 31, 32, 33, 40, 63, 64, 65, 100, 128, 130, 192, 260, 512]
KINDS = ["equal", "two", "clusters", "random", "one bit apart", "extremes"]
LABELS: list[list[Any]] = [["cat", 7], ["dog"], [], [7], ["cat", "dog"]]


@dataclass(frozen=True)
class Collection:
    """Codes with labels, the ids that will be removed, and queries."""

    codes: Codes
    labels: list[list[Any]]
    removed: np.ndarray
    queries: Codes
    values: Queries
    ranking: Ranking | None

    def left(self) -> tuple[Codes, list[list[Any]]]:
        """Codes and labels without the removed items, in the order of ids."""
        gone = set(self.removed.tolist())
        kept = [row for row, each in enumerate(self.codes.ids.tolist()) if each not in gone]
        kept.sort(key=lambda row: self.codes.ids[row])
        return self.codes[kept], [self.labels[row] for row in kept]


def signs_of(rng: np.random.Generator, kind: str, n: int, bits: int) -> np.ndarray:
    """+-1 (n, bits)."""
    if kind == "equal":
        return np.repeat(rng.choice([-1, 1], (1, bits)), n, axis=0)
    if kind == "two":
        return rng.choice([-1, 1], (2, bits))[rng.integers(0, 2, n)]
    if kind == "extremes":
        return np.where(rng.random((n, 1)) < 0.5, 1, -1) * np.ones((n, bits), int)
    if kind == "random":
        return rng.choice([-1, 1], (n, bits))
    signs = rng.choice([-1, 1], (6, bits))[rng.integers(0, 6, n)]
    if kind == "clusters":
        return signs * rng.choice([1, -1], (n, bits), p=[0.95, 0.05])
    signs = np.repeat(signs[:1], n, axis=0)
    if n:
        signs[np.arange(n), rng.integers(0, bits, n)] *= -1
    return signs


def collection(rng: np.random.Generator, *, most: int = 1500, queries: int = 20) -> Collection:
    bits, kind = int(rng.choice(BITS)), str(rng.choice(KINDS))
    n = int(rng.choice([0, 1, 2, 63, 64, 65, rng.integers(1, most)]))
    content_bits = int(rng.choice([0, 0, 5, 40, 64, 130]))
    signs = signs_of(rng, kind, n, bits)
    near = signs[rng.integers(0, n, queries)] if n else rng.choice([-1, 1], (queries, bits))
    near = near * rng.choice([1, -1], near.shape, p=[0.9, 0.1])
    asked = np.where(rng.random((queries, 1)) < 0.6, near, rng.choice([-1, 1], near.shape))
    numbers = rng.choice(4 * n + 1, n, replace=False) - n
    ids = np.array([f"é{each}" for each in numbers]) if rng.random() < 0.4 else numbers
    parts = [_content(rng, count, content_bits) for count in (n, queries)]
    codes = Codes(_packed(signs), bits, ids, (), parts[0], content_bits)
    query_codes = Codes(_packed(asked), bits, None, (), parts[1], content_bits)
    if rng.random() < 0.25 and bits > 16:  # prefixes
        shorter = int(rng.integers(8, bits))
        codes, query_codes = codes.prefix(shorter), query_codes.prefix(shorter)
    removed = codes.ids[rng.random(n) < rng.choice([0, 0.3, 0.9])]
    labels = [LABELS[each] for each in rng.integers(0, len(LABELS), n)]
    values = Queries(
        unpack(query_codes.packed, codes.bits) * rng.uniform(0.05, 1, (queries, codes.bits)),
        content=rng.standard_normal((queries, content_bits)) if content_bits else None,
    )
    return Collection(codes, labels, removed, query_codes, values, _ranking(rng, codes.bits))


def _packed(signs: np.ndarray) -> np.ndarray:
    return pack(signs) if len(signs) else np.zeros((0, -(-signs.shape[1] // 8)), np.uint8)


def _content(rng: np.random.Generator, count: int, bits: int) -> np.ndarray | None:
    if not bits:
        return None
    few = pack(rng.choice([-1, 1], (3, bits)))  # equal content occurs
    return few[rng.integers(0, 3, count)]


def _ranking(rng: np.random.Generator, bits: int) -> Ranking | None:
    words, draw = rng.choice([-1, 1], (4, bits)), rng.random()
    if draw < 0.2:
        return None
    if draw < 0.4:
        return Ranking(class_weight=int(rng.integers(1, 4)))
    if draw < 0.7:
        return Ranking(words, sharpness=float(rng.uniform(4, 16)))
    slope, offset = rng.uniform(2, 9, 4), rng.uniform(-3, 0, 4)
    return Ranking(words, multilabel=True, slope=slope, offset=offset)


def random_options(rng: np.random.Generator, codes: Codes) -> dict[str, Any]:
    """Options of a search, often hostile."""
    options: dict[str, Any] = {"k": int(rng.choice([0, 1, 2, 7, 64, len(codes), 10**6]))}
    if rng.random() < 0.3:
        options["radius"] = int(rng.choice([0, 1, codes.bits // 4, codes.bits // 2, 10**6]))
    if rng.random() < 0.3:
        options["labels"] = [["cat"], ["dog", 7], ["unknown"], []][rng.integers(0, 4)]
    if rng.random() < 0.3 and len(codes):
        chosen = rng.choice(codes.ids, int(rng.integers(0, min(len(codes), 40) + 1)))
        options["ids"] = chosen.tolist()
    return options


def expected(
    codes: Codes, labels: list[list[Any]], queries: Codes, options: dict[str, Any]
) -> list[list[tuple[int, Any]]]:
    """(distance, id) of every query, by comparing all bits of all items; codes in order of ids."""
    if not len(codes):
        return [[] for _ in range(len(queries))]
    mine, theirs = (unpack(x.packed, x.bits).astype(np.int32) for x in (queries, codes))
    distances = (codes.bits - mine @ theirs.T) // 2
    allowed = np.ones(len(codes), bool)
    if "labels" in options:
        wanted = set(options["labels"])
        allowed &= [not wanted.isdisjoint(each) for each in labels]
    if "ids" in options:
        chosen = set(options["ids"])
        allowed &= [each in chosen for each in codes.ids.tolist()]
    rows, ids = np.flatnonzero(allowed), codes.ids.tolist()
    found = []
    for row in distances[:, rows]:
        order = rows[np.argsort(row, kind="stable")]
        near = np.sort(row, kind="stable")
        pairs = zip(near.tolist(), (ids[each] for each in order), strict=True)
        inside = [pair for pair in pairs if pair[0] <= options.get("radius", codes.bits)]
        found.append(inside[: options["k"]])
    return found


def masked(codes: Codes, mask: np.ndarray) -> Codes:
    return replace(codes, packed=codes.packed ^ mask)


def permuted_bits(codes: Codes, order: np.ndarray) -> Codes:
    if not len(codes):
        return codes
    return replace(codes, packed=pack(unpack(codes.packed, codes.bits)[:, order]))
