"""Helpers for the tests of the service: a collection, and the service in this or another
process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn
from fastapi.testclient import TestClient

from hadahash import Index
from hadahash.serve.core.collection import ServeConfig, resolve_config
from hadahash.serve.core.service import Service
from hadahash.serve.core.shared import Shared
from hadahash.serve.http.app import create_app
from hadahash.serve.settings import ServeSettings

READ, WRITE = "read-read-read-read", "write-write-write-write"


@dataclass(frozen=True)
class ToyCollection:
    """The folder of a toy collection."""

    root: Path

    @property
    def config(self) -> ServeConfig:
        return resolve_config(self.root / "photos.index", self.root / "run", [self.root / "photos"])

    @property
    def index(self) -> Index:
        return Index.open(self.root / "photos.index")

    def image(self, name: str) -> bytes:
        return (self.root / "photos" / name).read_bytes()


@contextmanager
def opened(toy_collection: ToyCollection, **settings: object) -> Iterator[TestClient]:
    """A client of the application in this process, which is ready."""
    service = Service(toy_collection.config, ServeSettings(**settings))  # type: ignore[arg-type]
    with TestClient(create_app(service), base_url="http://127.0.0.1") as client:
        wait_for(lambda: client.get("/readyz").status_code == 200)
        yield client


@dataclass(frozen=True)
class Running:
    """A server in another process."""

    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def raw(self, request: str | bytes) -> tuple[str, bytes]:
        """Head and body of the response to exactly these bytes."""
        with self.connect() as connection:
            connection.sendall(request.encode() if isinstance(request, str) else request)
            received = b""
            while part := connection.recv(65_536):
                received += part
        head, _, body = received.partition(b"\r\n\r\n")
        return head.decode(), body

    def wait_ready(self) -> None:
        wait_for(lambda: httpx.get(f"{self.url}/readyz").status_code == 200)


@contextmanager
def running(
    toy_collection: ToyCollection, *options: str, ready: bool = True, **environment: str
) -> Iterator[Running]:
    given = [
        "--run",
        str(toy_collection.root / "run"),
        "--images",
        str(toy_collection.root / "photos"),
        "--port",
        "0",
        *options,
    ]
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "hadahash",
            "serve",
            str(toy_collection.root / "photos.index"),
            *given,
        ],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=os.environ | environment,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Open http://"), line
        server = Running(process, int(line.split("/")[2].split(":")[1]))
        if ready:
            server.wait_ready()
        yield server
    finally:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


@contextmanager
def in_thread(toy_collection: ToyCollection, **settings: object) -> Iterator[str]:
    """A real server in a thread of this process, which starts quickly; yields its address."""
    with service_in_thread(toy_collection, **settings) as (address, _):
        yield address


@contextmanager
def service_in_thread(
    toy_collection: ToyCollection, *, shared: Shared | None = None, **settings: object
) -> Iterator[tuple[str, Service]]:
    """The same; yields the address and the service behind it."""
    listener = socket.create_server(("127.0.0.1", 0))
    limits = ServeSettings(**settings)  # type: ignore[arg-type]
    service = Service(toy_collection.config, limits, shared=shared)
    server = uvicorn.Server(uvicorn.Config(create_app(service), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        wait_for(lambda: server.started and httpx.get(f"{address}/readyz").status_code == 200)
        yield address, service
    finally:
        server.should_exit = True
        thread.join()


class Blocked:
    """An index whose methods wait until they are released."""

    def __init__(self, index: Index) -> None:
        self._index, self._released = index, threading.Event()
        self.calls = 0

    def release(self) -> None:
        self._released.set()

    def __len__(self) -> int:
        self._wait()
        return len(self._index)

    def __getattr__(self, name: str) -> object:
        value = getattr(self._index, name)
        if name in ("bits", "content_bits", "engine", "meta", "ranking"):  # plain attributes
            return value
        self._wait()
        return value

    def _wait(self) -> None:
        self.calls += 1
        assert self._released.wait(60)
