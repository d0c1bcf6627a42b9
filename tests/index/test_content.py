"""Content bits and rankings in an index: stored, changed, saved and opened with the items."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from brute_force import LOCAL_ENGINES

from hadahash.codes import Codes, pack
from hadahash.errors import StorageError, UsageError
from hadahash.index import Index
from hadahash.ranking import Ranking


@pytest.fixture
def two_part(make, rng):
    """two_part(n, content_bits, ids): codes with random content bits."""

    def codes(n, content_bits=40, ids=None, bits=64):
        content = pack(rng.standard_normal((n, content_bits)))
        return replace(make(n, bits, ids), content=content, content_bits=content_bits)

    return codes


def same_items(index, expected):
    """Whether the index holds exactly these codes, by id."""
    expected = expected[np.argsort(expected.ids, kind="stable")]
    for stored in (index.codes(), index.codes(expected.ids)):
        assert stored.ids.tolist() == expected.ids.tolist()
        assert np.array_equal(stored.packed, expected.packed)
        assert np.array_equal(stored.content, expected.content)
        assert (stored.bits, stored.content_bits) == (expected.bits, expected.content_bits)


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
@pytest.mark.parametrize("content_bits", [1, 8, 33, 64, 128, 512])
def test_content_is_kept(two_part, engine, content_bits, tmp_path, rng):
    codes = two_part(300, content_bits, rng.permutation(300))
    index = Index.build(codes, engine=engine)
    assert index.content_bits == content_bits
    same_items(index, codes)
    index.save(tmp_path / "i")
    opened = Index.open(tmp_path / "i")
    opened.verify()
    assert opened.content_bits == content_bits
    same_items(opened, codes)


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_content_follows_every_change(two_part, engine, tmp_path, rng):
    codes = two_part(200)
    index, known = Index.build(codes, engine=engine), codes
    for turn in range(12):
        new = two_part(30, ids=1000 + 30 * turn + np.arange(30))
        index.add(new)
        changed = two_part(10, ids=rng.choice(known.ids, 10, replace=False))
        index.update(changed)
        removed = rng.choice(np.setdiff1d(known.ids, changed.ids), 25, replace=False)
        index.remove(removed)
        kept = known[~np.isin(known.ids, np.concatenate([changed.ids, removed]))]
        known = Codes.concatenate([kept, changed, new])
        same_items(index, known)
        if turn % 3 == 2:
            index.save(tmp_path / "i")
            index = Index.open(tmp_path / "i")
    assert len(list((tmp_path / "i").glob("*.content"))) == len(
        list((tmp_path / "i").glob("*.codes"))
    )


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_other_content_is_refused(two_part, engine):
    codes, more = two_part(20), two_part(2, ids=[50, 51])
    index = Index.build(codes, engine=engine)
    plain = Index.build(codes.class_codes(), engine=engine)
    calls = [
        (lambda: index.add(more.class_codes()), "with 40 content bits, got codes with none"),
        (lambda: index.update(two_part(2, 48, [50, 51])), "40 content bits, got codes with 48"),
        (lambda: plain.add(more), "This index has no content bits, got codes with 40"),
        (lambda: plain.update(more), r"Use codes.class_codes\(\)"),
        (lambda: Index.build(two_part(2, 520), engine=engine), "content_bits must be <= 512"),
    ]
    for call, message in calls:
        with pytest.raises(UsageError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert len(index) == len(plain) == 20


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_an_empty_index_knows_its_content_bits(two_part, engine, tmp_path):
    Index.build(two_part(0), engine=engine).save(tmp_path / "i")
    index = Index.open(tmp_path / "i")
    assert index.content_bits == 40 and index.codes().content_bits == 40
    with pytest.raises(UsageError, match="40 content bits"):
        index.add(two_part(3).class_codes())
    index.add(two_part(3))
    assert len(index) == 3


def rankings():
    rng = np.random.default_rng(1)
    words = rng.choice([-1, 1], (5, 64))
    yield Ranking()
    yield Ranking(words, tuple("abcde"), sharpness=7.25, content_fingerprint="f", class_weight=3)
    fitted = {name: rng.standard_normal(5) for name in ("slope", "offset", "query_slope")}
    yield Ranking(words, multilabel=True, **fitted, query_offset=np.zeros(5), content_weight=0.1)


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
@pytest.mark.parametrize("ranking", list(rankings()))
def test_the_ranking_is_kept(two_part, engine, ranking, tmp_path):
    codes = two_part(100)
    index = Index.build(codes, engine=engine, ranking=ranking)
    index.save(tmp_path / "i")
    opened = Index.open(tmp_path / "i")
    assert opened.ranking.to_dict() == ranking.to_dict()
    found = [each.search(codes[:5], 7, rank="photo") for each in (index, opened)]
    assert np.array_equal(found[0].ids, found[1].ids)
    assert np.array_equal(found[0].scores, found[1].scores)
    if ranking.codewords is not None:
        assert np.array_equal(opened.codewords, pack(ranking.codewords))


def test_a_ranking_for_other_codes_is_refused(two_part):
    ranking = Ranking(np.ones((2, 32)))
    with pytest.raises(UsageError, match="codewords of the ranking have 32 bits, the codes 64"):
        Index.build(two_part(5), ranking=ranking)
    with pytest.raises(UsageError, match="ranking must be a Ranking, got dict"):
        Index.build(two_part(5), ranking=ranking.to_dict())


def test_a_refused_folder_is_left_as_it_was(make, tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(StorageError, match="other files"):
        Index.build(make(3)).save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]
