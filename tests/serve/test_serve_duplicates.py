"""Duplicates over HTTP and on the page: the groups of `hadahash duplicates`."""

from __future__ import annotations

import base64
import gc
import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from serving import WRITE, opened, wait_for
from test_serve_api import error_of, search, upload

from hadahash import Index
from hadahash.index import DuplicateGroup, Item
from hadahash.index import duplicates as index_duplicates
from hadahash.photos import Catalog, PhotoDuplicates, StoredLooks
from hadahash.photos.catalog import CatalogRow, FileStat
from hadahash.serve.core import duplicates as module
from hadahash.serve.http.schema import DuplicatesAnswer

EQUAL, AGAIN = ["blue/copy.png", "red/002.png"], ["green/001.png", "green/again.bmp"]
AUTH = {"Authorization": f"Bearer {WRITE}"}


@pytest.fixture(scope="module")
def client(copies_original):
    """For tests that change nothing."""
    with opened(copies_original, decode_workers=2, write_token=WRITE) as client:
        yield client


@pytest.fixture
def own_client(copies):
    """For tests that change the index."""
    with opened(copies, decode_workers=1, write_token=WRITE) as client:
        yield client


def listed(client, **parameters):
    answer = client.get("/v1/duplicates", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids_of(answer):
    return [[item["id"] for item in group["items"]] for group in answer["groups"]]


@pytest.mark.parametrize("threshold", [None, 0, 6, 24])
def test_groups_are_those_of_the_command(client, copies_original, threshold):
    given = {} if threshold is None else {"threshold": threshold}
    answer = listed(client, limit=100, **given)
    photos = PhotoDuplicates(copies_original.root / "photos.index")
    found = photos.find(threshold)
    assert ids_of(answer) == [list(group.ids) for group in found]
    assert [group["widest"] for group in answer["groups"]] == [group.widest for group in found]
    assert [group["equal"] for group in answer["groups"]] == [*map(photos.are_equal, found)]
    assert (answer["threshold"], answer["bits"], answer["part"]) == (found.threshold, 96, "content")
    assert (answer["total"], answer["surplus"]) == (len(found), found.surplus)
    if threshold is None:
        assert answer["threshold"] == client.get("/v1/stats").json()["same_photo"] == 15


def test_files_have_names_labels_and_sizes(client, copies_original):
    answer = listed(client, threshold=0)
    (group,) = (each for each in answer["groups"] if each["items"][0]["id"] == EQUAL[0])
    assert group["equal"] and group["count"] == 2 and group["widest"] == 0
    first = group["items"][0]
    size = (copies_original.root / "photos" / EQUAL[0]).stat().st_size
    assert first == {
        "id": EQUAL[0],
        "name": "copy.png",
        "labels": ["blue"],
        "size": size,
        "has_image": True,
    }
    assert str(copies_original.root) not in json.dumps(answer), "no paths are sent"


def test_the_answer_is_that_of_its_schema(client):
    answer = client.get("/v1/duplicates", params={"threshold": 24, "limit": 100})
    parsed = DuplicatesAnswer.model_validate_json(answer.content)
    assert answer.text == parsed.model_dump_json() and parsed.groups
    assert answer.headers["content-type"] == "application/json"


def test_dismissing_by_key_hashes_each_group_once_and_forms_none_again(own_client, monkeypatch):
    groups = listed(own_client, threshold=0)["groups"]
    assert len(groups) >= 2
    hashed, formed = [], []
    key, form = index_duplicates.group_key, index_duplicates.Duplicates._form_groups
    monkeypatch.setattr(index_duplicates, "group_key", lambda ids: hashed.append(1) or key(ids))
    monkeypatch.setattr(
        index_duplicates.Duplicates, "_form_groups", lambda self: formed.append(1) or form(self)
    )
    for number, group in enumerate(groups, 1):
        sent = {"key": group["key"], "threshold": 0}
        for _ in range(2):
            answer = own_client.post("/v1/duplicates/dismiss", json=sent, headers=AUTH)
            assert answer.json() == {"dismissed": number}
    assert hashed == formed == [], "the listed groups were hashed for the page"


def test_groups_are_paged(client):
    everything = listed(client, threshold=0, limit=100)
    assert everything["total"] == len(everything["groups"]) >= 2
    pages = [listed(client, threshold=0, limit=1, skip=at) for at in range(everything["total"])]
    assert [page["groups"][0] for page in pages] == everything["groups"]
    assert [group["number"] for group in everything["groups"]] == [*range(1, len(pages) + 1)]
    assert listed(client, threshold=0, skip=1000)["groups"] == []


def test_a_search_has_no_full_collections_of_garbage(own_client, monkeypatch):
    usual, seen = gc.get_threshold(), []
    find = PhotoDuplicates.find
    monkeypatch.setattr(
        PhotoDuplicates, "find", lambda *args: seen.append(gc.get_threshold()) or find(*args)
    )
    listed(own_client, threshold=0)
    assert seen[0][:2] == usual[:2] and seen[0][2] >= 10_000
    assert gc.get_threshold() == usual


def test_a_smaller_threshold_needs_no_search(own_client, monkeypatch):
    wide = listed(own_client, threshold=12)
    monkeypatch.setattr(PhotoDuplicates, "find", None)
    narrow = listed(own_client, threshold=0)
    assert narrow["surplus"] <= wide["surplus"] and listed(own_client, threshold=12) == wide


def test_dismissed_groups_are_remembered(own_client, copies):
    before = ids_of(listed(own_client, threshold=0))
    answer = own_client.post("/v1/duplicates/dismiss", json={"ids": EQUAL}, headers=AUTH)
    assert answer.json() == {"dismissed": 1}
    after = listed(own_client, threshold=0)
    assert ids_of(after) == [group for group in before if group != EQUAL]
    assert after["dismissed"] == 1
    photos = PhotoDuplicates(copies.root / "photos.index")
    assert EQUAL not in photos.find(0).ids, "the command line knows it, too"
    photos.dismiss(next(group for group in photos.find(0) if list(group.ids) == AGAIN))
    assert AGAIN not in ids_of(listed(own_client, threshold=0)), "and what it dismisses is followed"


@pytest.fixture
def many(copies):
    """A group of 502 files: the equal ones, and 500 more with names of 200 characters."""
    folder = copies.root / "photos.index"
    index, catalog = Index.open(folder), Catalog(folder)
    codes = index.codes([EQUAL[0]])
    ids = [f"{number:03}-{'x' * 192}.png" for number in range(500)]
    rows = np.zeros(len(ids), np.int64)
    index.add(replace(codes[rows], ids=np.array(ids, object)), paths=ids)
    index.save(folder)
    (digest,) = catalog.digests([EQUAL[0]])
    catalog.write({each: CatalogRow(folder, FileStat(1, 1), digest, None) for each in ids})
    return copies


def test_a_group_of_500_files_is_dismissed_by_its_key(many):
    with opened(many, decode_workers=1, write_token=WRITE) as client:
        before = listed(client, threshold=0)
        group = before["groups"][0]
        assert (group["count"], len(group["items"]), group["equal"]) == (502, 100, True)
        sent = {"key": group["key"], "threshold": before["threshold"]}
        for _ in range(2):  # a client may ask again after a time-out
            answer = client.post("/v1/duplicates/dismiss", json=sent, headers=AUTH)
            assert answer.json() == {"dismissed": 1}
        after = listed(client, threshold=0)
        assert after["groups"] == [{**g, "number": g["number"] - 1} for g in before["groups"][1:]]
        photos = PhotoDuplicates(many.root / "photos.index")
        assert len(photos.dismissed) == 1 and len(next(iter(photos.dismissed))) == 502
        assert all(len(ids) < 500 for ids in photos.find(0).ids)


def test_a_group_that_changed_is_not_dismissed(own_client, copies):
    before = listed(own_client, threshold=0)
    (group,) = (each for each in before["groups"] if each["items"][0]["id"] == EQUAL[0])
    assert own_client.delete(f"/v1/items/{EQUAL[0]}", headers=AUTH).status_code == 204
    sent = {"key": group["key"], "threshold": 0}
    answer = own_client.post("/v1/duplicates/dismiss", json=sent, headers=AUTH)
    assert error_of(answer, 409) == "group_changed"
    assert not (copies.root / "photos.index/dismissed.json").exists()


def test_a_changed_index_is_searched_again(own_client):
    assert EQUAL in ids_of(listed(own_client, threshold=0))
    assert own_client.delete(f"/v1/items/{EQUAL[0]}", headers=AUTH).status_code == 204
    assert EQUAL not in ids_of(listed(own_client, threshold=0))


@pytest.mark.parametrize(
    "parameters", [{"threshold": -1}, {"threshold": 25}, {"limit": 0}, {"limit": 101}, {"skip": -1}]
)
def test_bad_parameters_are_refused(client, parameters):
    answer = client.get("/v1/duplicates", params=parameters)
    assert error_of(answer, 422) == "bad_parameters"
    if parameters == {"threshold": 25}:
        assert "threshold must be <= 24, got 25." in answer.text


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"ids": ["red/002.png"]}, 422, "bad_parameters"),
        ({"ids": ["red/002.png", "red/002.png"]}, 422, "bad_parameters"),
        ({"ids": ["red/002.png", "nobody"]}, 404, "unknown_id"),
        ({"ids": EQUAL, "more": 1}, 422, "bad_parameters"),
        ({"ids": EQUAL, "threshold": 0}, 422, "bad_parameters"),
        ({"ids": EQUAL, "key": "0" * 64}, 422, "bad_parameters"),
        ({"key": "0" * 63}, 422, "bad_parameters"),
        ({"key": "0" * 64, "threshold": 25}, 422, "bad_parameters"),
        ({"key": "0" * 64, "threshold": -1}, 422, "bad_parameters"),
        ({"key": "0" * 64}, 409, "group_changed"),
        ({}, 422, "bad_parameters"),
    ],
)
def test_bad_dismissals_are_refused(client, copies_original, body, status, code):
    answer = client.post("/v1/duplicates/dismiss", json=body, headers=AUTH)
    assert error_of(answer, status) == code
    assert not (copies_original.root / "photos.index/dismissed.json").exists()


