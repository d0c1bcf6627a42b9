"""What stands between the network and the routes: who may ask, and what every answer carries."""

from __future__ import annotations

import asyncio
import hmac
import time
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import Metrics
from .problems import Problem, answer
from .settings import ServeSettings, is_loopback

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LINGER_SECONDS, _LINGER_BYTES = 2.0, 20_000_000

_bearer = HTTPBearer(auto_error=False, description="The read or the write token.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def may_read(request: Request, credentials: Credentials) -> None:
    settings: ServeSettings = request.app.state.service.settings
    if settings.read_token is not None and not _shows(
        credentials, settings.read_token, settings.write_token
    ):
        raise _unauthorized("read")


def may_write(request: Request, credentials: Credentials) -> None:
    settings: ServeSettings = request.app.state.service.settings
    if settings.write_token is None:
        hint = "Start it with HADAHASH_WRITE_TOKEN set to allow changes."
        raise Problem(403, "read_only", "This service does not change its index.", hint)
    if not _shows(credentials, settings.write_token):
        raise _unauthorized("write")


def _shows(credentials: HTTPAuthorizationCredentials | None, *tokens: str | None) -> bool:
    """Compared in a time that does not depend on how much of it is right."""
    shown = (credentials.credentials if credentials else "").encode("utf-8", "replace")
    matches = [hmac.compare_digest(shown, token.encode()) for token in tokens if token is not None]
    return any(matches)


def _unauthorized(kind: str) -> Problem:
    hint = "Send the header 'Authorization: Bearer TOKEN'."
    return Problem(
        401, "unauthorized", f"This needs the {kind} token.", hint, {"WWW-Authenticate": "Bearer"}
    )


class Guard:
    """The outermost layer: it sets the headers, counts, refuses foreign hosts, and says goodbye before it hangs up."""

    def __init__(self, app: ASGIApp, *, settings: ServeSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send, has_body=_has_body(scope))
        started = time.perf_counter()
        if self._foreign(scope):
            problem = Problem(
                421,
                "wrong_host",
                "This service does not go by that name.",
                "Use http://127.0.0.1 or localhost.",
            )
            await answer(problem)(scope, exchange.receive, exchange.send)
        else:
            await self._app(scope, exchange.receive, exchange.send)
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.requests.labels(route, str(exchange.status)).inc()
        self._metrics.seconds.labels(route).observe(time.perf_counter() - started)

    def _foreign(self, scope: Scope) -> bool:
        """Without a token, only this machine's own names are answered: a web page elsewhere may point its name here."""
        host = Headers(scope=scope).get("host", "")
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        return self._settings.read_token is None and not is_loopback(name.lower())


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


class _Exchange:
    """One request and its answer."""

    def __init__(self, receive: Receive, send: Send, *, has_body: bool) -> None:
        self._receive, self._send = receive, send
        self._whole = not has_body  # has all of the request come?
        self._closing = False
        self.status = 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._whole = self._whole or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begin(message)
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last and self._closing:
            await self._send({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    def _begin(self, message: Message) -> None:
        self.status = message["status"]
        headers = MutableHeaders(scope=message)
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        headers.setdefault("Cache-Control", "no-store")
        self._closing = self.status >= 400 and not self._whole
        if self._closing:
            headers["Connection"] = "close"  # whatever is still coming is not wanted

    async def _linger(self) -> None:
        """Read on a little: closing while a client still sends would lose it the answer that says why."""
        loop, read = asyncio.get_running_loop(), 0
        deadline = loop.time() + _LINGER_SECONDS
        while not self._whole and read < _LINGER_BYTES:
            try:
                message = await asyncio.wait_for(self.receive(), deadline - loop.time())
            except asyncio.TimeoutError:
                return
            read += len(message.get("body", b""))
