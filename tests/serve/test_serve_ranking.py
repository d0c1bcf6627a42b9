"""Rankings of the service: same kind, same photo."""

from __future__ import annotations

import numpy as np
import pytest
from serving import WRITE, opened
from test_serve_api import RED, error_of, search, upload

from hadahash import HashModel
from hadahash.queries import Queries
from hadahash.ranking import score


@pytest.fixture(scope="module")
def model(two_part_collection):
    return HashModel.load(two_part_collection.root / "run")


def expected(index, query, rank, weight=None):
    """Ids and scores of all items by the definition of the ranking, best first."""
    codes = index.codes()
    scores = score(query, codes, index.ranking, rank, weight)[0]
    return sorted(zip(-scores, codes.ids.tolist(), strict=True))


@pytest.mark.parametrize(("rank", "weight"), [("class", None), ("photo", None), ("photo", 0.3)])
def test_searches_by_id_are_ranked(two_part_client, two_part_collection, rank, weight):
    index = two_part_collection.index
    given = {"rank": rank} | ({} if weight is None else {"weight": weight})
    answer = search(two_part_client, id=RED, k=48, **given).json()
    query = Queries.from_codes(index.codes([RED]))
    weight = weight or (index.ranking.content_weight if rank == "photo" else None)
    order = expected(index, query, rank, weight)
    assert [hit["id"] for hit in answer["hits"]] == [name for _, name in order]
    np.testing.assert_allclose([-hit["score"] for hit in answer["hits"]], [s for s, _ in order])
    assert answer["rank"] == rank and answer["weight"] == weight and answer["exact"] is True


def test_the_default_puts_the_same_photo_first(two_part_client, two_part_collection):
    stats = two_part_client.get("/v1/stats").json()
    assert stats["ranks"] == ["hamming", "class", "photo"] and stats["rank"] == "photo"
    assert stats["content_bits"] == 16 and stats["weight"] > 0 and stats["same_photo"] >= 0
    answer = upload(two_part_client, two_part_collection.image(RED), k=5).json()
    assert answer["rank"] == "photo" and answer["weight"] == stats["weight"]
    assert answer["hits"][0]["content_distance"] == 0
    assert RED in [hit["id"] for hit in answer["hits"] if hit["content_distance"] == 0]


def test_hamming_is_as_ever(two_part_client, two_part_collection):
    answer = search(two_part_client, id=RED, k=48, rank="hamming").json()
    index = two_part_collection.index
    hits = index.search(index.codes([RED]), 48)
    assert [hit["id"] for hit in answer["hits"]] == hits.ids[0].tolist()
    assert answer["weight"] is None and all(hit["score"] is None for hit in answer["hits"])


def test_the_values_of_an_answer_repeat_its_search(two_part_client, two_part_collection):
    first = upload(two_part_client, two_part_collection.image(RED), k=48, weight=1.5).json()
    values = first["query"]["values"]
    again = search(two_part_client, values=values, k=48, weight=1.5).json()
    assert again["hits"] == first["hits"] and again["query"] == first["query"]
    encoded = upload(two_part_client, two_part_collection.image(RED), "/v1/encode").json()
    assert encoded["values"] == values and encoded["content"] == first["query"]["content"]


def test_searches_by_code_need_content_for_photo(two_part_client, two_part_collection):
    by_id = search(two_part_client, id=RED, k=48).json()
    query = by_id["query"]
    assert query["values"] is None
    both = search(two_part_client, code=query["code"], content=query["content"], k=48).json()
    assert both["hits"] == by_id["hits"]
    alone = search(two_part_client, code=query["code"], k=3).json()
    assert alone["rank"] == "hamming" and alone["hits"][0]["content_distance"] is None
    answer = search(two_part_client, code=query["code"], rank="photo")
    assert error_of(answer, 422) == "bad_parameters" and "content" in answer.text


@pytest.mark.parametrize(
    "parameters",
    [
        {"rank": "nearest"},
        {"weight": -1},
        {"weight": 20_000},
        {"rank": "class", "weight": 1},
        {"content": "00", "code": "0000"},
        {"values": "AAAA"},
        {"values": "AAAA", "id": RED},
    ],
)
def test_bad_parameters_are_refused(two_part_client, parameters):
    given = parameters if {"code", "values"} & set(parameters) else {"id": RED} | parameters
    assert error_of(search(two_part_client, **given), 422) == "bad_parameters"


def test_an_index_without_content_refuses_photo(client):
    assert client.get("/v1/stats").json()["ranks"] == ["hamming"]
    answer = search(client, id=RED, rank="photo")
    assert error_of(answer, 422) == "bad_parameters" and "hamming" in answer.text
    code = search(client, id=RED).json()["query"]["code"]
    assert error_of(search(client, code=code, content="0000"), 422) == "bad_parameters"


def test_new_items_have_content_bits(two_part_collection, tmp_path):
    import shutil

    from serving import ToyCollection

    shutil.copytree(two_part_collection.root, tmp_path / "own")
    auth = {"Authorization": f"Bearer {WRITE}"}
    own = ToyCollection(tmp_path / "own")
    with opened(own, write_token=WRITE) as client:
        files = {"image": ("photo.png", own.image(RED))}
        added = client.post("/v1/items", files=files, data={"id": "new"}, headers=auth).json()
        stored = search(client, id="new", k=2).json()
        assert stored["query"]["content"] == added["content"] and len(added["content"]) == 4
        body = {"id": "other", "code": added["code"]}
        assert error_of(client.post("/v1/items", json=body, headers=auth), 422) == "bad_parameters"
        body["content"] = added["content"]
        assert client.post("/v1/items", json=body, headers=auth).status_code == 201
