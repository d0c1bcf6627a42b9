"""A real server: endless streams, slow and vanishing clients, load, signals, and index changes."""

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
from hadahash.serve.core.collection import ServeConfig
from hadahash.serve.core.handle import IndexHandle
from hadahash.serve.core.service import Service
from hadahash.serve.http.app import create_app
from hadahash.serve.server import _announcement, serve
from hadahash.serve.settings import ServeSettings

HEAD = "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"


def answer_of(connection: socket.socket) -> tuple[int, dict]:
    """Status and JSON of the response; reads until the server closes the connection."""
    received = b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionError:
        assert received, "reset without a response"
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def memory(server) -> int:
    process = psutil.Process(server.process.pid)
    return process.memory_info().rss


# ---- large requests --------------------------------------------------------------------------------------------------------


def test_a_stream_of_a_gigabyte_is_cut_at_the_limit(server):
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
    with server.connect() as connection:  # a client that stops and reads gets the reason
        connection.sendall((HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode())
        for _ in range(40):
            connection.sendall(block)
        status, answer = answer_of(connection)
    assert status == 413 and answer["error"]["code"] == "too_large"


def test_a_content_length_above_the_limit_is_refused_without_reading(server):
    with server.connect() as connection:
        connection.sendall((HEAD + "Content-Length: 1000000000\r\n\r\n").encode() + b"\0" * 1000)
        assert answer_of(connection)[0] == 413


@pytest.mark.parametrize("multipart", [False, True])
def test_a_wrong_content_length(server, multipart):
    """Only the declared bytes are read; the rest is not a request."""
    kind = "multipart/form-data; boundary=b" if multipart else "image/png"
    with server.connect() as connection:
        connection.sendall(
            HEAD.replace("image/png", kind).encode() + b"Content-Length: 10\r\n\r\n" + b"\0" * 1000
        )
        received = connection.recv(65_536)
    assert received.split()[1] in (b"400", b"415", b"422")
    assert httpx.get(f"{server.url}/healthz").status_code == 200


@pytest.mark.parametrize("line", ["PRI * HTTP/2.0", "GET /healthz HTTP/9.9"])
def test_after_another_version_of_http_nothing_is_read(server, line):
    second = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head, body = server.raw(f"{line}\r\nHost: localhost\r\n\r\n".encode() + second)
    assert head.startswith("HTTP/1.1 505") and body.count(b"HTTP/1.1") == 1  # the hint
    assert json.loads(body)["error"]["code"] == "wrong_version"


def test_a_short_response_is_sent_at_once(server):
    """Head and body are two writes: without TCP_NODELAY the second waits for an acknowledgement."""
    import http.client

    connection, took = http.client.HTTPConnection("127.0.0.1", server.port), []
    for _ in range(15):
        sent_at = time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        took.append(time.perf_counter() - sent_at)
    assert min(took) < 0.02


# ---- slow clients --------------------------------------------------------------------------------------------------------


def test_a_client_that_reads_nothing_is_disconnected(server):
    """Large answers wait for 3 s, in little memory; then the connection is closed."""
    before, request = memory(server), b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sendall(request * 300)
        port, process = connection.getsockname()[1], psutil.Process(server.process.pid)
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert memory(server) - before < 20_000_000
        wait_for(lambda: all(each.raddr[1:] != (port,) for each in process.net_connections()))


def test_slow_clients_are_disconnected_and_do_not_delay_others(server, toy_collection):
    """More slow uploads than the queue has slots. The server allows 2 s for headers, 3 s for a body."""
    started = time.monotonic()
    heads = [server.connect() for _ in range(20)]
    bodies = [server.connect() for _ in range(80)]
    for connection in heads:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
    for connection in bodies:
        connection.sendall((HEAD + "Content-Length: 100000\r\n\r\n").encode() + b"\0" * 10)
    took = []
    for _ in range(5):
        sent_at = time.monotonic()
        assert (
            httpx.post(
                f"{server.url}/v1/search", files={"image": toy_collection.image("red/002.png")}
            ).status_code
            == 200
        )
        took.append(time.monotonic() - sent_at)
    assert min(took) < 1
    for connection in heads:
        with suppress(ConnectionResetError):
            assert connection.recv(1000) == b""
    for connection in bodies:
        status, answer = answer_of(connection)
        assert status == 408 and answer["error"]["code"] == "too_slow"
    assert time.monotonic() - started < 15
    wait_for(lambda: in_progress(server) == 0)


def test_clients_that_vanish_free_their_slots(server):
    for _ in range(30):
        with server.connect() as connection:
            connection.sendall((HEAD + "Content-Length: 100000\r\n\r\n").encode() + b"\0" * 1000)
    wait_for(lambda: in_progress(server) == 0, seconds=15)
    assert httpx.get(f"{server.url}/healthz").status_code == 200


# ---- many clients --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def busy_server(toy_collection):
    with running(toy_collection, "--set", "queue=32") as server:
        yield server


def test_two_hundred_clients_get_results_or_retry_after(busy_server):
    server = busy_server
    image = encode(picture(), "PNG")
    seen, health, stop = [], [], threading.Event()

    def watch() -> None:
        with httpx.Client() as client:
            while not stop.is_set():
                sent_at = time.perf_counter()
                assert client.get(f"{server.url}/healthz", timeout=30).status_code == 200
                health.append(time.perf_counter() - sent_at)
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
        "all have the same hits"
    )
    assert sorted(health)[len(health) // 2] < 0.05 and max(health) < 3, (
        "/healthz responds throughout"
    )
    metrics = httpx.get(f"{server.url}/metrics").text
    batches = float(metrics.split('hadahash_batch_queries_count{stage="encode"} ')[1].split()[0])
    assert batches < statuses.count(200), "queries were encoded in batches"


