"""Bearer tokens for reading and writing."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param

from ..problem import Problem
from ..settings import ServeSettings

_bearer = HTTPBearer(auto_error=False, description="The read token or the write token.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def check_read_token(request: Request) -> None:
    """Refuse a request without a valid token, if the service has a read token.

    Args:
        request: The request.

    Raises:
        Problem: 401.
    """
    settings: ServeSettings = request.app.state.service.settings
    if settings.read_token is None:
        return
    scheme, token = get_authorization_scheme_param(request.headers.get("Authorization"))
    given = token if scheme.lower() == "bearer" else ""
    if not _token_matches(given, settings.read_token, settings.write_token):
        raise _unauthorized("read")


async def require_read_token(request: Request, credentials: Credentials) -> None:
    """The dependency of a route that calls `check_read_token`.

    It is a coroutine, because FastAPI would run a function in another thread.

    Args:
        request: The request.
        credentials: Its bearer token, for the description of the API.

    Raises:
        Problem: 401.
    """
    check_read_token(request)


async def require_write_token(request: Request, credentials: Credentials) -> None:
    """Refuse a request without the write token.

    Args:
        request: The request.
        credentials: Its bearer token.

    Raises:
        Problem: 401, or 403 if the service is read-only.
    """
    settings: ServeSettings = request.app.state.service.settings
    if settings.write_token is None:
        hint = "Start the service with HADAHASH_WRITE_TOKEN set to allow changes."
        raise Problem(403, "read_only", "This service is read-only.", hint)
    if not _token_matches(credentials.credentials if credentials else "", settings.write_token):
        raise _unauthorized("write")


def _token_matches(given: str, *tokens: str | None) -> bool:
    """Compare in constant time."""
    sent = given.encode("utf-8", "replace")
    matches = [hmac.compare_digest(sent, token.encode()) for token in tokens if token is not None]
    return any(matches)


def _unauthorized(kind: str) -> Problem:
    hint = "Send the header 'Authorization: Bearer TOKEN'."
    message = f"The {kind} token is required."
    return Problem(401, "unauthorized", message, hint, {"WWW-Authenticate": "Bearer"})
