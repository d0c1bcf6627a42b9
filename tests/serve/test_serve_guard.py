"""Tokens, hosts, headers, and paths outside of the image folder."""

from __future__ import annotations

import hmac
import json
import time

import pytest
from serving import READ, WRITE, opened

from hadahash.codes import Codes

# As in the request line; percent signs are sent as they are.
TRAVERSALS = [
    "../secret.png",
    "../../secret.png",
    "..%2fsecret.png",
    "%2e%2e/secret.png",
    "%2e%2e%2fsecret.png",
    "%2e%2e%5csecret.png",
    "..%5csecret.png",
    "..\\secret.png",
    "....//secret.png",
    "..;/secret.png",
    "red/../../secret.png",
    "red/%2e%2e/%2e%2e/secret.png",
    "./../secret.png",
    ".%2e/secret.png",
    "%252e%252e%252fsecret.png",
    "%c0%ae%c0%ae/secret.png",
    "%uff0e%uff0e/secret.png",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "//etc/passwd",
    "file:///etc/passwd",
    "file:%2f%2f%2fetc/passwd",
    "C:%5cWindows%5cwin.ini",
    "%5c%5chost%5cshare%5csecret.png",
    "red/002.png%00",
    "red/002.png%00.jpg",
    "%00",
    "red/002.png/",
    "red/./002.png",
    "red//002.png",
    "RED/002.PNG",
    "linked.png",
    "linked/secret.png",
    "~/secret.png",
    "http:%2f%2f127.0.0.1%2fhealthz",
]


def test_no_path_leads_out_of_the_image_folder(server):
    assert len(TRAVERSALS) >= 30
    for payload in TRAVERSALS:
        for kind in ("images", "thumbnails"):
            head, body = server.raw(
                f"GET /v1/{kind}/{payload} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            assert (
                " 404 " in head.splitlines()[0]
                and json.loads(body)["error"]["code"] == "unknown_id"
            ), payload


def test_an_index_that_names_files_outside_of_the_folder_shows_none(collection_copy):
    from hadahash import Index

    codes = Codes(
        collection_copy.index.codes().packed[:5], 16, ids=[f"item {number}" for number in range(5)]
    )
    paths = [
        "../secret.png",
        str(collection_copy.root / "secret.png"),
        "linked.png",
        "no\0name",
        "x" * 5000,
    ]
    Index.build(codes, paths=paths).save(collection_copy.root / "photos.index")
    with opened(collection_copy) as client:
        for name in codes.ids.tolist():
            assert client.get(f"/v1/images/{name}").status_code == 404
        hits = client.post("/v1/search", json={"id": codes.ids.tolist()[0]}).json()["hits"]
        assert not any(hit["has_image"] for hit in hits) and not any(
            "/" in hit["name"] for hit in hits
        )


def test_an_id_chosen_by_a_client_opens_no_file(collection_copy):
    (collection_copy.root / "photos" / "private.png").write_bytes(
        collection_copy.image("red/002.png")
    )
    auth = {"Authorization": f"Bearer {WRITE}"}
    with opened(collection_copy, write_token=WRITE) as client:
        for name in ("private.png", "red/../private.png", "linked.png"):
            assert (
                client.post(
                    "/v1/items", json={"id": name, "code": "0000"}, headers=auth
                ).status_code
                == 201
            )
            assert client.get(f"/v1/images/{name}").status_code == 404


def test_every_response_has_security_headers(client):
    for path in (
        "/",
        "/docs",
        "/static/app.js",
        "/v1/stats",
        "/healthz",
        "/nowhere",
        "/v1/images/nobody",
        "/v1/images/red/002.png",
    ):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert (
            policy.startswith("default-src 'self';")
            and "frame-ancestors 'none'" in policy
            and "unsafe" not in policy
        )
        assert (
            headers["x-content-type-options"] == "nosniff"
            and headers["referrer-policy"] == "no-referrer"
        )
        assert headers["x-frame-options"] == "DENY" and "server" not in headers