# ---- start and stop -----------------------------------------------------------------------------------------------


def test_sigterm_lets_running_requests_finish(busy_server, toy_collection):
    server = busy_server
    with server.connect() as connection:
        image = toy_collection.image("red/002.png")
        connection.sendall((HEAD + f"Content-Length: {len(image)}\r\n\r\n").encode() + image[:-10])
        wait_for(lambda: in_progress(server) == 1)
        reloads = _reloads(server)
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: _reloads(server) == reloads + 1)
        children = psutil.Process(server.process.pid).children()
        assert len(children) >= 2
        stopped = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: refuses_connections(server))
        assert server.process.poll() is None, "it waits for the request"
        connection.sendall(image[-10:])
        status, answer = answer_of(connection)
        assert status == 200 and len(answer["hits"]) == 10
        assert server.process.wait(10) == 0 and time.monotonic() - stopped < 10
        _, alive = psutil.wait_procs(children, timeout=5)
        assert not alive, "its decoder processes ended"


def in_progress(server) -> int:
    stats = httpx.get(f"{server.url}/v1/stats").json()
    return stats["waiting"] + stats["receiving"]


def refuses_connections(server) -> bool:
    try:
        server.connect().close()
    except OSError:
        return True
    return False


def _reloads(server) -> float:
    return float(
        httpx.get(f"{server.url}/metrics")
        .text.split("\nhadahash_index_reloads_total ")[1]
        .split()[0]
    )


def test_the_index_is_reloaded_without_a_dropped_request(collection_copy):
    from hadahash import Index

    folder = collection_copy.root / "photos.index"
    with in_thread(collection_copy, watch_seconds=0.2, write_token=WRITE) as address:
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
        for left, name in ((47, "blue/000.png"), (46, "blue/004.png")):  # noticed by the watcher
            index.remove([name])
            index.save(folder)
            wait_for(lambda expected=left: items() == expected)
        for _ in range(5):  # on request
            auth = {"Authorization": f"Bearer {WRITE}"}
            assert httpx.post(f"{address}/v1/reload", headers=auth).json() == {"items": 46}
        stop.set()
        for asker in askers:
            asker.join()
        assert len(answers) > 20 and set(answers) == {(200, 3)}
        (folder / "index.json").write_text("{}")
        wait_for(lambda: httpx.get(f"{address}/readyz").json()["problem"] is not None)
        assert items() == 46, "a broken index does not replace a good one"


def test_ready_only_when_loaded(toy_collection, monkeypatch):
    loaded = threading.Event()
    real = IndexHandle._open
    monkeypatch.setattr(
        IndexHandle,
        "_open",
        lambda handle, **options: loaded.wait(30) and real(handle, **options),
    )
    service = Service(toy_collection.config, ServeSettings())
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


def test_a_start_that_fails_ends_the_server(toy_collection, tmp_path):
    config, announced = ServeConfig(toy_collection.root / "photos.index", tmp_path, ()), []
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(HadaHashError, match="no trained model"):
        serve(config, ServeSettings(port=0), announced.append)
    signal.signal(signal.SIGTERM, before)
    assert len(announced) == 1 and announced[0].startswith("Open http://127.0.0.1:")


def test_invalid_options_are_refused_in_one_line(toy_collection, tmp_path):
    from typer.testing import CliRunner

    from hadahash.cli.app import app

    index, run = str(toy_collection.root / "photos.index"), str(toy_collection.root / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, code, words in (
            ((index, "--run", run, "--host", "0.0.0.0"), 2, "HADAHASH_READ_TOKEN"),
            ((index, "--run", run, "--set", "queues=3"), 2, "Did you mean 'queue'"),
            ((str(tmp_path / "none"), "--run", run), 1, "contains no index"),
            ((index,), 2, "--run RUN"),
            ((index, "--run", run, "--port", port), 2, "Choose another --port"),
        ):
            error = CliRunner().invoke(app, ["serve", *arguments]).exception
            assert (
                isinstance(error, HadaHashError)
                and error.exit_code == code
                and words in one_line(error)
            )


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_announcement_names_a_reachable_address_and_the_image_folder(toy_collection, host):
    with socket.create_server((host, 0)) as listener:
        port = listener.getsockname()[1]
        address, images = _announcement(listener, toy_collection.config)
        url = address.split()[1]
        assert url.endswith(f":{port}/") and "0.0.0.0" not in url
        socket.create_connection((url.split("/")[2].split(":")[0], port), timeout=10).close()
    assert str(toy_collection.root / "photos") in images
