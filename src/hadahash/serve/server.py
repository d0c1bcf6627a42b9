"""The server: socket, uvicorn and signals."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import HadaHashError, UsageError
from .core.collection import ServeConfig
from .core.service import Service
from .core.shared import Shared
from .http.app import create_app
from .settings import ServeSettings
from .workers import Workers, report

_ABORT_SECONDS = 5.0  # for a client to receive the remaining data when its connection is closed
_UNROUTED = "192.0.2.1"  # an address for documentation; no packet is sent to it


def serve(config: ServeConfig, settings: ServeSettings, announce: Callable[[str], object]) -> None:
    """Serve until SIGTERM or Ctrl-C; running requests finish first. SIGHUP reloads the index.

    Args:
        config: Locations of the index, its model and its images.
        settings: Limits.
        announce: Called with each line to show at the start.

    Raises:
        UsageError: If the address is not available.
        HadaHashError: If the service cannot start.
    """
    listener = _listen(settings)
    for line in _announcement(listener, config):
        announce(line)
    if settings.workers > 1:
        Workers(_run_worker, config, settings, listener).run()
    else:
        _run(Service(config, settings), listener)


def _run(service: Service, listener: socket.socket, *, load_first: bool = False) -> None:
    """Answer requests in this process until it is stopped.

    Raises:
        HadaHashError: If the service cannot start.
    """
    failures: list[HadaHashError] = []

    def on_failure(error: HadaHashError) -> None:
        failures.append(error)
        server.should_exit = True

    app = create_app(service, on_failure=on_failure, load_first=load_first)
    server = _Server(_uvicorn_config(app, service.settings), service)
    signal.signal(signal.SIGTERM, _exit_quietly)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    if failures:
        raise failures[0]


def _run_worker(
    config: ServeConfig,
    settings: ServeSettings,
    listener: socket.socket,
    folder: Path,
    errors: Connection,
    load_first: bool,
) -> None:
    """The function of a worker process."""
    service: Service | None = None
    try:
        service = Service(config, settings, shared=Shared(folder))
        _run(service, listener, load_first=load_first)
    except HadaHashError as error:
        if service is None or not service.ready:
            report(errors, error)  # ends all processes; later, another one is started instead
        sys.exit(1)


def _uvicorn_config(app: FastAPI, settings: ServeSettings) -> uvicorn.Config:
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # errors of clients
    return uvicorn.Config(
        app,
        http=_protocol(settings),
        ws="none",
        server_header=False,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=settings.drain_seconds,
        h11_max_incomplete_event_size=65_536,
    )


def _announcement(listener: socket.socket, config: ServeConfig) -> list[str]:
    host, port = listener.getsockname()[:2]
    shown = _reachable_address(host)
    url = f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"
    lines = [f"Open {url} in a browser. Press Ctrl-C to stop."]
    if config.images:
        folders = ", ".join(str(folder) for folder in config.images)
        lines.append(f"Images are served from {folders}")
    return lines


def _reachable_address(host: str) -> str:
    """The address of this machine in its network, if the service listens on all addresses."""
    if not ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        return host
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((_UNROUTED, 9))
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def _listen(settings: ServeSettings) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM
        )[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            f"Cannot listen on {settings.host}:{settings.port}: {reason}. Choose another --port."
        ) from error


def _exit_quietly(number: int, frame: FrameType | None) -> None:
    """After the shutdown uvicorn raises the signal again; SIGTERM is not an error."""
    sys.exit(0)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if (
            hasattr(signal, "SIGHUP") and not sys.stdin.isatty()
        ):  # SIGHUP then means that the terminal was closed
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_hangup)

    def _on_hangup(self) -> None:
        if self._service.ready:
            refresh = self._service.refresh(force=True)
            self._refreshing = asyncio.get_running_loop().create_task(refresh)


def _protocol(settings: ServeSettings) -> type[H11Protocol]:
    """Return uvicorn's protocol with time limits for slow headers and slow readers."""

    class Protocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            accepted = transport.get_extra_info("socket")
            # Without TCP_NODELAY a short response can wait 40 ms.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._head, self._stuck = Timer(transport.abort), Timer(transport.abort)
            self._head.start(settings.header_seconds)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:  # headers not complete
                self._head.start(settings.header_seconds)
            else:
                self._head.stop()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stuck.start(settings.upload_seconds)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stuck.stop()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            self._stuck.start(_ABORT_SECONDS)

        def connection_lost(self, exc: Exception | None) -> None:
            self._head.stop()
            self._stuck.stop()
            super().connection_lost(exc)

    return Protocol


class Timer:
    """Calls a function after some time, unless it is stopped.

    Args:
        action: The function.
    """

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        """Start the timer, unless it is running."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(seconds, self._action)

    def stop(self) -> None:
        """Stop the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
