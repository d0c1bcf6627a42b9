"""Bearer tokens for reading and writing."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from ..problem import Problem
from ..settings import ServeSettings

_bearer = HTTPBearer(auto_error=False, description="The read token or the write token.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def require_read_token(request: Request, credentials: Credentials) -> None:
    """Refuse a request without a valid token, if the service has a read token.

    Args:
        request: The request.
        credentials: Its bearer token.

    Raises:
        Problem: 401.
    """
    settings: ServeSettings = request.app.state.service.settings
    if settings.read_token is None:
        return
    if not _token_matches(credentials, settings.read_token, settings.write_token):
        raise _unauthorized("read")


def require_write_token(request: Request, credentials: Credentials) -> None:
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
    if not _token_matches(credentials, settings.write_token):
        raise _unauthorized("write")


def _token_matches(credentials: HTTPAuthorizationCredentials | None, *tokens: str | None) -> bool:
    """Compare in constant time."""
    given = (credentials.credentials if credentials else "").encode("utf-8", "replace")
    matches = [hmac.compare_digest(given, token.encode()) for token in tokens if token is not None]
    return any(matches)


def _unauthorized(kind: str) -> Problem:
    hint = "Send the header 'Authorization: Bearer TOKEN'."
    message = f"The {kind} token is required."
    return Problem(401, "unauthorized", message, hint, {"WWW-Authenticate": "Bearer"})
