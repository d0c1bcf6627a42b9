"""The projection to content bits that an index keeps, and content bits of other projections."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from brute_force import LOCAL_ENGINES

from hadahash.codes import Codes, pack
from hadahash.errors import StorageError, UsageError
from hadahash.index import Index
from hadahash.index.revisions import NEXT, PREVIOUS, open_revision, opened_generation, switch
from hadahash.index.storage.manifest import checksum
from hadahash.photos import check_model, find_by_features
from hadahash.projections import Projection
from hadahash.queries import Queries
from hadahash.ranking import Ranking

BITS, CONTENT, FEATURES = 16, 24, 30


def projection_of(seed: int) -> Projection:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((FEATURES, CONTENT))
    return Projection(rng.standard_normal(FEATURES), matrix, rng.uniform(0.5, 2, CONTENT))


def features_of(n: int, seed: int = 0):
    return np.random.default_rng(100 + seed).standard_normal((n, FEATURES)).astype(np.float32)


def codes_of(projection: Projection, n: int, first: int = 0) -> Codes:
    packed = pack(np.random.default_rng(first).standard_normal((n, BITS)))
    content = pack(projection.values(features_of(n, first)))
    ids = np.arange(first, first + n)
    return Codes(packed, BITS, ids, (), content, CONTENT, projection.fingerprint)


def model_of(projection: Projection, **more):
    """What an index asks of a model."""
    words = np.random.default_rng(0).choice([-1, 1], (4, BITS))
    ranking = Ranking(words, content_fingerprint=projection.fingerprint)
    facts = {
        "id": "m" * 64,
        "bits": BITS,
        "content_bits": CONTENT,
        "folder": None,
        "ranking": ranking,
        "fingerprint": projection.fingerprint,
        "content_projection": projection,
        "made": lambda recorded: True,
    }
    return SimpleNamespace(**{**facts, **more})


def build(seed: int = 1, n: int = 50, **options) -> Index:
    projection = projection_of(seed)
    return Index.build(codes_of(projection, n), model=model_of(projection), **options)


def same(one: Projection | None, other: Projection) -> bool:
    parts = ("mean", "matrix", "scale")
    return one is not None and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in parts
    )


def files_in(folder) -> list[str]:
    return sorted(path.name for path in folder.glob("*.projection"))


# ---- kept ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_the_projection_is_kept(tmp_path, engine):
    index, projection = build(engine=engine), projection_of(1)
    assert same(index.content_projection, projection)
    index.save(tmp_path / "i")
    opened = Index.open(tmp_path / "i")
    opened.verify()
    assert same(opened.content_projection, projection)
    assert opened.content_fingerprint == projection.fingerprint
    assert opened.codes().content_fingerprint == projection.fingerprint
    assert opened.codes([3]).content_fingerprint == projection.fingerprint


def test_the_file_is_written_once_and_copied(tmp_path):
    index = build()
    index.save(tmp_path / "i")
    (name,) = files_in(tmp_path / "i")
    for first in (100, 200, 300):
        index.add(codes_of(projection_of(1), 40, first))
        index.remove([first])
        index.save(tmp_path / "i")
        index = Index.open(tmp_path / "i")
        assert files_in(tmp_path / "i") == [name]
    index.save(tmp_path / "copy")
    for path in tmp_path.joinpath("i").iterdir():
        path.unlink()
    copied = Index.open(tmp_path / "copy")
    copied.verify()
    assert same(copied.content_projection, projection_of(1)) and len(copied) == len(index)


def test_another_model_replaces_it_and_a_rollback_brings_it_back(tmp_path):
    index, folder = build(1), tmp_path / "i"
    index.save(folder)
    build(2).save(folder, name=NEXT)
    assert len(files_in(folder)) == 2
    assert switch(folder, opened_generation(index))
    current, previous = Index.open(folder), open_revision(folder, PREVIOUS)
    assert same(current.content_projection, projection_of(2))
    assert same(previous.content_projection, projection_of(1))
    previous.verify()
    (folder / PREVIOUS).unlink()
    current.add(codes_of(projection_of(2), 5, 500))
    current.save(folder)
    assert len(files_in(folder)) == 1


def test_an_index_of_another_folder_may_be_replaced(tmp_path):
    build(1).save(tmp_path / "i")
    build(2).save(tmp_path / "i")
    assert len(files_in(tmp_path / "i")) == 1
    assert same(Index.open(tmp_path / "i").content_projection, projection_of(2))


def test_without_a_model_there_is_the_fingerprint_only(tmp_path):
    projection = projection_of(1)
    index = Index.build(codes_of(projection, 20))
    index.save(tmp_path / "i")
    opened = Index.open(tmp_path / "i")
    assert opened.content_projection is None and files_in(tmp_path / "i") == []
    assert opened.content_fingerprint == projection.fingerprint
    plain = Index.build(codes_of(projection, 20).class_codes())
    assert plain.content_fingerprint is None and plain.ranking is None


def test_an_index_of_an_earlier_version_opens(tmp_path):
    build().save(tmp_path / "i")
    path = tmp_path / "i" / "index.json"
    content = json.loads(path.read_text())
    del content["projection"]
    path.write_text(json.dumps({**content, "crc32": checksum(content)}))
    opened = Index.open(tmp_path / "i")
    opened.verify()
    assert opened.content_projection is None and opened.content_fingerprint is not None
    opened.save(tmp_path / "i")
    assert files_in(tmp_path / "i") == []


def test_damage_is_found(tmp_path):
    build().save(tmp_path / "i")
    (name,) = files_in(tmp_path / "i")
    path = tmp_path / "i" / name
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    opened = Index.open(tmp_path / "i")
    assert len(opened.search(opened.codes([1]), 3, rank="photo").ids[0]) == 3
    for use in (opened.verify, lambda: opened.content_projection):
        with pytest.raises(StorageError, match=r"\.projection is damaged \(its checksum"):
            use()
    path.write_bytes(content[:-4])
    with pytest.raises(StorageError, match=r"\.projection is damaged \(it has"):
        Index.open(tmp_path / "i")
    path.unlink()
    with pytest.raises(StorageError, match=r"\.projection is missing"):
        Index.open(tmp_path / "i")


@pytest.mark.parametrize("wrong", [{"bytes": 400}, {"name": "000001-0.codes"}, {"crc32": -1}])
def test_a_wrong_entry_is_refused(tmp_path, wrong):
    build().save(tmp_path / "i")
    path = tmp_path / "i" / "index.json"
    content = json.loads(path.read_text())
    content["projection"] |= wrong
    path.write_text(json.dumps({**content, "crc32": checksum(content)}))
    with pytest.raises(StorageError, match=r"index\.json is damaged"):
        Index.open(tmp_path / "i")


# ---- other projections ---------------------------------------------------------------------------


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_content_bits_of_another_projection_are_refused(engine):
    index, other = build(engine=engine), codes_of(projection_of(2), 5, 100)
    queries = Queries.from_codes(other)
    assert queries.codes().content_fingerprint == other.content_fingerprint
    calls = [
        lambda: index.add(other),
        lambda: index.update(other),
        lambda: index.search(other, 3),
        lambda: index.search(queries, 3, rank="photo"),
        lambda: index.neighbors(queries[1:], 3, rank="class"),
        lambda: Index.build(other, model=model_of(projection_of(1)), engine=engine),
        lambda: Index.build(other, ranking=index.ranking, engine=engine),
        lambda: check_model(index, model_of(projection_of(2)), "i"),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=r"made by the projection .* Encode with") as caught:
            call()
        assert "\n" not in str(caught.value)
    assert len(index) == 50
    index.add(replace(other, content_fingerprint=None))  # not known
    index.search(other.class_codes(), 3)
    check_model(index, model_of(projection_of(1)), "i")


def test_codes_remember_their_projection(tmp_path):
    codes, other = codes_of(projection_of(1), 9), codes_of(projection_of(2), 9, 50)
    made_by = projection_of(1).fingerprint
    kept = [codes[2:4], codes.prefix(8), Codes.concatenate([codes, codes[1:]])]
    for suffix in ("npz", "parquet"):
        codes.save(tmp_path / f"c.{suffix}")
        kept.append(Codes.load(tmp_path / f"c.{suffix}"))
    assert [each.content_fingerprint for each in kept] == [made_by] * 5
    assert codes.class_codes().content_fingerprint is None
    unknown = replace(other, content_fingerprint=None)
    assert Codes.concatenate([codes, unknown]).content_fingerprint is None
    with pytest.raises(UsageError, match="content bits of two projections"):
        Codes.concatenate([codes, other])


# ---- search by features --------------------------------------------------------------------------


@pytest.mark.parametrize("multilabel", [False, True])
def test_features_find_the_nearest_content(tmp_path, multilabel):
    projection = projection_of(1)
    words = np.random.default_rng(0).choice([-1, 1], (4, BITS))
    fitted = {"slope": np.full(4, 3.0), "offset": np.arange(4.0)} if multilabel else {}
    ranking = Ranking(words, multilabel=multilabel, **fitted)
    index = Index.build(codes_of(projection, 80), model=model_of(projection, ranking=ranking))
    index.save(tmp_path / "i")
    opened, features = Index.open(tmp_path / "i"), features_of(1, 7)
    signs = 2.0 * np.unpackbits(index.codes().content, axis=1, count=CONTENT) - 1
    scores = signs @ projection.values(features)[0].astype(np.float64)
    hits = find_by_features(opened, features[0], k=20)
    found = [scores[hit.id] for hit in hits]  # items with equal content bits may change places
    assert found == np.sort(scores)[::-1][:20].tolist()
    similar = [hit.similarity for hit in hits]
    assert similar == sorted(similar, reverse=True) and 0 <= similar[-1] < similar[0] <= 1
    for wrong in (features[0, :5], features_of(2)):
        with pytest.raises(UsageError, match="features must be 30 numbers, got"):
            find_by_features(opened, wrong)
    with pytest.raises(UsageError, match="keeps no projection"):
        find_by_features(Index.build(codes_of(projection, 3)), features)
