"""Hostile clients of the service. Each takes a server and random numbers, and checks the answers."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import numpy as np
import psutil
from make_images import encode, picture, png
from serving import WRITE, Running

HOST = "Host: localhost\r\n"
SEARCH = b'{"id": "red/002.png", "k": 3}'
Client = Callable[[Running, np.random.Generator], None]
CLIENTS: dict[str, Client] = {}


def client(function: Client) -> Client:
    CLIENTS[function.__name__.replace("_", " ")] = function
    return function


def received(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    data = b""
    with suppress(ConnectionError):
        while part := connection.recv(65_536):
            data += part
    return data


def sent(server: Running, data: bytes, *, half_close: bool = False) -> bytes:
    with server.connect() as connection:
        with suppress(OSError):  # the server has answered and closed the connection
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        return received(connection)


def statuses(data: bytes) -> list[int]:
    found = [part.split(b" ", 2) for part in data.split(b"HTTP/1.1 ")[1:]]
    return [int(words[0]) for words in found]


def post(body: bytes, *headers: str, length: bool = True) -> bytes:
    lines = ["POST /v1/search HTTP/1.1\r\n", HOST, "Connection: close\r\n"]
    if not any(each.lower().startswith("content-type") for each in headers):
        lines.append("Content-Type: application/json\r\n")
    if length:
        lines.append(f"Content-Length: {len(body)}\r\n")
    return "".join([*lines, *(f"{each}\r\n" for each in headers), "\r\n"]).encode("latin-1") + body


def refused(data: bytes, *allowed: int) -> None:
    """One answer at most, and it is a refusal."""
    found = statuses(data)
    assert len(found) <= 1, found
    assert not found or found[0] in (
        400,
        403,
        404,
        405,
        408,
        411,
        413,
        414,
        415,
        421,
        422,
        431,
        *allowed,
    ), found


AMBIGUOUS = [
    ["Content-Length: 29", "Transfer-Encoding: chunked"],
    ["Content-Length: 29", "Content-Length: 30"],
    ["Content-Length: +29"],
    ["Content-Length: -1"],
    ["Content-Length: 0x1d"],
    ["Content-Length: 29, 30"],
    ["Content-Length: 99999999999999999999999999"],
    ["Transfer-Encoding: xchunked"],
    ["Transfer-Encoding: chunked, identity"],
    ["Transfer-Encoding : chunked"],
    ["Transfer-Encoding: chunked", "Transfer-Encoding: cow"],
    ["X: a\r\n folded", "Content-Length: 5"],
    ["\x00Content-Length: 29"],
]


@client
def ambiguous_lengths(server: Running, rng: np.random.Generator) -> None:
    """What one parser takes for the body, another might take for a second request."""
    smuggled = b"GET /v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n"
    headers = AMBIGUOUS[rng.integers(len(AMBIGUOUS))]
    body = [SEARCH, b"0\r\n\r\n" + smuggled, b"5\r\nhello\r\n0\r\n\r\n" + smuggled][rng.integers(3)]
    refused(sent(server, post(body, *headers, length=False), half_close=True))


@client
def broken_chunks(server: Running, rng: np.random.Generator) -> None:
    bodies = [
        b"zz\r\nx\r\n",
        b"-1\r\nx\r\n",
        b"5;" + b"a" * 70_000 + b"\r\nhello",
        b"FFFFFFFFFFFFFFFFF\r\nx",
        b"5\nhello\n0\n\n",
        b"5\r\nhelloXX0\r\n\r\n",
    ]
    refused(
        sent(
            server,
            post(bodies[rng.integers(len(bodies))], "Transfer-Encoding: chunked", length=False),
            half_close=True,
        )
    )


@client
def broken_heads(server: Running, rng: np.random.Generator) -> None:
    heads = [
        b"GET / HTTP/9.9\r\n\r\n", b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" * 9,
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\nHost: localhost\n\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", b"GET http://evil/ HTTP/1.1\r\nHost: evil\r\n\r\n",
    ]  # fmt: skip
    refused(sent(server, heads[rng.integers(len(heads))], half_close=True), 200, 501, 505)


@client
def pipelined_requests(server: Running, rng: np.random.Generator) -> None:
    count = int(rng.integers(2, 20))
    one = f"GET /healthz HTTP/1.1\r\n{HOST}\r\n".encode()
    last = f"GET /healthz HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n".encode()
    found = statuses(sent(server, one * count + last))
    assert found == [200] * (count + 1), found


@client
def half_closed(server: Running, rng: np.random.Generator) -> None:
    found = statuses(sent(server, post(SEARCH), half_close=True))
    assert found in ([], [200]), found


@client
def vanishing(server: Running, rng: np.random.Generator) -> None:
    data = post(b"\0" * 5000, "Content-Type: image/png")
    with server.connect() as connection:
        connection.sendall(data[: rng.integers(1, len(data))])
        if rng.random() < 0.5:  # reset instead of a regular end
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@client
def too_large(server: Running, rng: np.random.Generator) -> None:
    refused(
        sent(
            server, post(b"", "Content-Type: image/png", "Content-Length: 900000000", length=False)
        )
    )


@client
def odd_encodings(server: Running, rng: np.random.Generator) -> None:
    bodies = [
        SEARCH.decode().encode("utf-16"),
        b"\xef\xbb\xbf" + SEARCH,
        zlib.compress(SEARCH),
        b"\xff\xfe\xfd",
        b"[" * 60_000,
        b'{"k": 1e999, "id": "x"}',
        b'{"k": ' + b"9" * 5000 + b"}",
    ]
    kinds = [
        "application/json; charset=utf-16",
        "application/json",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=" + "b" * 300,
        "image/svg+xml",
        "x" * 3000,
        "",
    ]
    headers = [f"Content-Type: {kinds[rng.integers(len(kinds))]}"]
    if rng.random() < 0.3:
        headers.append("Content-Encoding: gzip")
    found = statuses(sent(server, post(bodies[rng.integers(len(bodies))], *headers)))
    assert len(found) == 1 and found[0] < 500, found


@client
def other_sites(server: Running, rng: np.random.Generator) -> None:
    """A page elsewhere neither acts nor reads: 403 before anything is done."""
    headers = [
        ["Sec-Fetch-Site: cross-site"],
        ["Sec-Fetch-Site: same-site"],
        ["Origin: https://evil.example"],
        ["Origin: null"],
    ]
    answer = sent(server, post(SEARCH, *headers[rng.integers(len(headers))]))
    assert statuses(answer) == [403] and b"cross_site" in answer
    assert b"access-control" not in answer.lower()
    path = ("/v1/map", "/v1/duplicates", "/metrics", "/v1/stats")[rng.integers(4)]
    frame = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe"
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{frame}\r\nConnection: close\r\n\r\n"
    assert statuses(sent(server, head.encode())) == [403]


@client
def rebinding(server: Running, rng: np.random.Generator) -> None:
    hosts = [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil",
        "",
        "[::1].x",
        "localhost@evil",
        "2130706433",
        "a" * 3000,
    ]
    head = f"GET /v1/stats HTTP/1.1\r\nHost: {hosts[rng.integers(len(hosts))]}\r\nConnection: close\r\n\r\n"
    found = statuses(sent(server, head.encode()))
    assert len(found) == 1 and found[0] in (400, 403, 421), found


@client
def wrong_tokens(server: Running, rng: np.random.Generator) -> None:
    values = [
        "",
        "Bearer",
        f"Bearer {WRITE[:-1]}",
        f"Bearer {WRITE}x",
        f"bearer  {WRITE.upper()}",
        f"Basic {WRITE}",
        "Bearer " + "a" * 9000,
        "Bearer \xe9",
        f"Bearer {WRITE}, Bearer {WRITE}",
    ]
    value = values[rng.integers(len(values))]
    lines = f"POST /v1/reload?token={WRITE} HTTP/1.1\r\n{HOST}Authorization: {value}\r\n"
    head = f"{lines}Content-Length: 0\r\nConnection: close\r\n\r\n"
    found = statuses(sent(server, head.encode("latin-1")))
    assert len(found) == 1 and found[0] in (400, 401, 403), found


PATHS = [
    "../secret.png",
    "%2e%2e/secret.png",
    "..%2fsecret.png",
    "..%5csecret.png",
    "linked.png",
    "linked/secret.png",
    "%2fetc%2fpasswd",
    "red/%2e%2e/%2e%2e/secret.png",
    "red/002.png%00",
    "%c0%ae%c0%ae/secret.png",
    "a" * 5000,
]


@client
def paths_out_of_the_folder(server: Running, rng: np.random.Generator) -> None:
    kind, path = ["images", "thumbnails"][rng.integers(2)], PATHS[rng.integers(len(PATHS))]
    head = f"GET /v1/{kind}/{path} HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n"
    answer = sent(server, head.encode())
    assert statuses(answer) == [404] and b"PNG" not in answer and b"root:" not in answer


@client
def writing_without_a_token(server: Running, rng: np.random.Generator) -> None:
    lines = ["POST /v1/items", "DELETE /v1/items/red/002.png", "POST /v1/reload"]
    line = lines[rng.integers(len(lines))]
    head = f"{line} HTTP/1.1\r\n{HOST}Content-Length: 2\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{{}}"
    found = statuses(sent(server, head.encode()))
    assert len(found) == 1 and found[0] in (400, 401, 403, 404, 405, 422), found


@client
def silent_and_slow(server: Running, rng: np.random.Generator) -> None:
    """Connections that send nothing, or a byte now and then, do not delay the next client."""
    held = [server.connect() for _ in range(15)]
    for number, connection in enumerate(held[5:]):
        connection.sendall(post(b"\0" * 9000, "Content-Type: image/png")[: 20 + 30 * number])
    good_search(server)
    for connection in held:
        connection.close()


@client
def slow_reader(server: Running, rng: np.random.Generator) -> None:
    """Large answers that nobody reads do not delay the next client."""
    held = []
    for _ in range(5):
        connection = server.connect()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sendall(f"GET /openapi.json HTTP/1.1\r\n{HOST}\r\n".encode() * 30)
        held.append(connection)
    good_search(server)
    for connection in held:
        connection.recv(100)
        connection.close()


@cache
def large_image() -> bytes:
    """A file of 90 kB with as many pixels as are allowed."""
    return png(9000, 9900, 8, 0, bytes(9900 * 9001))


@client
def large_images(server: Running, rng: np.random.Generator) -> None:
    """Images that take seconds to decode do not delay the ordinary image of another client."""
    upload = post(large_image(), "Content-Type: image/png")
    held = [server.connect() for _ in range(8)]
    for connection in held:
        connection.sendall(upload)
    started = time.monotonic()
    found = statuses(sent(server, post(encode(picture(), "PNG"), "Content-Type: image/png")))
    seconds = time.monotonic() - started
    assert found == [200] and seconds < 10, f"{found} after {seconds:.1f} s"
    for connection in held:
        answers = statuses(received(connection))
        assert answers in ([200], [422], [503]), answers
        connection.close()


@client
def killed_decoders(server: Running, rng: np.random.Generator) -> None:
    children = psutil.Process(server.process.pid).children(recursive=True)
    for process in children:
        if rng.random() < 0.7:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    body = encode(picture(), "PNG")
    found = statuses(sent(server, post(body, "Content-Type: image/png")))
    assert found in ([200], [503]), found


def good_search(server: Running) -> None:
    """An ordinary search is answered, at once or after the seconds that a 503 names."""
    deadline = time.monotonic() + 60
    while True:
        answer = sent(server, post(SEARCH))
        if statuses(answer) == [503] and time.monotonic() < deadline:
            time.sleep(1)
            continue
        assert statuses(answer) == [200], answer[:300]
        hits = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert "red/002.png" in json.dumps(hits)
        return
