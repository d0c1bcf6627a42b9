"""The service with an index on Milvus."""

from __future__ import annotations

import shutil

import pytest
from serving import WRITE, ToyCollection, opened

from hadahash import Index

pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")


def test_milvus_gives_the_same_results_as_a_local_index(client, toy_collection, tmp_path):
    root, exact = tmp_path / "own", toy_collection.index
    shutil.copytree(toy_collection.root, root, symlinks=True)
    shutil.rmtree(root / "photos.index")
    items = exact.get(exact.ids)
    index = Index.build(
        exact.codes(),
        [item.labels for item in items],
        [item.path for item in items],
        engine="milvus",
        uri=str(tmp_path / "milvus.db"),
        collection="photos",
    )
    index.save(root / "photos.index")
    auth = {"Authorization": f"Bearer {WRITE}"}
    with opened(ToyCollection(root), write_token=WRITE) as on_milvus:
        for query in (
            {"id": "red/002.png", "k": 30},
            {"code": "abcd", "radius": 7, "k": 48},
            {"code": "0000", "label": ["blue"]},
        ):
            one, other = (
                each.post("/v1/search", json=query).json() for each in (client, on_milvus)
            )
            assert one["hits"] == other["hits"] and one["exact"] and other["exact"]
        assert on_milvus.get("/v1/stats").json()["engine"] == "milvus"
        assert on_milvus.get("/v1/map").json() == client.get("/v1/map").json()
        assert on_milvus.get("/v1/thumbnails/red/002.png").status_code == 200
        assert (
            on_milvus.post(
                "/v1/items", json={"id": "new", "code": "abcd"}, headers=auth
            ).status_code
            == 201
        )
        hit = on_milvus.post("/v1/search", json={"id": "new", "k": 1}).json()["hits"][0]
        assert (hit["id"], hit["distance"]) == ("new", 0)
        assert on_milvus.delete("/v1/items/new", headers=auth).status_code == 204
        assert on_milvus.get("/v1/stats").json()["items"] == 48
        index.remove(["red/002.png"])  # by another program
        assert (
            on_milvus.post("/v1/search", json={"code": "0000", "k": 48}).json()["hits"][-1]["id"]
            != "red/002.png"
        )
        assert on_milvus.post("/v1/search", json={"id": "red/002.png"}).status_code == 404
