"""Duplicates: results that can be asked again, on content bits, without dismissed groups."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from brute_force import LOCAL_ENGINES
from test_duplicates import components

from hadahash.codes import Codes, hamming, pack
from hadahash.errors import NewerFileError, StorageError, UsageError
from hadahash.index import Dismissed, DuplicateGroup, Duplicates, Index, find_duplicates
from hadahash.index import duplicate_links as links_module
from hadahash.index import duplicates as module
from hadahash.index.dismissed import group_key
from hadahash.native.tables import rows_of


@pytest.fixture
def photos(make, rng):
    """Codes of few classes, with content bits that come in nearly equal copies."""
    content = np.repeat(rng.standard_normal((150, 64)), 3, axis=0)
    flips = rng.choice([1, -1], content.shape, p=[0.93, 0.07])
    codes = make(450, 64, flips=0.01)
    return replace(codes, content=pack(content * flips), content_bits=64)


def as_pairs(found):
    return [(list(group.ids), group.widest) for group in found]


def expected_groups(codes, threshold):
    """Groups with the greatest distance of two members, over all pairs."""
    groups = []
    for ids in components(codes, threshold):
        packed = codes.packed[np.isin(codes.ids, ids)]
        groups.append((ids, int(hamming(packed, packed).max())))
    return groups


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_content_bits_are_compared_if_there_are_any(photos, engine):
    index = Index.build(photos, engine=engine)
    for threshold in (0, 6, 12):
        found = find_duplicates(index, threshold)
        assert as_pairs(found) == expected_groups(photos.content_codes(), threshold)
        assert (found.part, found.bits, found.threshold) == ("content", 64, threshold)
    plain = find_duplicates(Index.build(photos.class_codes(), engine=engine), 2)
    assert as_pairs(plain) == expected_groups(photos.class_codes(), 2) and plain.part == "class"


@pytest.mark.parametrize("neighbors", [1, 3, 64])
@pytest.mark.parametrize("flips", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("kept", [10, 1 << 21])
def test_a_smaller_threshold_needs_no_search(make, monkeypatch, neighbors, flips, kept):
    monkeypatch.setattr(links_module, "_NEIGHBORS_PER_QUERY", neighbors)
    monkeypatch.setattr(links_module, "_QUERIES_PER_STEP", 60)
    monkeypatch.setattr(links_module, "_LINKS_PER_STEP", kept)
    codes = make(250, flips=flips)
    found = find_duplicates(Index.build(codes), 24)
    monkeypatch.setattr(links_module, "nearest", None)  # a search would fail
    for threshold in (24, 20, 13, 7, 3, 2, 1, 0):
        again = found.rethreshold(threshold)
        assert as_pairs(again) == expected_groups(codes, threshold)
        assert again.threshold == threshold
        found = again if threshold % 2 else found


def test_the_links_are_a_forest(photos):
    found = find_duplicates(Index.build(photos), 30)
    assert len(found._links) == sum(len(group) - 1 for group in found) == found.surplus
    first, second, distance = found._links.T
    packed = found._codes.packed
    expected = [hamming(packed[[a]], packed[[b]])[0, 0] for a, b in zip(first, second, strict=True)]
    assert distance.tolist() == expected


def test_a_greater_threshold_is_refused(photos):
    found = find_duplicates(Index.build(photos), 5)
    with pytest.raises(UsageError, match="threshold must be <= 5, that of the search, got 6"):
        found.rethreshold(6)
    with pytest.raises(UsageError, match="threshold must be an integer >= 0, got -1"):
        found.rethreshold(-1)
    with pytest.raises(UsageError, match=r"threshold must be an integer >= 0, got 1\.5"):
        find_duplicates(Index.build(photos), 1.5)


def test_chains_are_reported_by_their_width():
    signs = np.ones((4, 16))
    for row in range(4):
        signs[row, : 3 * row] = -1  # neighbors differ in 3 bits, the ends in 9
    found = find_duplicates(Index.build(Codes.from_signs(signs, ["a", "b", "c", "d"])), 3)
    assert list(found) == [DuplicateGroup(("a", "b", "c", "d"), 9)]
    assert found.widest(5) == list(found) and len(found[0]) == 4 and found[:1] == (found[0],)


def test_the_width_of_large_groups(rng, monkeypatch):
    monkeypatch.setattr(module, "_EXACT_SIZE", 10)
    packed = rng.integers(0, 256, (300, 8), np.uint8)
    true = int(hamming(packed, packed).max())
    widest, exact = module._widest(packed)
    assert widest <= true and (not exact or widest == true)
    for sweeps in (300, 3):
        monkeypatch.setattr(module, "_SWEEPS", sweeps)
        far = np.concatenate([np.zeros((1, 8), np.uint8), np.full((1, 8), 255, np.uint8)])
        few = np.packbits(rng.random((200, 64)) < 0.05, axis=1)
        assert module._widest(np.concatenate([far, few])) == (64, True)


def test_dense_groups_of_content_take_seconds(rng):
    content = rng.integers(0, 256, (40, 16), np.uint8)[rng.integers(0, 40, 20_000)]
    content ^= np.packbits(rng.random((20_000, 128), np.float32) < 0.03, axis=1)
    codes = Codes(content[:, :8].copy(), 64, content=content, content_bits=128)
    found = find_duplicates(Index.build(codes), 12)
    assert len(found) == 40 and found.surplus > 19_000


def test_equal_files_are_joined_whatever_their_bits(make):
    codes = Codes.from_signs(np.random.default_rng(0).choice([-1, 1], (30, 64)))
    index = Index.build(codes)
    assert find_duplicates(index, 2).ids == []
    found = find_duplicates(index, 2, same=[[3, 9, 20], [1, 2], [7]])
    assert found.ids == [[3, 9, 20], [1, 2]] and found.rethreshold(0).ids == found.ids
    assert found[1].widest == hamming(codes.packed[[1]], codes.packed[[2]])[0, 0]
    with pytest.raises(UsageError, match="does not have 99"):
        find_duplicates(index, 2, same=[[3, 99]])


def test_dismissed_groups_are_left_out(photos):
    index = Index.build(photos)
    found = find_duplicates(index, 12)
    gone, cut = found[0], found[1]
    dismissed = Dismissed([gone.ids, cut.ids[:-1]])
    rest = [ids for ids in found.ids if ids != list(gone.ids)]
    assert find_duplicates(index, 12, dismissed=dismissed).ids == rest
    assert found.without(dismissed).ids == rest  # the cut one has a further item
    for group in found.without(dismissed).rethreshold(4):
        assert not set(group.ids) <= set(gone.ids) and not set(group.ids) <= set(cut.ids[:-1])


def test_without_forms_groups_again_only_if_it_has_to(photos, monkeypatch):
    found = find_duplicates(Index.build(photos), 12)
    dismissed = Dismissed([found[0].ids])
    expected = list(found.without(Dismissed([found[0].ids, found[3].ids])))
    assert found.surplus == sum(len(group) - 1 for group in found)
    forms = []
    form = Duplicates._form_groups
    monkeypatch.setattr(Duplicates, "_form_groups", lambda self: forms.append(1) or form(self))
    less = found.without(dismissed)
    assert less.without(dismissed) is less
    dismissed = Dismissed([found[0].ids, found[3].ids])
    less = less.without(dismissed)
    assert forms == [] and list(less) == expected and less[0] is found[1]
    assert (
        less.surplus
        == sum(len(group) - 1 for group in less)
        == found.surplus - sum(len(found[number]) - 1 for number in (0, 3))
    )
    assert list(less.rethreshold(4)) == list(found.rethreshold(4).without(dismissed))
    again = less.without(Dismissed([found[0].ids]))  # one is listed again
    assert list(again) == list(found)[1:] and again.surplus > less.surplus


def test_a_group_that_is_dismissed_after_the_search_is_left_out(photos):
    dismissed = Dismissed()
    found = find_duplicates(Index.build(photos), 12, dismissed=dismissed)
    first, rest = found[0], list(found)[1:]
    dismissed.add(first.ids)
    less = found.without(dismissed)
    assert list(less) == rest and less.without(dismissed) is less
    dismissed.add(rest[0].ids)
    assert list(less.without(dismissed)) == rest[1:]


def test_groups_are_found_by_keys_that_are_computed_once(photos, monkeypatch):
    found = find_duplicates(Index.build(photos), 12)
    hashed = []
    real = module.group_key
    monkeypatch.setattr(module, "group_key", lambda ids: hashed.append(1) or real(ids))
    assert [found.find_key(real(group.ids)) for group in found] == list(found)
    assert [group.key for group in found] == [real(group.ids) for group in found]
    less = found.without(Dismissed([found[1].ids]))
    assert less.find_key(found[1].key) is None and less.find_key("0" * 64) is None
    assert less.find_key(found[2].key) == found[2]
    assert len(hashed) == len(found)
    assert less.without(Dismissed()).find_key(found[1].key) == found[1]


def test_dismissed_groups_are_known_by_their_keys():
    dismissed = Dismissed([["b", "a"], [3, 1]])
    assert dismissed.has_key(group_key(["a", "b"])) and not dismissed.has_key(group_key(["a", "c"]))
    dismissed.add(["a", "c"])
    assert dismissed.has_key(group_key(["a", "c"])) and dismissed.has_key(group_key([1, 3]))


@pytest.mark.parametrize("width", [1, 3, 4, 8, 13, 24])
def test_distinct_codes_are_those_of_numpy(rng, width):
    packed = rng.integers(0, 4, (500, width), np.uint8)[rng.integers(0, 500, 1500)]
    for each in (packed, packed[:1], packed[:0]):
        _, first, member = np.unique(each, axis=0, return_index=True, return_inverse=True)
        ours, own = module._distinct(rows_of(each))
        assert ours.tolist() == first.tolist() and own.tolist() == first[member.ravel()].tolist()


def test_dismissed_groups_are_saved(tmp_path):
    path = tmp_path / "dismissed.json"
    assert len(Dismissed.load(path)) == 0
    dismissed = Dismissed([["a", "b"], ["b", "c", "d"]])
    dismissed.add(["d", "c"])  # known already
    dismissed.save(path)
    loaded = Dismissed.load(path)
    assert list(loaded) == list(dismissed) and len(loaded) == 2
    assert loaded.covers(["b", "d"]) and not loaded.covers(["a", "c"]) and not loaded.covers([])
    Dismissed([[3, 1]]).save(path)
    assert Dismissed.load(path).covers([1, 3])
    with pytest.raises(UsageError, match=r"needs two or more ids, got \['a'\]"):
        Dismissed([["a", "a"]])


def test_groups_that_several_processes_dismiss_at_once_are_all_kept(tmp_path):
    path = tmp_path / "dismissed.json"
    code = """if True:
        import sys
        from hadahash.index import Dismissed
        for number in range(20):
            Dismissed.append(sys.argv[1], [f"{sys.argv[2]}{number}", "x"])
    """
    processes = [subprocess.Popen([sys.executable, "-c", code, path, name]) for name in "ab"]
    assert [each.wait() for each in processes] == [0, 0]
    assert len(Dismissed.load(path)) == 40


def test_damaged_lists_of_dismissed_groups(tmp_path):
    path = tmp_path / "dismissed.json"
    groups = '["a"]', "[1.5, 2]", '"ab"', "null"
    texts = ["[]", "{}", "{", '{"format": 1}']
    for text in texts + [f'{{"format": 1, "groups": [{group}]}}' for group in groups]:
        path.write_text(text)
        with pytest.raises(StorageError, match=r"dismissed\.json") as caught:
            Dismissed.load(path)
        assert "\n" not in str(caught.value)
    path.write_text('{"format": 2}')
    with pytest.raises(NewerFileError, match="later version"):
        Dismissed.load(path)


def test_results_as_json(photos):
    found = find_duplicates(Index.build(photos), 12)
    stored = json.loads(json.dumps(found.to_dict()))
    again = Duplicates.from_dict(stored, Dismissed([found[0].ids]))
    assert list(again) == list(found.without(Dismissed([found[0].ids])))
    assert list(again.rethreshold(3).without(Dismissed())) == list(found.rethreshold(3))
    for changes in (
        {"ids": [1]},
        {"links": [[0, 10**6, 1]]},
        {"links": [[0, 1, 2**70]]},
        {"codes": ["zz"]},
        {"bits": 7},
    ):
        with pytest.raises(UsageError, match="no stored duplicates"):
            Duplicates.from_dict(stored | changes)
    with pytest.raises(UsageError, match="no stored duplicates"):
        Duplicates.from_dict([])
    empty = find_duplicates(Index.build(photos[:0]), 3)
    assert len(Duplicates.from_dict(empty.to_dict())) == len(empty) == 0
