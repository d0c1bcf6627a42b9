"""The API: results, errors and changes."""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from make_images import encode as to_file
from make_images import picture, png
from PIL import Image
from serving import WRITE, opened

from hadahash.codes import Codes, hamming
from hadahash.errors import StorageError, UsageError

RED = "red/002.png"


def search(client, **parameters):
    return client.post("/v1/search", json=parameters)


def upload(client, content, path="/v1/search", **fields):
    return client.post(path, files={"image": ("photo.png", content)}, data=fields)


def error_of(response, status):
    """The code of an error; every error has this form."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"code", "message", "hint"} and all(error.values())
    return error["code"]


# ---- searching ---------------------------------------------------------------------------------------------------------


def test_an_image_of_the_collection_finds_itself(client, toy_collection, fitted):
    answer = upload(client, toy_collection.image(RED), k=5).json()
    code = fitted.encode(toy_collection.root / "photos" / RED)
    assert answer["query"]["code"] == code.packed.tobytes().hex() and answer["query"]["bits"] == 16
    hits = toy_collection.index.search(code, k=5)
    assert [hit["id"] for hit in answer["hits"]] == hits.ids[0].tolist()
    assert [hit["distance"] for hit in answer["hits"]] == hits.distances[0].tolist()
    assert answer["exact"] is True and RED in [
        hit["id"] for hit in upload(client, toy_collection.image(RED), k=48).json()["hits"][:12]
    ]
    took = answer["took_ms"]
    assert (
        all(took[stage] > 0 for stage in ("decode", "encode", "search"))
        and took["total"] >= took["decode"]
    )


def test_form_body_code_and_id_give_the_same_results(client, toy_collection):
    by_form = upload(client, toy_collection.image(RED), k=7).json()
    by_body = client.post(
        "/v1/search?k=7", content=toy_collection.image(RED), headers={"Content-Type": "image/png"}
    ).json()
    by_code = search(client, code=by_form["query"]["code"], k=7).json()
    by_id = search(client, id=RED, k=7).json()
    assert by_form["hits"] == by_body["hits"] == by_code["hits"] == by_id["hits"]
    assert by_id["query"]["id"] == RED and by_id["query"]["labels"] == ["red"]
    assert by_id["took_ms"]["decode"] == by_id["took_ms"]["encode"] == 0


def test_hits_have_labels_names_and_codes(client, toy_collection):
    codes = dict(
        zip(toy_collection.index.ids.tolist(), toy_collection.index.codes().packed, strict=True)
    )
    answer = search(client, id=RED, k=48).json()
    own = np.frombuffer(bytes.fromhex(answer["query"]["code"]), np.uint8)[None]
    for hit in answer["hits"]:
        assert (
            hit["labels"] == [hit["id"].split("/")[0]]
            and hit["name"] == hit["id"].split("/")[1]
            and hit["has_image"]
        )
        assert hit["code"] == codes[hit["id"]].tobytes().hex()
        assert hamming(own, codes[hit["id"]][None])[0, 0] == hit["distance"]


def test_label_and_radius_filter(client, toy_collection):
    code = search(client, id=RED, k=1).json()["query"]["code"]
    only = search(client, id=RED, k=20, label=["blue", "green"]).json()["hits"]
    assert len(only) == 20 and {hit["labels"][0] for hit in only} <= {"blue", "green"}
    packed = np.frombuffer(bytes.fromhex(code), np.uint8)[None]
    near = search(client, code=code, k=48, radius=3).json()["hits"]
    expected = toy_collection.index.within(Codes(packed=packed, bits=16), 3)
    assert [hit["id"] for hit in near] == expected.ids[0].tolist() and max(
        hit["distance"] for hit in near
    ) <= 3


@pytest.mark.parametrize("labels", [["bleu"], ["red", "bleu"]])
def test_a_label_that_no_item_has_is_an_error(client, toy_collection, labels):
    for response in (
        search(client, id=RED, label=labels),
        upload(client, toy_collection.image(RED), label=labels),
    ):
        assert error_of(response, 404) == "unknown_label"
        message = response.json()["error"]["message"]
        assert message.startswith("Unknown label 'bleu'. Did you mean 'blue'? Known: blue, ")


def test_labels_of_new_items_are_known(collection_copy):
    headers = {"Authorization": f"Bearer {WRITE}"}
    with opened(collection_copy, write_token=WRITE) as client:
        assert error_of(search(client, id=RED, label=["new"]), 404) == "unknown_label"
        sent = {"id": "x", "code": "0000", "label": ["new"]}
        assert client.post("/v1/items", json=sent, headers=headers).status_code == 201
        (hit,) = search(client, id=RED, label=["new"]).json()["hits"]
        assert hit["id"] == "x"


def test_encode(client, toy_collection, fitted):
    answer = upload(client, toy_collection.image(RED), "/v1/encode").json()
    assert (
        answer["code"] == fitted.encode(toy_collection.root / "photos" / RED).packed.tobytes().hex()
        and answer["bits"] == 16
    )


def test_stats_and_map(client, toy_collection):
    stats = client.get("/v1/stats").json()
    assert (
        stats["items"] == 48
        and stats["bits"] == 16
        and stats["engine"] == "exact"
        and not stats["writable"]
    )
    assert {entry["label"]: entry["count"] for entry in stats["labels"]} == dict.fromkeys(
        ("blue", "green", "red", "yellow"), 12
    )
    points = client.get("/v1/map").json()
    assert points["ids"] == toy_collection.index.ids.tolist() and points["labels"] == [
        "blue",
        "green",
        "red",
        "yellow",
    ]
    assert [points["labels"][number] for number in points["label"]] == [
        name.split("/")[0] for name in points["ids"]
    ]
    assert max(map(abs, points["x"] + points["y"])) == 1


def test_metrics_are_in_prometheus_format(client):
    search(client, id=RED)
    text = client.get("/metrics").text
    assert re.search(r'hadahash_requests_total\{route="/v1/search",status="200"\} \d', text)
    assert (
        "hadahash_index_items 48.0" in text
        and 'hadahash_stage_seconds_count{stage="search"}' in text
    )


# ---- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({"id": RED, "k": 0}, 422),
        ({"id": RED, "k": 1001}, 422),
        ({"id": RED, "k": "many"}, 422),
        ({"id": RED, "radius": -1}, 422),
        ({"id": RED, "radius": 17}, 422),
        ({"id": RED, "code": "0000"}, 422),
        ({"id": RED, "color": "red"}, 422),
        ({"id": RED, "label": "red"}, 422),
        ({"id": RED, "label": ["x"] * 101}, 422),
        ({"code": "00"}, 422),
        ({"code": "000000"}, 422),
        ({"code": "zz"}, 422),
        ({}, 422),
        ({"id": "red/nobody.png"}, 404),
        ({"id": 7}, 404),
        ({"id": 2**70}, 404),
        ({"id": "red/002.png\0"}, 404),
        ({"id": ""}, 404),
    ],
)
def test_bad_parameters(client, parameters, status):
    assert error_of(search(client, **parameters), status)


def test_malformed_bodies(client, toy_collection):
    as_json = {"Content-Type": "application/json"}
    assert error_of(client.post("/v1/search", content=b"{", headers=as_json), 400) == "bad_json"
    assert (
        error_of(client.post("/v1/search", content=b"[" * 60_000, headers=as_json), 400)
        == "bad_json"
    )
    assert (
        error_of(client.post("/v1/search", content=b"[1]", headers=as_json), 422)
        == "bad_parameters"
    )
    assert (
        error_of(client.post("/v1/search", content=b" " * 70_000, headers=as_json), 413)
        == "too_large"
    )
    assert error_of(
        client.post("/v1/search", content=b"x", headers={"Content-Type": "text/plain"}), 415
    )
    assert (
        error_of(
            client.post(
                "/v1/search", content=b"x", headers={"Content-Type": "multipart/form-data"}
            ),
            400,
        )
        == "bad_form"
    )
    assert error_of(client.post("/v1/encode", json={}), 415) == "no_image_sent"
    assert (
        error_of(
            client.post("/v1/search", files={"picture": ("a.png", toy_collection.image(RED))}), 422
        )
        == "no_image_sent"
    )
    assert error_of(upload(client, toy_collection.image(RED), k="x"), 422) == "bad_parameters"
    assert (
        error_of(upload(client, toy_collection.image(RED), k=["1", "2"]), 422) == "bad_parameters"
    )


def test_too_many_files_or_fields(client, toy_collection):
    many = [("image", (f"{n}.png", b"x")) for n in range(9)]
    assert error_of(client.post("/v1/search", files=many), 400) == "bad_form"
    assert (
        error_of(upload(client, toy_collection.image(RED), label=["red"] * 21), 400) == "bad_form"
    )
    assert upload(client, toy_collection.image(RED), label=["red"] * 20).status_code == 200


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"just text", 415, "not_an_image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", 415, "not_an_image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "not_an_image"),
        (b"", 422, "broken_image"),
        (b"\x89PNG\r\n\x1a\n", 422, "broken_image"),
        (to_file(picture(), "JPEG")[:500], 422, "broken_image"),
        (png(50_000, 50_000, 8, 2, b"\0" * 1000), 413, "image_too_large"),
        (png(8_000, 11_186, 8, 2, b"\0" * 1000), 413, "image_too_large"),
    ],
)
def test_unusable_images(client, content, status, code):
    assert error_of(upload(client, content), status) == code


def test_the_size_limit_is_exact(client):
    def padded(size: int) -> bytes:
        image = to_file(picture(), "PNG")
        return image + b"\0" * (size - len(image))

    limit = 10_000_000
    assert upload(client, padded(limit), k=1).status_code == 200
    assert error_of(upload(client, padded(limit + 1)), 413) == "too_large"
    as_image = {"Content-Type": "image/png"}
    assert client.post("/v1/search", content=padded(limit), headers=as_image).status_code == 200
    assert (
        error_of(client.post("/v1/search", content=padded(limit + 1), headers=as_image), 413)
        == "too_large"
    )


def test_uploads_are_not_written_to_disk(client, toy_collection, monkeypatch):
    def forbidden(*arguments, **options):
        raise AssertionError("a file was created")

    monkeypatch.setattr(tempfile, "_mkstemp_inner", forbidden)
    monkeypatch.setattr(tempfile, "TemporaryFile", forbidden)
    image = to_file(picture(), "PNG") + b"\0" * 3_000_000
    assert upload(client, image).status_code == 200


# ---- images --------------------------------------------------------------------------------------------------------


def test_images_are_sent_without_metadata(collection_copy):
    exif = Image.Exif()
    exif[0x010E] = "a secret note"
    exif[0x0112] = 6
    exif.get_ifd(0x8825)[2] = (48.0, 8.0, 15.0)
    file = collection_copy.root / "photos" / RED
    big = np.kron(picture(), np.ones((10, 10, 1), np.uint8))
    file.write_bytes(to_file(big, "JPEG", exif=exif, comment=b"a secret note"))
    with opened(collection_copy) as client:
        for path, longest in ((f"/v1/images/{RED}", 560), (f"/v1/thumbnails/{RED}", 192)):
            response = client.get(path)
            shown = Image.open(io.BytesIO(response.content))
            assert (
                response.headers["content-type"] == "image/jpeg"
                and b"secret" not in response.content
            )
            assert len(shown.getexif()) == 0 and "comment" not in shown.info
            assert max(shown.size) == longest and shown.height > shown.width, "rotated upright"


def test_small_images_are_lossless(client, toy_collection):
    response = client.get(f"/v1/images/{RED}")
    assert response.headers["content-type"] == "image/png"
    assert np.array_equal(
        np.array(Image.open(io.BytesIO(response.content))),
        np.array(Image.open(toy_collection.root / "photos" / RED)),
    )


def test_missing_and_broken_image_files(collection_copy):
    photos = collection_copy.root / "photos"
    (photos / "red/002.png").unlink()
    (photos / "red/006.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    with opened(collection_copy) as client:
        assert error_of(client.get("/v1/thumbnails/red/002.png"), 404) == "no_image"
        assert error_of(client.get("/v1/thumbnails/red/006.png"), 422) == "broken_image"
        assert error_of(client.get("/v1/thumbnails/red/none.png"), 404) == "unknown_id"
        hits = search(client, id="red/006.png", k=48).json()["hits"]
        assert [hit["id"] for hit in hits if not hit["has_image"]] == ["red/002.png"]


# ---- changes --------------------------------------------------------------------------------------------------------


def test_add_and_remove(collection_copy):
    auth = {"Authorization": f"Bearer {WRITE}"}
    image = to_file(picture(), "PNG")
    with opened(collection_copy, write_token=WRITE) as client:
        sent = {
            "files": {"image": ("x.png", image)},
            "data": {"id": "new/one", "label": ["a", "b"]},
            "headers": auth,
        }
        added = client.post("/v1/items", **sent)
        assert added.status_code == 201 and added.json()["labels"] == ["a", "b"]
        assert error_of(client.post("/v1/items", **sent), 409) == "known_id"
        assert error_of(client.post("/v1/items", json={"id": "x", "code": "00"}, headers=auth), 422)
        assert error_of(client.post("/v1/items", json={"id": "x"}, headers=auth), 422)
        assert (
            client.post(
                "/v1/items", json={"id": "by code", "code": added.json()["code"]}, headers=auth
            ).status_code
            == 201
        )
        hits = upload(client, image, k=2).json()["hits"]
        assert {"new/one", "by code"} == {hit["id"] for hit in hits} and not hits[0]["has_image"]
        assert len(collection_copy.index) == 50, "saved to disk"
        assert client.delete("/v1/items/new/one", headers=auth).status_code == 204
        assert error_of(client.delete("/v1/items/new/one", headers=auth), 404) == "unknown_id"
        assert client.get("/v1/stats").json()["items"] == len(collection_copy.index) == 49


def test_integer_ids(collection_copy, fitted):
    from hadahash import Index

    codes = collection_copy.index.codes()
    Index.build(Codes(codes.packed, 16, np.arange(48) - 5), np.arange(48) % 3).save(
        collection_copy.root / "photos.index"
    )
    auth = {"Authorization": f"Bearer {WRITE}"}
    with opened(collection_copy, write_token=WRITE) as client:
        assert (
            search(client, id=3, k=1).json()["query"]["id"]
            == search(client, id="3", k=1).json()["query"]["id"]
            == 3
        )
        assert search(client, id="-5").json()["query"]["labels"] == [0]
        assert {
            hit["labels"][0] for hit in search(client, id=3, k=9, label=["2"]).json()["hits"]
        } == {2}
        assert (
            error_of(search(client, id="³"), 404)
            == error_of(client.get("/v1/images/x"), 404)
            == "unknown_id"
        )
        added = client.post("/v1/items", json={"id": "77", "code": "0000"}, headers=auth)
        assert added.json()["id"] == 77, "the id as it is stored"
        for bad in ("x", " 78 ", "7_8", "9223372036854775808", "9" * 200, 7.5, True):
            sent = {"id": bad, "code": "0000"}
            assert error_of(client.post("/v1/items", json=sent, headers=auth), 422)
        assert client.delete("/v1/items/77", headers=auth).status_code == 204


def test_an_empty_index(collection_copy):
    from hadahash import Index

    index = Index.open(collection_copy.root / "photos.index")
    index.remove(index.ids)
    index.save(collection_copy.root / "photos.index")
    with opened(collection_copy, write_token=WRITE) as client:
        assert (
            client.get("/v1/map").json()["ids"] == []
            and client.get("/v1/stats").json()["items"] == 0
        )
        assert search(client, code="0000").json()["hits"] == []
        assert error_of(search(client, id="x"), 404) == "unknown_id"
        auth = {"Authorization": f"Bearer {WRITE}"}
        assert (
            client.post("/v1/items", json={"id": "first", "code": "0000"}, headers=auth).status_code
            == 201
        )
        assert search(client, code="0001").json()["hits"][0]["distance"] == 1


def test_messages_of_the_library_stay_in_the_log(collection_copy, caplog):
    """A message can contain paths of this machine, which clients must not see."""
    with opened(collection_copy) as client:
        service, secret = client.app.state.service, "/home/someone/photos.index is damaged."
        for error, status in ((StorageError(secret), 503), (UsageError(secret), 500)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    service, "search", lambda *_, error=error: (_ for _ in ()).throw(error)
                )
                answer = search(client, id=RED)
            error_of(answer, status)
            assert "someone" not in answer.text and secret in caplog.text
        assert search(client, id=RED).status_code == 200


def test_the_thumbnail_cache_is_limited(collection_copy):
    with opened(collection_copy, cache_bytes=20_000) as client:
        service = client.app.state.service
        for name in collection_copy.index.ids.tolist():
            assert (
                client.get(f"/v1/thumbnails/{name}").content
                == client.get(f"/v1/thumbnails/{name}").content
            )
        kept = service.media._thumbnails
        assert 0 < sum(len(image.content) for image in kept.values()) == kept.currsize <= 20_000


def test_the_page_uses_no_external_resource(client):
    files = Path(__file__).parents[2] / "src/hadahash/serve/static"
    assert {"index.html", "app.js", "style.css"} <= {file.name for file in files.iterdir()}
    for file in files.iterdir():
        text = (
            file.read_text()
            .replace("http://www.w3.org/2000/svg", "")
            .replace("http://127.0.0.1:8000", "")
        )
        assert not re.search(r"https?://|//cdn|@import", text), file.name
        assert file.suffix != ".html" or not re.search(
            r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", text
        ), file.name
    assert "Drop an image" in client.get("/").text
    assert (
        client.get("/static/app.js")
        .headers["content-type"]
        .startswith(("text/javascript", "application/javascript"))
    )
    assert client.get("/docs").status_code == 200


def test_the_response_of_a_search_has_the_described_form(client, two_part_client, toy_collection):
    from hadahash.serve.http.schema import SearchAnswer

    image = toy_collection.image("red/002.png")
    for each in (client, two_part_client):
        for answer in (
            each.post("/v1/search", json={"id": "red/002.png", "k": 3}),
            each.post("/v1/search", files={"image": image}),
        ):
            values = answer.json()
            assert answer.headers["content-type"] == "application/json"
            assert SearchAnswer.model_validate(values, strict=True).model_dump() == values


def test_images_are_found_as_quickly_as_exactly(toy_collection):
    """`has_image` agrees with `image_path`, which resolves every link."""
    from types import SimpleNamespace

    from hadahash.index import Item
    from hadahash.serve.core.collection import Collection

    photos = toy_collection.root / "photos"
    collection = Collection(toy_collection.index, SimpleNamespace(), [photos])
    names = ["red/002.png", "linked.png", "linked/secret.png", "../secret.png", "red", "red/..", ""]
    names += ["nowhere/1.png", str(photos / "red/002.png"), str(toy_collection.root / "secret.png")]
    names += ["a\0b", "x" * 5000, "red/../red/002.png"]
    for name in names:
        item = Item(name, name, ())
        assert collection.has_image(item) == (collection.image_path(item) is not None), name
    assert collection.has_image(Item("red/002.png", "/elsewhere/red/002.png", ()))
    assert not collection.has_image(Item("red/002.png", None, ()))
