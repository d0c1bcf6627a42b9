"""Middleware for every request: host and origin checks, security headers, errors, metrics."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Collection
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..core.metrics import Metrics
from ..problem import Problem, busy
from ..settings import ServeSettings, is_loopback
from .errors import internal, respond

LOG = logging.getLogger(__name__)
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_RAW_HEADERS = {
    name.lower().encode(): value.encode()
    for name, value in (_HEADERS | {"Cache-Control": "no-store"}).items()
}
_HOST = re.compile(r"(?:\[(?P<address>[^\]]*)\]|(?P<name>[^:\[\]]*))(?::[0-9]*)?")
_LINGER_SECONDS, _LINGER_BYTES = 2.0, 20_000_000


class SecurityMiddleware:
    """Refuses other hosts and origins, and completes every response.

    Starlette's TrustedHostMiddleware is not used: it responds with plain text, and does not treat
    all of 127.0.0.0/8 and [::1] as loopback.

    Args:
        app: The application.
        settings: Limits of the service.
        metrics: Counts the requests.
        pages: Paths that links of other sites may open.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServeSettings,
        metrics: Metrics,
        pages: Collection[str] = (),
    ) -> None:
        self._app, self._settings, self._metrics, self._pages = app, settings, metrics, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        wrapper = _ResponseWrapper(receive, send, has_body=_has_body(headers))
        started = time.perf_counter()
        problem = self._refusal(scope, headers)
        if problem is not None:
            await respond(problem)(scope, wrapper.receive, wrapper.send)
        else:
            await self._run(scope, wrapper)
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.requests.labels(route, str(wrapper.status)).inc()
        self._metrics.seconds.labels(route).observe(time.perf_counter() - started)

    async def _run(self, scope: Scope, wrapper: _ResponseWrapper) -> None:
        try:
            await self._app(scope, wrapper.receive, wrapper.send)
            return
        except asyncio.CancelledError:  # the shutdown timeout has expired
            problem = busy("The service is shutting down.")
        except Exception:
            LOG.exception("%s %s failed.", scope["method"], scope["path"])
            problem = internal()
        if wrapper.status == 0:
            with suppress(Exception):
                await respond(problem)(scope, wrapper.receive, wrapper.send)

    def _refusal(self, scope: Scope, headers: Headers) -> Problem | None:
        if scope.get("http_version", "1.1") not in ("1.0", "1.1"):
            # What follows is not HTTP/1.1 either, and must not be read as another request.
            reason, hint = "HTTP version not supported.", "Use HTTP/1.1."
            return Problem(505, "wrong_version", reason, hint, {"Connection": "close"})
        if self._settings.read_token is None and not is_loopback(_host_name(headers)):
            hint = "Use http://127.0.0.1 or http://localhost."
            return Problem(421, "wrong_host", "Host header not allowed.", hint)
        if _is_cross_site(headers) and not self._follows_link(scope, headers):
            hint = "Open the page of the service itself, or send requests without a browser."
            return Problem(403, "cross_site", "Requests from other sites are not allowed.", hint)
        return None

    def _follows_link(self, scope: Scope, headers: Headers) -> bool:
        """Whether a link opens a page in a tab; frames and other addresses could make work."""
        return (
            scope["method"] in ("GET", "HEAD")
            and scope["path"].removeprefix(scope.get("root_path", "")) in self._pages
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest", "document") == "document"
        )


def _host_name(headers: Headers) -> str:
    """Host of the request without its port; "" if it is malformed.

    Any other name than that of this machine may be DNS rebinding.
    """
    match = _HOST.fullmatch(headers.get("host", "").lower())
    return (match["address"] or match["name"]) if match else ""


def _is_cross_site(headers: Headers) -> bool:
    """Whether a page of another site made a browser send this request.

    Browsers send Sec-Fetch-Site to loopback addresses and over HTTPS, Origin with every request
    that is not a plain GET.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


class _ResponseWrapper:
    """One request and its response."""

    def __init__(self, receive: Receive, send: Send, *, has_body: bool) -> None:
        self._receive, self._send = receive, send
        self._complete = not has_body  # whether the whole request was received
        self._closing = False
        self.status = 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._complete = self._complete or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begin(message)
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last and self._closing:
            await self._send({**message, "more_body": True})
            await self._lingering_close()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    def _begin(self, message: Message) -> None:
        self.status = message["status"]
        raw = list(message.get("headers", ()))
        given = {name for name, _ in raw}  # lower case, as ASGI requires
        raw.extend(pair for pair in _RAW_HEADERS.items() if pair[0] not in given)
        message["headers"] = raw
        self._closing = self.status >= 400 and not self._complete
        if self._closing:
            MutableHeaders(scope=message)["Connection"] = "close"

    async def _lingering_close(self) -> None:
        """Keep reading briefly: closing while a client still sends would discard the response."""
        loop, read = asyncio.get_running_loop(), 0
        deadline = loop.time() + _LINGER_SECONDS
        while not self._complete and read < _LINGER_BYTES:
            try:
                message = await asyncio.wait_for(self.receive(), deadline - loop.time())
            except asyncio.TimeoutError:
                return
            read += len(message.get("body", b""))