def test_dismissing_needs_the_write_token(client):
    body = {"ids": EQUAL}
    assert error_of(client.post("/v1/duplicates/dismiss", json=body), 401) == "unauthorized"


def test_a_list_that_cannot_be_written_is_an_error(client, monkeypatch):
    from hadahash.errors import StorageError

    def refuse(self, path):
        raise StorageError("read-only")

    monkeypatch.setattr(module.Dismissed, "save", refuse)
    answer = client.post("/v1/duplicates/dismiss", json={"ids": EQUAL}, headers=AUTH)
    assert error_of(answer, 409) == "not_writable"


def test_a_long_search_goes_on_and_is_asked_again(copies, monkeypatch):
    find, gate, calls = PhotoDuplicates.find, threading.Event(), []

    def slow(self, threshold=None, **options):
        calls.append(threshold)
        assert gate.wait(30)
        return find(self, threshold, **options)

    monkeypatch.setattr(PhotoDuplicates, "find", slow)
    with opened(copies, decode_workers=2, index_seconds=0.2) as client:
        for _ in range(2):
            assert error_of(client.get("/v1/duplicates?threshold=0"), 503) == "busy"
        gate.set()
        wait_for(lambda: client.get("/v1/duplicates?threshold=0").status_code == 200)
    assert calls == [0]