def test_there_is_no_cors(client):
    for method in ("GET", "OPTIONS"):
        headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        response = client.request(method, "/v1/stats", headers=headers)
        assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "192.168.0.9",
        "127.0.0.1.evil.example",
        "",
        "[::1].x",
        "[::1",
        "localhost:x",
    ],
)
def test_other_host_names_are_refused(client, host):
    response = client.get("/v1/stats", headers={"Host": host})
    assert response.status_code == 421 and response.json()["error"]["code"] == "wrong_host"


@pytest.mark.parametrize("host", ["localhost:8000", "LOCALHOST", "127.0.0.1:1", "[::1]:8000"])
def test_loopback_host_names_are_accepted(client, host):
    assert client.get("/v1/stats", headers={"Host": host}).status_code == 200


def test_the_service_is_read_only_without_a_write_token(client):
    for method, path in (
        ("POST", "/v1/items"),
        ("DELETE", "/v1/items/red/002.png"),
        ("POST", "/v1/reload"),
    ):
        response = client.request(method, path, headers={"Authorization": f"Bearer {WRITE}"})
        assert response.status_code == 403 and response.json()["error"]["code"] == "read_only"


def test_tokens_are_required_and_compared_in_constant_time(collection_copy, monkeypatch):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(1) or real(a, b))
    with opened(collection_copy, host="0.0.0.0", read_token=READ, write_token=WRITE) as client:

        def status(
            path: str, token: str | None, method: str = "GET", scheme: str = "Bearer"
        ) -> int:
            headers = {} if token is None else {"Authorization": f"{scheme} {token}".encode()}
            response = client.request(method, path, headers=headers)
            assert response.status_code != 401 or response.headers["www-authenticate"] == "Bearer"
            return response.status_code

        reading = (
            "/v1/stats",
            "/v1/map",
            "/v1/images/red/002.png",
            "/v1/thumbnails/red/002.png",
            "/metrics",
        )
        for path in reading:
            assert [
                status(path, token) for token in (None, "", "wrong", READ[:-1], READ + "x", "é")
            ] == [401] * 6
            assert status(path, READ) == status(path, WRITE) == 200
        assert status("/v1/stats", READ, scheme="Basic") == 401
        assert status("/v1/search", None, "POST") == status("/v1/encode", None, "POST") == 401
        for method, path in (
            ("POST", "/v1/items"),
            ("DELETE", "/v1/items/red/002.png"),
            ("POST", "/v1/reload"),
        ):
            assert status(path, None, method) == status(path, READ, method) == 401
        assert status("/v1/reload", WRITE, "POST") == 200
        assert [status(path, None) for path in ("/", "/docs", "/healthz", "/readyz")] == [200] * 4
        assert client.get("/healthz", headers={"Host": "photos.example"}).status_code == 200
    assert len(compared) > 20


def test_range_headers_are_ignored(client):
    ranges = "bytes=" + ",".join(f"{n}-{n + 1}" for n in range(5000))
    for path in ("/static/app.js", "/v1/thumbnails/red/002.png"):
        started = time.process_time()
        assert client.get(path, headers={"Range": ranges}).status_code == 200
        assert time.process_time() - started < 0.5


def test_file_names_are_sent_as_json(collection_copy, tmp_path):
    from hadahash import Index

    name = "<img src=x onerror=alert(1)>.png"
    (collection_copy.root / "photos" / name).write_bytes(collection_copy.image("red/002.png"))
    codes = collection_copy.index.codes()[:1]
    Index.build(codes, ["<b>x</b>"], [name]).save(collection_copy.root / "photos.index")
    with opened(collection_copy) as client:
        response = client.post("/v1/search", json={"id": codes.ids.tolist()[0]})
        assert (
            response.headers["content-type"] == "application/json"
            and response.json()["hits"][0]["name"] == name
        )
