"""Texts that users and clients send: ids, labels, names, JSON bodies, values of queries."""

from __future__ import annotations

import json
from functools import partial

import pytest
from fuzzing import EDITS, edited, examples, refused_or_read
from hypothesis import given
from hypothesis import strategies as st

from hadahash.index import parse_id, parse_labels
from hadahash.serve.core import names
from hadahash.settings import parse_assignments

TEXTS = st.text(st.characters(), max_size=40) | st.from_regex(r"-?[0-9]{1,40}", fullmatch=True)


def test_ids_and_labels(trials):
    tried = trials("fuzzing", "parser: ids, labels and names")

    @examples(300, 20_000)
    @given(TEXTS)
    def harness(text):
        for id_type in (int, str, None):
            refused_or_read(partial(parse_id, text, id_type))
            names.parse_id(text, id_type)
        assert parse_labels([text])[0] == text
        assert names.from_json(str(names.to_json(text))) == text
        json.dumps(names.to_json(text)).encode()
        tried.count("survived")

    harness()


def test_assignments(trials):
    tried = trials("fuzzing", "parser: --set name=value")

    @examples(200, 10_000)
    @given(st.lists(TEXTS | st.just("epochs=3") | st.just("x=[1, {"), max_size=3))
    def harness(texts):
        refused_or_read(lambda: parse_assignments(texts))
        tried.count("survived")

    harness()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "id",
        "code",
        "k",
        "labels",
        "label",
        "radius",
        "rank",
        "weight",
        "values",
        "vector",
        "content",
        "path",
        "x",
        "key",
        "ids",
        "threshold",
        "model",
    ]
)
BODIES = st.dictionaries(KEYS, VALUES, max_size=5)


@pytest.fixture(scope="module")
def client(fitted, tmp_path_factory):
    pytest.importorskip("fastapi")
    from serving import WRITE, ToyCollection, opened
    from toys import make_toy, write_folder

    from hadahash import Index

    root = tmp_path_factory.mktemp("fuzzed")
    photos = write_folder(root / "photos", *make_toy(8, seed=2))
    fitted.save(root / "run")
    codes = fitted.encode(photos)
    Index.build(codes, paths=codes.ids.tolist()).save(root / "photos.index")
    with opened(ToyCollection(root), decode_workers=1, write_token=WRITE) as client:
        yield client


def check(answer):
    assert answer.status_code < 500, answer.text
    answer.json()


ROUTES = ["/v1/search", "/v1/items", "/v1/encode", "/v1/duplicates/dismiss"]


def test_json_bodies(trials, client):
    """All of them reach the parsers: the client has the write token."""
    from serving import WRITE

    tried = trials("fuzzing", "parser: JSON bodies of the service")
    kind = {"Content-Type": "application/json", "Authorization": f"Bearer {WRITE}"}

    @examples(80, 6000)
    @given(BODIES, st.sampled_from(ROUTES))
    def harness(body, route):
        content = json.dumps(body).encode()  # NaN and Infinity included
        answer = client.post(route, content=content, headers=kind)
        check(answer)
        assert answer.status_code not in (401, 403, 404) or "unknown" in answer.text
        tried.count("survived")

    harness()


def test_bodies_that_are_not_json(trials, client):
    tried = trials("fuzzing", "parser: bytes instead of JSON and forms")
    form = (
        b'--B\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\nabc\r\n'
        b'--B\r\nContent-Disposition: form-data; name="k"\r\n\r\n5\r\n--B--\r\n'
    )

    @examples(60, 6000)
    @given(st.booleans(), EDITS)
    def harness(as_form, edits):
        content = edited(form if as_form else b'{"id": "red/002.png", "k": 5}', edits)
        kind = "multipart/form-data; boundary=B" if as_form else "application/json"
        check(client.post("/v1/search", content=content, headers={"Content-Type": kind}))
        tried.count("survived")

    harness()


def test_queries_in_addresses(trials, client):
    tried = trials("fuzzing", "parser: parameters of addresses")
    routes = st.sampled_from(
        ["/v1/search", "/v1/map", "/v1/stats", "/v1/thumbnails/x", "/v1/images/"]
    )

    @examples(50, 4000)
    @given(routes, st.dictionaries(KEYS, TEXTS, max_size=4))
    def harness(route, parameters):
        parameters = {key: text.encode("utf-8", "replace") for key, text in parameters.items()}
        answer = client.request("POST" if "search" in route else "GET", route, params=parameters)
        assert answer.status_code < 500, answer.text
        tried.count("survived")

    harness()