def test_an_index_without_content_says_that_groups_may_be_classes(toy_collection):
    with opened(toy_collection, decode_workers=2) as client:
        assert client.get("/v1/stats").json()["same_photo"] is None
        answer = listed(client)
        assert answer["part"] == "class" and answer["threshold"] == 0
        hit = search(client, id="red/002.png", k=1).json()["hits"][0]
        assert hit["same_photo"] is None


def test_photos_without_looks_are_counted(copies):
    import sqlite3

    with sqlite3.connect(copies.root / "photos.index/photos.sqlite") as connection:
        connection.execute("DELETE FROM looks WHERE digest IN (SELECT digest FROM looks LIMIT 3)")
    connection.close()
    with opened(copies, decode_workers=2) as client:
        assert listed(client)["unread"] == 3


def test_searches_mark_the_same_photo_with_looks(client, copies_original):
    """By id, by an upload, by its values and by its code: all by the rule of duplicates."""
    by_id = search(client, id=AGAIN[0], k=18).json()
    hits = by_id["hits"]
    for hit in hits:
        apart = hit["content_distance"] + hit["looks_distance"]
        assert hit["same_photo"] == (apart <= 15)
    same = [hit["id"] for hit in hits if hit["same_photo"]]
    assert set(AGAIN) <= set(same) and len(same) < 18
    first = upload(client, copies_original.image(AGAIN[0]), k=18).json()
    assert [hit["id"] for hit in first["hits"] if hit["same_photo"]] == same
    query = first["query"]
    assert query["looks"] == by_id["query"]["looks"] and len(query["looks"]) == 16
    assert search(client, values=query["values"], k=18).json()["hits"] == first["hits"]
    given = {name: by_id["query"][name] for name in ("code", "content", "looks")}
    assert search(client, **given, k=18).json()["hits"] == hits
    assert error_of(search(client, id=RED_ID, looks=query["looks"]), 422) == "bad_parameters"


RED_ID = EQUAL[1]


