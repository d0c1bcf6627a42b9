"""Random changes of an index whose whole content follows from {id: version}."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from trials import Lost

from hadahash.codes import Codes
from hadahash.index import Index
from hadahash.ranking import Ranking

BITS, CONTENT_BITS = 64, 40
State = dict[int, int]  # id -> version


class Step(NamedTuple):
    """A change that is followed by `save`."""

    kind: str  # build, put or remove
    ids: tuple[int, ...]
    version: int = 0


def codes_of(state: State) -> Codes:
    ids = np.array(sorted(state), np.int64)
    versions = np.array([state[each] for each in ids.tolist()], np.uint64)
    mixed = (ids.astype(np.uint64) << np.uint64(32) | versions) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    packed = mixed[:, None].view(np.uint8).reshape(-1, 8)
    return Codes(packed, BITS, ids, (), packed[:, ::-1][:, :5].copy(), CONTENT_BITS)


def build(state: State, engine: str) -> Index:
    codes = codes_of(state)
    ranking = Ranking(np.where(np.eye(4, BITS), 1, -1))
    return Index.build(codes, *described(codes, state), engine=engine, ranking=ranking)


def described(codes: Codes, state: State) -> tuple[list[int], list[str]]:
    ids = codes.ids.tolist()
    return [state[each] for each in ids], [f"{state[each]}/{each}" for each in ids]


def random_step(
    rng: np.random.Generator, state: State, version: int, ids: range, *, builds: bool = True
) -> Step:
    """A small or large change of these ids, which may cause a compaction, or a new index."""
    own = [each for each in ids if each in state]
    draw = rng.random()
    if builds and draw < 0.15:
        size = int(rng.integers(1, len(ids)))
        return Step("build", tuple(rng.choice(ids, size, replace=False).tolist()), version)
    if own and draw < 0.45:
        size = int(rng.integers(1, len(own) + 1)) if draw < 0.3 else min(3, len(own))
        return Step("remove", tuple(rng.choice(own, size, replace=False).tolist()))
    size = int(rng.integers(1, len(ids))) if draw < 0.7 else 3
    return Step("put", tuple(rng.choice(ids, size, replace=False).tolist()), version)


def after(state: State, step: Step) -> State:
    if step.kind == "remove":
        return {each: version for each, version in state.items() if each not in set(step.ids)}
    kept = {} if step.kind == "build" else state
    return kept | dict.fromkeys(step.ids, step.version)


def perform(index: Index, step: Step, folder: Path) -> Index:
    """Make the change and save it; the index that is then current."""
    if step.kind == "build":
        index = build(after({}, step), index.engine)
    elif step.kind == "remove":
        ids = np.array(step.ids)
        index.remove(ids[index.has(ids)])  # it may be repeated
    else:
        new = dict.fromkeys(step.ids, step.version)
        codes = codes_of(new)
        index.update(codes, *described(codes, new))
    index.save(folder)
    return index


def read_state(folder: Path) -> State:
    """Open the index, check that every answer fits every item, and return its state."""
    index = Index.open(folder)
    index.verify()
    items = index.get(index.ids)
    state = {int(item.id): int(item.labels[0]) for item in items}
    assert [item.path for item in items] == [f"{state[item.id]}/{item.id}" for item in items]
    expected, stored = codes_of(state), index.codes()
    assert np.array_equal(stored.ids, expected.ids), "ids"
    assert np.array_equal(stored.packed, expected.packed), "codes"
    assert np.array_equal(stored.content, expected.content), "content bits"
    counts: dict[int, int] = {}
    for version in state.values():
        counts[version] = counts.get(version, 0) + 1
    assert index.label_counts() == counts, "label counts"
    if state:
        queries = expected[:: max(1, len(expected) // 3)]
        for rank in ("hamming", "photo"):
            hits = index.search(queries, 2, rank=rank)
            assert hits.ids[:, 0].tolist() == queries.ids.tolist(), f"answers by {rank}"
        nearest = index.search(queries, 1, labels=[state[int(queries.ids[0])]])
        assert nearest.ids[0, 0] == queries.ids[0] and nearest.distances[0, 0] == 0
    return state


def check_state(folder: Path, acknowledged: State, possible: Iterable[State] = ()) -> State:
    """The folder holds what was acknowledged, or one of the states after it."""
    found = read_state(folder)
    allowed = [acknowledged, *possible]
    if found not in allowed:
        missing = [
            each
            for each in acknowledged
            if found.get(each) not in [state.get(each) for state in allowed]
        ]
        kind = Lost if missing else AssertionError
        raise kind(f"{len(found)} items, {len(missing)} of those acknowledged are not there")
    return found
