"""Numbers of items per label: they are not counted again after each change."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hadahash.codes import Codes
from hadahash.index import Index, segments
from hadahash.index.label_counts import LabelCounts
from hadahash.index.storage import folder as folders

LARGE = 6000


def codes_of(ids):
    rng = np.random.default_rng(len(ids))
    return Codes(rng.integers(0, 256, (len(ids), 8), dtype=np.uint8), 64, np.asarray(ids))


def expected_counts(labels):
    """A slow reference: the counts of all items, by id."""
    counts = Counter(label for each in labels.values() for label in set(each))
    return dict(counts)


@pytest.fixture
def counted(monkeypatch):
    """The numbers of items that were counted in one pass."""
    sizes, real = [], segments.count_labels
    monkeypatch.setattr(
        segments,
        "count_labels",
        lambda sets, numbers: (sizes.append(len(numbers)), real(sets, numbers))[1],
    )
    return sizes


def test_a_large_segment_with_many_label_sets_is_counted_once(tmp_path, counted, monkeypatch):
    labels = {n: [f"label {n % 3000}", "all"] for n in range(LARGE)}
    Index.build(codes_of(range(LARGE)), list(labels.values())).save(tmp_path)
    counted.clear()
    per_label, real = [], LabelCounts.per_label.func
    monkeypatch.setattr(
        LabelCounts.per_label, "func", lambda each: (per_label.append(each), real(each))[1]
    )
    index = Index.open(tmp_path)
    for step in range(8):
        index.add(codes_of([LARGE + step]), [[f"new {step}", "all"]])
        labels[LARGE + step] = [f"new {step}", "all"]
        index.remove([step])
        del labels[step]
        index.save(tmp_path)
        assert index.has_label([f"new {step}"]) and index.has_label(["none", "label 0"])
        assert not index.has_label(["none"]) and not index.has_label([])
        index = index.reopened(tmp_path) if step % 3 == 2 else index
        assert index.label_counts() == expected_counts(labels)
    assert sum(size > LARGE // 2 for size in counted) == 1
    assert sum(len(each.sets) > 1000 for each in per_label) == 1
    assert not index.has_label(["label 3000"]) and Index.open(tmp_path).has_label(["label 7"])


def test_segments_with_few_label_sets_are_not_counted_when_they_are_opened(tmp_path, counted):
    Index.build(codes_of(range(LARGE)), np.arange(LARGE) % 1000).save(tmp_path)
    counted.clear()
    index = Index.open(tmp_path)
    index.remove([0, 1000, 5])
    assert index.has_label([0]) and index.label_counts()[0] == 4 and index.label_counts()[5] == 5
    index.save(tmp_path)
    assert Index.open(tmp_path).label_counts() == index.label_counts()
    assert not counted


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("most", [2, 1024])
def test_counts_equal_those_of_all_items_after_random_changes(tmp_path, monkeypatch, seed, most):
    monkeypatch.setattr(folders, "MAX_LABEL_SETS", most)
    rng = np.random.default_rng(seed)
    index, labels = Index.build(codes_of(range(0))), {}
    for _ in range(40):
        ids = np.unique(rng.integers(0, 300, rng.integers(1, 60)))
        if rng.random() < 0.6:
            new = [[*rng.choice(["a", "b", "c", 7, 8], rng.integers(0, 3))] for _ in ids]
            new = [[int(each) if each in "78" else str(each) for each in row] for row in new]
            index.update(codes_of(ids), new)
            labels |= dict(zip(ids.tolist(), new, strict=True))
        elif known := [each for each in ids.tolist() if each in labels]:
            index.remove(known)
            labels = {each: own for each, own in labels.items() if each not in known}
        way = rng.integers(0, 5)
        if way < 2:
            index.save(tmp_path / "i")
            index = [index, Index.open(tmp_path / "i"), index.reopened(tmp_path / "i")][
                rng.integers(0, 3)
            ]
        if way % 2:
            expected = expected_counts(labels)
            assert index.label_counts() == expected
            for label in ("a", "b", "c", 7, 8, "7", "d"):
                assert index.has_label([label]) == (label in expected)
    assert index.label_counts() == expected_counts(labels)


def test_a_save_keeps_what_a_changed_segment_has_in_memory(tmp_path):
    index = Index.build(codes_of(range(300)), np.arange(300) % 5)
    index.remove([3])
    index.search(codes_of([0]), 5, labels=[2])
    index.search(codes_of([0]), 5)
    before = index._segments[0]
    index.save(tmp_path)
    after = index._segments[0]
    assert after.saved is not None and after is not before
    assert after._live_bitmap is before._live_bitmap
    assert after._label_bitmaps is before._label_bitmaps and 2 in next(iter(after._label_bitmaps))
