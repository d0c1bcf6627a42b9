"""A service over an index of embeddings: search by id, by code and by a posted vector."""

from __future__ import annotations

import io

import httpx
import numpy as np
import pytest
from PIL import Image
from serving import service_in_thread

from hadahash.data.sources import open_embeddings
from hadahash.photos.vectors import build_vector_index
from hadahash.serve.core.collection import resolve_config


class _Collection:
    def __init__(self, config):
        self.config = config


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    vectors = np.random.default_rng(0).normal(size=(300, 24)).astype(np.float32) + 2
    np.save(folder / "x.npy", vectors)
    build_vector_index(folder / "x.index", open_embeddings(folder / "x.npy"), device="cpu")
    config = resolve_config(folder / "x.index", None, ())
    with service_in_thread(_Collection(config), device="cpu") as (address, service):
        yield address, service, vectors


def test_a_posted_vector_finds_its_nearest_items(served):
    address, service, vectors = served
    answer = httpx.post(f"{address}/v1/search", json={"vector": vectors[7].tolist(), "k": 5})
    assert answer.status_code == 200, answer.text
    collection = service.handle.current
    expected = collection.index.search(collection.model.queries(vectors[7:8]), 5, rank="class")
    assert [hit["id"] for hit in answer.json()["hits"]] == expected.ids[0].tolist()
    assert answer.json()["hits"][0]["id"] == 7
    again = httpx.post(
        f"{address}/v1/search", json={"values": answer.json()["query"]["values"], "k": 5}
    )
    assert again.json()["hits"] == answer.json()["hits"]
    by_id = httpx.post(f"{address}/v1/search", json={"id": 7, "k": 5})
    assert by_id.status_code == 200 and len(by_id.json()["hits"]) == 5


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ({"vector": [1.0, 2.0]}, "vector must have 24 numbers, got 2."),
        ({"vector": []}, "vector"),
        ({"vector": [1e300] * 24}, "vector"),
        ({"vector": ["x"] * 24}, "vector"),
        ({"vector": [0.0] * 24, "id": 1}, "exactly one"),
    ],
)
def test_a_bad_vector_is_refused(served, sent, text):
    answer = httpx.post(f"{served[0]}/v1/search", json=sent)
    assert answer.status_code == 422 and text in answer.text


def test_an_image_is_refused(served):
    content = io.BytesIO()
    Image.new("RGB", (8, 8)).save(content, "PNG")
    sent = {"image": ("x.png", content.getvalue(), "image/png")}
    answer = httpx.post(f"{served[0]}/v1/search", files=sent)
    assert answer.status_code == 422 and "takes no images" in answer.text


@pytest.mark.parametrize("opens", [True, False])
def test_the_page_is_opened_in_a_browser_on_request(monkeypatch, capsys, opens):
    from hadahash.cli.serve import _announce

    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    _announce(opens, "Open http://127.0.0.1:8000/ in a browser. Press Ctrl-C to stop.")
    _announce(opens, "Images are served from photos")
    assert opened == (["http://127.0.0.1:8000/"] if opens else [])
    assert capsys.readouterr().out.count("\n") == 2
