"""Open an index again: what is open already is shared; and samples of ids."""

from __future__ import annotations

import numpy as np
import pytest

from hadahash import Codes, Index
from hadahash.errors import StorageError


def codes(start: int, count: int, bits: int = 64) -> Codes:
    packed = np.random.default_rng(start).integers(0, 256, (count, bits // 8), dtype=np.uint8)
    return Codes(packed, bits, [f"{start + number:06d}" for number in range(count)])


@pytest.fixture
def folder(tmp_path):
    index = Index.build(codes(0, 4000), [["even", "odd"][number % 2] for number in range(4000)])
    index.save(tmp_path / "x.index")
    return tmp_path / "x.index"


def same(one: Index, other: Index) -> None:
    query = codes(9, 5)
    assert one.ids.tolist() == other.ids.tolist() and one.label_counts() == other.label_counts()
    assert (one.codes().packed == other.codes().packed).all()
    assert one.search(query, 20)[0] == other.search(query, 20)[0]


def test_segments_that_did_not_change_are_shared(folder):
    mine, writer = Index.open(folder), Index.open(folder)
    mine.search(codes(9, 1), 1)
    for change in (
        lambda: writer.add(codes(10_000, 3)),
        lambda: writer.remove(["000007", "010001"]),
        lambda: writer.remove(["000008"]),
        lambda: writer.add(codes(20_000, 3000)),  # merges all segments
    ):
        before = mine._segments[0].items
        change()
        writer.save(folder)
        mine = mine.reopened(folder)
        same(mine, Index.open(folder))
        assert (mine._segments[0].items is before) == (len(writer) < 5000)
        mine.verify()


def test_own_changes_are_kept_apart(folder):
    mine = Index.open(folder)
    mine.remove(["000001"])
    mine.add(codes(50_000, 2))
    again = mine.reopened(folder)
    assert len(again) == 4000 and len(mine) == 4001, "unsaved changes are not taken over"
    mine.save(folder)
    again = mine.reopened(folder)
    same(again, mine)
    assert again._segments[0].items is mine._segments[0].items
    again.remove(["000002"])
    again.save(folder)
    same(again, Index.open(folder))


def test_another_index_in_its_place_is_opened(folder, tmp_path):
    mine = Index.open(folder)
    Index.build(codes(70_000, 40, bits=32)).save(tmp_path / "new")
    folder.rename(tmp_path / "old")
    (tmp_path / "new").rename(folder)
    assert (mine.reopened(folder).bits, len(mine.reopened(folder)), mine.bits) == (32, 40, 64)
    (folder / "index.json").unlink()
    with pytest.raises(StorageError):
        mine.reopened(folder)


def test_a_sample_is_spread_over_all_items(folder):
    index = Index.open(folder)
    index.add(codes(10_000, 1000))
    index.remove([f"{number:06d}" for number in range(100)])
    sample = index.sample_ids(490)
    assert len(sample) == len(set(sample)) == 490 and sample.tolist() == sorted(sample)
    assert index.has(sample).all()
    new = sum(each >= "010000" for each in sample.tolist())
    assert new == 100, "each segment has its share"
    assert index.sample_ids(10_000).tolist() == index.ids.tolist()
    assert len(index.sample_ids(0)) == 0
    stored = Index.open(folder)
    assert stored.sample_ids(100)[0] == "000000" and stored._segments[0].items._ids is None


def test_items_are_fetched_one_by_one_although_all_ids_are_known(folder):
    index = Index.open(folder)
    assert len(index.ids) == 4000
    index.get(["000005"])
    assert index._segments[0].items._table is None
