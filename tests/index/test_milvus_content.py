"""Content bits and rankings on milvus-lite, beyond the contract."""

from __future__ import annotations

import numpy as np
import pytest
from toys import one_line

from hadahash.codes import Codes, hamming, pack
from hadahash.errors import StorageError, UsageError
from hadahash.index import Index
from hadahash.index._contract_ranked import check_ranked
from hadahash.index.engines import milvus, milvus_layout
from hadahash.index.engines.milvus_layout import Layout
from hadahash.queries import Queries
from hadahash.ranking import Ranking


@pytest.fixture
def ranking():
    return Ranking(np.random.default_rng(2).choice([-1, 1], (6, 64)), class_weight=3)


def two_part(rng, n, ranking, content_bits=40, ids=None):
    words = ranking.codewords[rng.integers(0, len(ranking.codewords), n)]
    signs = words * rng.choice([1, -1], words.shape, p=[0.97, 0.03])
    content = rng.standard_normal((n, content_bits))
    return Codes(pack(signs), 64, ids, (), pack(content), content_bits)


@pytest.mark.parametrize("bits", [8, 12, 64])
@pytest.mark.parametrize("content_bits", [0, 5, 128])
@pytest.mark.parametrize("weight", [1, 2, 5])
@pytest.mark.parametrize("text", [False, True])
def test_the_fields_of_an_item(rng, bits, content_bits, weight, text):
    values = rng.standard_normal((7, bits)), rng.standard_normal((7, content_bits or 1))
    codes = Codes(pack(values[0]), bits, np.arange(7) * 2)
    if content_bits:
        codes = Codes(codes.packed, bits, codes.ids, (), pack(values[1]), content_bits)
    layout = Layout(bits, content_bits, weight, text)
    rows = layout.encode(codes)
    assert all(sorted(row) == sorted(layout.fields) for row in rows)
    assert all(
        len(row[name]) == -(-size // 8) for row in rows for name, size in layout.vectors.items()
    )
    for form in (lambda value: value, lambda value: [value]):  # servers return either
        stored = [
            {name: form(value) if name in layout.vectors else value for name, value in row.items()}
            for row in rows
        ]
        again = layout.decode(stored, codes.ids)
        assert (
            np.array_equal(again.packed, codes.packed) and again.ids.tolist() == codes.ids.tolist()
        )
        assert again.content_bits == content_bits
        assert content_bits == 0 or np.array_equal(again.content, codes.content)


def test_the_second_field_has_the_weighted_distance(rng, ranking):
    codes = two_part(rng, 60, ranking)
    index = Index.build(codes, engine="milvus", ranking=ranking)
    query = codes[:1].repeated(3)
    expected = 3 * hamming(codes.packed[:1], codes.packed)[0]
    expected = expected + hamming(codes.content[:1], codes.content)[0]
    answer = index.server.call(
        "search", data=[query.packed[0].tobytes()], anns_field="both", limit=60
    )
    found = {hit["id"]: round(hit["distance"]) for hit in answer[0]}
    assert found == dict(enumerate(expected.tolist()))
    index.drop()


def test_most_items_are_not_fetched(rng, ranking, monkeypatch):
    codes = two_part(rng, 1500, ranking)
    index = Index.build(codes, engine="milvus", ranking=ranking)
    fetched = []
    read = milvus.MilvusIndex.codes
    monkeypatch.setattr(
        milvus.MilvusIndex,
        "codes",
        lambda self, ids=None: fetched.append(len(ids)) or read(self, ids),
    )
    words = ranking.codewords[:2].astype(np.float32)
    check_ranked(index, codes, Queries(0.9 * words), 10, rank="class")
    assert sum(fetched) < len(codes)  # of two queries
    index.drop()


def test_an_existing_collection_must_have_the_same_content(rng, ranking):
    codes = two_part(rng, 20, ranking)
    index = Index.build(codes, engine="milvus", ranking=ranking, collection="with_content")
    more = two_part(rng, 5, ranking, ids=np.arange(50, 55))
    again = Index.build(more, engine="milvus", collection="with_content")  # keeps its weight
    assert len(index) == 25 and again._layout.class_weight == 3
    for other, text in (
        (more.class_codes(), "40 content bits, got none"),
        (two_part(rng, 5, ranking, 48), "40 content bits, got 48"),
    ):
        with pytest.raises(UsageError, match=text) as caught:
            Index.build(other, engine="milvus", collection="with_content")
        assert one_line(caught.value)
    index.drop()
    plain = Index.build(codes.class_codes(), engine="milvus", collection="without_content")
    with pytest.raises(UsageError, match="no content bits, got 40"):
        Index.build(codes, engine="milvus", collection="without_content")
    plain.drop()


def test_a_server_with_one_vector_field_has_content_as_text(rng, ranking, monkeypatch):
    call = milvus_layout.MilvusServer.call

    def one_field(self, method, *arguments, **options):
        if method == "create_collection" and "both" in str(options["schema"]):
            raise StorageError("multiple vector fields are not supported")
        return call(self, method, *arguments, **options)

    monkeypatch.setattr(milvus_layout.MilvusServer, "call", one_field)
    codes = two_part(rng, 90, ranking)
    index = Index.build(codes, engine="milvus", ranking=ranking, collection="as_text")
    assert index._layout.fields == ["code", "content"]
    queries = Queries(rng.uniform(-1, 1, (3, 64)), content=rng.standard_normal((3, 40)))
    for rank in ("class", "photo"):
        check_ranked(index, codes, queries, 7, rank=rank)
    opened = Index.build(codes[:0], engine="milvus", ranking=ranking, collection="as_text")
    assert np.array_equal(opened.codes().content, codes.content)
    index.drop()
