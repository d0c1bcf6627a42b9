"""What goes wrong, as an answer: a status and {"error": {"code", "message", "hint"}}."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from ..errors import HadaHashError, StorageError

LOG = logging.getLogger("hadahash.serve")


class Problem(Exception):
    """A request that cannot be answered, and what to do about it."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hint, self.headers = (
            status,
            code,
            message,
            hint,
            headers,
        )


def busy(message: str = "The service has as many requests as it can take.") -> Problem:
    return Problem(503, "busy", message, "Try again in a moment.", {"Retry-After": "1"})


def bad_parameters(errors: list[Any]) -> Problem:
    """The first thing that is wrong with the parameters, in words."""
    first = errors[0]
    place = (
        ".".join(str(part) for part in first["loc"] if part not in ("query", "body", "path"))
        or "request"
    )
    others = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    message = f"{place}: {first['msg'].removeprefix('Value error, ')}{others}"
    return Problem(422, "bad_parameters", message, "See /docs for the parameters and their limits.")


def answer(problem: Problem) -> JSONResponse:
    body = {
        "error": {"code": problem.code, "message": _plain(problem.message), "hint": problem.hint}
    }
    return JSONResponse(body, problem.status, headers=dict(problem.headers or {}))


def install(app: FastAPI) -> None:
    """Answer every error in the same form."""

    @app.exception_handler(Problem)
    async def of_ours(request: Request, error: Problem) -> JSONResponse:
        return answer(error)

    @app.exception_handler(HTTPException)
    async def of_starlette(request: Request, error: HTTPException) -> JSONResponse:
        phrase = HTTPStatus(error.status_code).phrase
        code = phrase.lower().replace(" ", "_")
        return answer(
            Problem(
                error.status_code, code, f"{phrase}.", "See /docs for what there is.", error.headers
            )
        )

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValidationError)
    async def of_parameters(
        request: Request, error: RequestValidationError | ValidationError
    ) -> JSONResponse:
        return answer(bad_parameters(list(error.errors())))

    @app.exception_handler(HadaHashError)
    async def of_the_library(request: Request, error: HadaHashError) -> JSONResponse:
        """Parameters are checked before the library sees them, so this is the service's fault; paths stay in the log."""
        LOG.error("%s %s: %s", request.method, request.url.path, error)
        if isinstance(error, StorageError):
            return answer(busy("The index cannot be reached just now."))
        return answer(
            Problem(
                500,
                "internal",
                "The service could not answer.",
                "Its log says why; tell who runs it.",
            )
        )


def _plain(text: str) -> str:
    """JSON has no place for surrogates, which odd file names and parameters may hold."""
    return text.encode("utf-8", "replace").decode()
