"""A real server: streams without end, slow and absent clients, crowds, signals, and an index that changes under it."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import psutil
import pytest
from fastapi.testclient import TestClient
from make_images import encode, picture
from serving import WRITE, in_thread, running, wait_for
from toys import one_line

from hadahash.errors import HadaHashError
from hadahash.serve.app import create_app
from hadahash.serve.collection import Sources
from hadahash.serve.run import serve
from hadahash.serve.service import Service
from hadahash.serve.settings import ServeSettings

HEAD = "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"


def answer_of(connection: socket.socket) -> tuple[int, dict]:
    """Status and JSON of what comes until the server closes."""
    received = b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionError:
        assert received, "reset without an answer"
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def memory(server) -> int:
    process = psutil.Process(server.process.pid)
    return process.memory_info().rss


# ---- too much --------------------------------------------------------------------------------------------------------


def test_a_gigabyte_in_chunks_is_cut_at_the_limit(server):
    before, sent = memory(server), 0
    with server.connect() as connection:
        connection.sendall((HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode())
        block = b"%x\r\n" % 2**18 + b"\0" * 2**18 + b"\r\n"
        try:
            for _ in range(4096):
                connection.sendall(block)
                sent += 2**18
        except ConnectionError:
            pass
    assert sent < 60_000_000
    assert memory(server) - before < 20_000_000
    with server.connect() as connection:  # who stops to listen hears why
        connection.sendall((HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode())
        for _ in range(40):
            connection.sendall(block)
        status, answer = answer_of(connection)
    assert status == 413 and answer["error"]["code"] == "too_large"


def test_a_declared_length_above_the_limit_is_refused_unread(server):
    with server.connect() as connection:
        connection.sendall((HEAD + "Content-Length: 1000000000\r\n\r\n").encode() + b"\0" * 1000)
        assert answer_of(connection)[0] == 413


@pytest.mark.parametrize("multipart", [False, True])
def test_a_length_that_lies(server, multipart):
    """Less declared than sent: only what was declared is read; the rest is no request."""
    kind = "multipart/form-data; boundary=b" if multipart else "image/png"
    with server.connect() as connection:
        connection.sendall(
            HEAD.replace("image/png", kind).encode() + b"Content-Length: 10\r\n\r\n" + b"\0" * 1000
        )
        received = connection.recv(65_536)
    assert received.split()[1] in (b"400", b"415", b"422")
    assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_a_short_answer_is_sent_at_once(server):
    """Head and body are two writes: without TCP_NODELAY the second waits for the client to confirm the first."""
    import http.client

    connection, took = http.client.HTTPConnection("127.0.0.1", server.port), []
    for _ in range(15):
        asked = time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        took.append(time.perf_counter() - asked)
    assert min(took) < 0.02


# ---- too slow --------------------------------------------------------------------------------------------------------


def test_slow_clients_are_left_and_do_not_hold_up_others(server, place):
    """Server of these tests: 2 s for a head, 3 s for a body."""
    started = time.monotonic()
    heads = [server.connect() for _ in range(20)]
    bodies = [server.connect() for _ in range(20)]
    for connection in heads:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
    for connection in bodies:
        connection.sendall((HEAD + "Content-Length: 100000\r\n\r\n").encode() + b"\0" * 10)
    took = []
    for _ in range(5):
        asked = time.monotonic()
        assert (
            httpx.post(
                f"{server.url}/v1/search", files={"image": place.image("red/002.png")}
            ).status_code
            == 200
        )
        took.append(time.monotonic() - asked)
    assert min(took) < 1
    for connection in heads:
        with suppress(ConnectionResetError):
            assert connection.recv(1000) == b""
    for connection in bodies:
        status, answer = answer_of(connection)
        assert status == 408 and answer["error"]["code"] == "too_slow"
    assert time.monotonic() - started < 15
    wait_for(lambda: httpx.get(f"{server.url}/v1/stats").json()["waiting"] == 0)


def test_clients_that_vanish_free_their_place(server):
    for _ in range(30):
        with server.connect() as connection:
            connection.sendall((HEAD + "Content-Length: 100000\r\n\r\n").encode() + b"\0" * 1000)
    wait_for(lambda: httpx.get(f"{server.url}/v1/stats").json()["waiting"] == 0, seconds=15)


# ---- too many --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def busy_server(place):
    with running(place, "--set", "queue=32") as server:
        yield server


def test_two_hundred_clients_get_answers_or_are_told_to_wait(busy_server):
    server = busy_server
    image = encode(picture(), "PNG")
    seen, health, stop = [], [], threading.Event()

    def watch() -> None:
        with httpx.Client() as client:
            while not stop.is_set():
                asked = time.perf_counter()
                assert client.get(f"{server.url}/healthz", timeout=30).status_code == 200
                health.append(time.perf_counter() - asked)
                time.sleep(0.02)

    def ask(number: int) -> None:
        with server.connect() as connection:
            head = HEAD + f"Content-Length: {len(image)}\r\nConnection: close\r\n\r\n"
            everyone.wait()
            connection.sendall(head.encode() + image)
            received = b""
            while part := connection.recv(65_536):
                received += part
        head, _, body = received.decode().partition("\r\n\r\n")
        seen.append((int(head.split()[1]), head.lower(), json.loads(body)))

    everyone = threading.Barrier(200)
    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(200) as pool:
        list(pool.map(ask, range(200)))
    stop.set()
    watcher.join()
    statuses = [status for status, _, _ in seen]
    assert len(seen) == 200 and set(statuses) == {200, 503} and statuses.count(200) >= 32
    assert all("retry-after: 1" in head for status, head, _ in seen if status == 503)
    assert len({json.dumps(body["hits"]) for status, _, body in seen if status == 200}) == 1, (
        "all the same answer"
    )
    assert sorted(health)[len(health) // 2] < 0.05 and max(health) < 3, "health answers throughout"
    metrics = httpx.get(f"{server.url}/metrics").text
    batches = float(metrics.split('hadahash_batch_queries_count{stage="encode"} ')[1].split()[0])
    assert batches < statuses.count(200), "queries were encoded together"


# ---- beginning and end -----------------------------------------------------------------------------------------------


def test_sigterm_lets_requests_end(busy_server, place):
    server = busy_server
    with server.connect() as connection:
        image = place.image("red/002.png")
        connection.sendall((HEAD + f"Content-Length: {len(image)}\r\n\r\n").encode() + image[:-10])
        wait_for(lambda: httpx.get(f"{server.url}/v1/stats").json()["waiting"] == 1)
        reloads = _reloads(server)
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: _reloads(server) == reloads + 1)
        children = psutil.Process(server.process.pid).children()
        assert len(children) >= 2
        told = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert server.process.poll() is None, "it waits"
        with pytest.raises(OSError):
            server.connect()
        connection.sendall(image[-10:])
        status, answer = answer_of(connection)
        assert status == 200 and len(answer["hits"]) == 10
        assert server.process.wait(10) == 0 and time.monotonic() - told < 10
        _, alive = psutil.wait_procs(children, timeout=5)
        assert not alive, "its helpers ended with it"


def _reloads(server) -> float:
    return float(
        httpx.get(f"{server.url}/metrics")
        .text.split("\nhadahash_index_reloads_total ")[1]
        .split()[0]
    )


def test_the_index_is_opened_again_without_a_dropped_request(own_place):
    from hadahash import Index

    folder = own_place.root / "photos.index"
    with in_thread(own_place, watch_seconds=0.2, write_token=WRITE) as address:
        stop, answers = threading.Event(), []

        def ask() -> None:
            with httpx.Client() as client:
                while not stop.is_set():
                    answer = client.post(f"{address}/v1/search", json={"id": "red/002.png", "k": 3})
                    answers.append((answer.status_code, len(answer.json().get("hits", []))))

        askers = [threading.Thread(target=ask) for _ in range(4)]
        for asker in askers:
            asker.start()

        def items() -> int:
            return httpx.get(f"{address}/v1/stats").json()["items"]

        index = Index.open(folder)
        for left, name in ((47, "blue/000.png"), (46, "blue/004.png")):  # noticed by itself
            index.remove([name])
            index.save(folder)
            wait_for(lambda wanted=left: items() == wanted)
        for _ in range(5):  # told to
            auth = {"Authorization": f"Bearer {WRITE}"}
            assert httpx.post(f"{address}/v1/reload", headers=auth).json() == {"items": 46}
        stop.set()
        for asker in askers:
            asker.join()
        assert len(answers) > 20 and set(answers) == {(200, 3)}
        (folder / "index.json").write_text("{}")
        time.sleep(0.7)
        assert items() == 46, "a broken index does not take the place of a good one"


def test_ready_only_when_loaded(place, monkeypatch):
    loaded = threading.Event()
    monkeypatch.setattr(
        Service, "_open", lambda self, whole=Service._open: loaded.wait(30) and whole(self)
    )
    service = Service(place.sources, ServeSettings())
    with TestClient(create_app(service), base_url="http://127.0.0.1") as client:
        assert client.get("/healthz").status_code == 200
        for answer in (
            client.get("/readyz"),
            client.get("/v1/stats"),
            client.post("/v1/search", json={"id": "red/002.png"}),
        ):
            assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        loaded.set()
        wait_for(lambda: client.get("/readyz").status_code == 200)


def test_a_start_that_fails_late_ends_the_server(place, tmp_path):
    sources, said = Sources(place.root / "photos.index", tmp_path, ()), []
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(HadaHashError, match="holds no trained model"):
        serve(sources, ServeSettings(port=0), said.append)
    signal.signal(signal.SIGTERM, before)
    assert len(said) == 1


def test_starts_that_cannot_be(place, tmp_path):
    from typer.testing import CliRunner

    from hadahash.cli.app import app

    index, run = str(place.root / "photos.index"), str(place.root / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, code, words in (
            ((index, "--run", run, "--host", "0.0.0.0"), 2, "HADAHASH_READ_TOKEN"),
            ((index, "--run", run, "--set", "queues=3"), 2, "Did you mean 'queue'"),
            ((str(tmp_path / "none"), "--run", run), 1, "holds no index"),
            ((index,), 2, "--run RUN"),
            ((index, "--run", run, "--port", port), 2, "Choose another --port"),
        ):
            error = CliRunner().invoke(app, ["serve", *arguments]).exception
            assert (
                isinstance(error, HadaHashError)
                and error.exit_code == code
                and words in one_line(error)
            )