@pytest.mark.parametrize("rank", ["hamming", "class", "photo"])
def test_similarities_fall_with_the_rank(client, rank):
    near = [hit["similarity"] for hit in search(client, id=RED_ID, k=18, rank=rank).json()["hits"]]
    assert near == sorted(near, reverse=True) and 0 <= near[-1] <= near[0] <= 1


# ---- changes in the middle of something ----------------------------------------------------------


def test_a_stored_search_is_not_used_when_a_photo_looks_different_now(copies):
    """The manifest of the index is the same; only the catalog has changed."""
    folder = copies.root / "photos.index"
    before = PhotoDuplicates(folder)
    assert AGAIN in [list(group.ids) for group in before.find(15)]
    catalog = Catalog(folder)
    (digest,) = catalog.digests([AGAIN[1]])
    catalog.write_looks({digest: bytes(b ^ 255 for b in catalog.looks()[AGAIN[1]])})
    assert AGAIN not in [list(group.ids) for group in PhotoDuplicates(folder).find(15)]


def test_a_search_is_stored_for_the_items_that_it_compared(copies):
    folder = copies.root / "photos.index"
    photos = PhotoDuplicates(folder)
    index = Index.open(folder)
    index.remove([EQUAL[0]])  # while the search runs
    index.save(folder)
    photos.find(15)
    found = PhotoDuplicates(folder).find(15)
    assert EQUAL[0] not in [each for group in found for each in group.ids]


def test_no_dismissal_is_lost(own_client, copies):
    ids = sorted(Index.open(copies.root / "photos.index").ids.tolist())
    pairs = [[ids[k], ids[k + 1]] for k in range(0, 16, 2)]

    def dismiss(pair):
        answer = own_client.post("/v1/duplicates/dismiss", json={"ids": pair}, headers=AUTH)
        assert answer.status_code == 200, answer.text

    threads = [threading.Thread(target=dismiss, args=(pair,)) for pair in pairs]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert listed(own_client)["dismissed"] == len(pairs)


def test_looks_follow_the_catalog(copies):
    folder = copies.root / "photos.index"
    stored, catalog = StoredLooks(folder), Catalog(folder)
    items = Index.open(folder).get([AGAIN[0]])
    first = stored.of(items)[AGAIN[0]]
    (digest,) = catalog.digests([AGAIN[0]])
    catalog.write_looks({digest: bytes(8)})
    assert stored.of(items) == {AGAIN[0]: bytes(8)} and first != bytes(8)


def test_an_id_that_no_file_can_have_has_no_looks(copies):
    assert StoredLooks(copies.root / "photos.index").of([Item("\ud800x", "x.jpg", ())]) == {}


def test_an_item_that_was_added_again_has_not_the_looks_of_the_file(own_client, copies):
    """A client removes the item of a photo and gives its id to another image."""
    assert {AGAIN[1], EQUAL[1]} <= {hit["id"] for hit in near(own_client) if hit["looks_distance"]}
    for name in (AGAIN[1], EQUAL[1]):
        assert own_client.delete(f"/v1/items/{name}", headers=AUTH).status_code == 204
        files, data = {"image": copies.image("blue/000.png")}, {"id": name}
        added = own_client.post("/v1/items", files=files, data=data, headers=AUTH)
        assert added.status_code == 201, added.text
    hits = {hit["id"]: hit for hit in near(own_client)}
    assert hits[AGAIN[1]]["looks_distance"] is None and hits[EQUAL[0]]["looks_distance"]
    assert search(own_client, id=AGAIN[1]).json()["query"]["looks"] is None
    found = listed(own_client, threshold=24)
    assert not any({*EQUAL} <= {*group} or {*AGAIN} <= {*group} for group in ids_of(found))
    photos = PhotoDuplicates(copies.root / "photos.index")
    assert not {AGAIN[1], EQUAL[1]} & {each for ids in photos.find(24).ids for each in ids}
    assert not photos.are_equal(DuplicateGroup(tuple(EQUAL), 0))


def near(client):
    return search(client, id="green/005.png", k=18, rank="hamming").json()["hits"]


@pytest.mark.parametrize("extra", [1, 2, 400])
def test_values_with_a_wrong_number_of_probabilities(client, copies_original, extra):
    image = (copies_original.root / "photos" / EQUAL[0]).read_bytes()
    values = upload(client, image, "/v1/encode").json()["values"]
    model, text, looks = values.split(":")
    halves = base64.b64decode(text)[: 2 * (16 + 32)] + bytes(2 * extra)
    answer = search(client, values=f"{model}:{base64.b64encode(halves).decode()}:{looks}")
    assert error_of(answer, 422) == "bad_parameters"
