"""Starting and stopping: the socket, uvicorn, and the signals."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import HadaHashError, UsageError
from .app import create_app
from .collection import Sources
from .service import Service
from .settings import ServeSettings

_ABORT_SECONDS = 5.0  # what a client that is being left has to take the rest


def serve(sources: Sources, settings: ServeSettings, say: Callable[[str], object]) -> None:
    """Serve until SIGTERM or Ctrl-C; requests at work end first. SIGHUP opens the index again."""
    listening = _listen(settings)
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    service = Service(sources, settings)
    errors: list[HadaHashError] = []

    def failed(error: HadaHashError) -> None:
        errors.append(error)
        server.should_exit = True

    app = create_app(service, failed=failed)
    config = uvicorn.Config(
        app,
        http=_protocol(settings),
        ws="none",
        server_header=False,
        log_level="warning",
        timeout_graceful_shutdown=settings.drain_seconds,
        h11_max_incomplete_event_size=65_536,
    )
    logging.getLogger("python_multipart").setLevel(
        logging.ERROR
    )  # what clients get wrong, they are told
    server = _Server(config, service)
    say(f"Open http://{shown}:{port}/ in a browser. Ctrl-C ends the service.")
    signal.signal(signal.SIGTERM, _leave)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    if errors:
        raise errors[0]


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


def _leave(number: int, frame: FrameType | None) -> None:
    """uvicorn raises the signal again once all is done; being told to stop is no error."""
    sys.exit(0)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if (
            hasattr(signal, "SIGHUP") and not sys.stdin.isatty()
        ):  # at a terminal it means that the terminal is gone
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)

    def _hang_up(self) -> None:
        if self._service.ready:
            self._reloading = asyncio.get_running_loop().create_task(self._service.reload_or_log())


def _protocol(settings: ServeSettings) -> type[H11Protocol]:
    """uvicorn's protocol, which waits for ever for a slow head and a slow reader, with an end to both."""

    class Protocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            accepted = transport.get_extra_info("socket")
            accepted.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
            )  # else a short answer may wait 40 ms
            self._head, self._stuck = Timer(transport.abort), Timer(transport.abort)
            self._head.start(settings.header_seconds)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:  # no head yet, or not all of it
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
    """Does something after a while, unless it is stopped."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        """A timer that runs already goes on."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(seconds, self._action)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
