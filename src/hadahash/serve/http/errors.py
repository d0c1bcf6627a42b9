"""Every error as JSON: {"error": {"code", "message", "hint"}}."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from ...errors import HadaHashError, StorageError
from ..core.names import to_json
from ..problem import Problem, busy

LOG = logging.getLogger(__name__)


def respond(problem: Problem) -> JSONResponse:
    """Return the response for a problem."""
    message = str(to_json(problem.message))
    body = {"error": {"code": problem.code, "message": message, "hint": problem.hint}}
    return JSONResponse(body, problem.status, headers=dict(problem.headers or {}))


def internal() -> Problem:
    """Return the answer for an unexpected error. The details stay in the log."""
    hint = "The log of the service has the details."
    return Problem(500, "internal", "The service could not answer.", hint)


def bad_parameters(errors: list[Any]) -> Problem:
    """Return the answer for parameters that pydantic refused; it names the first one."""
    first = errors[0]
    parts = [str(part) for part in first["loc"] if part not in ("query", "body", "path")]
    more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    text = first["msg"].removeprefix("Value error, ")
    message = f"{'.'.join(parts) or 'request'}: {text}{more}"
    return Problem(422, "bad_parameters", message, "See /docs for the parameters and their limits.")


def install(app: FastAPI) -> None:
    """Register handlers that return every error in the same form."""

    @app.exception_handler(Problem)
    async def answer_problem(request: Request, error: Problem) -> JSONResponse:
        return respond(error)

    @app.exception_handler(HTTPException)
    async def answer_http_error(request: Request, error: HTTPException) -> JSONResponse:
        phrase = HTTPStatus(error.status_code).phrase
        code, hint = phrase.lower().replace(" ", "_"), "See /docs for the routes."
        return respond(Problem(error.status_code, code, f"{phrase}.", hint, error.headers))

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValidationError)
    async def answer_invalid_parameters(
        request: Request, error: RequestValidationError | ValidationError
    ) -> JSONResponse:
        return respond(bad_parameters(list(error.errors())))

    @app.exception_handler(HadaHashError)
    async def answer_library_error(request: Request, error: HadaHashError) -> JSONResponse:
        """Parameters are checked before, so the cause is the service. Paths stay in the log."""
        LOG.error("%s %s: %s", request.method, request.url.path, error)
        storage = isinstance(error, StorageError)
        return respond(busy("The index is not available.") if storage else internal())
