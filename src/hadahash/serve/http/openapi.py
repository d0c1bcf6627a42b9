"""Parts of the OpenAPI description that several routes share."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel

from . import schema

IdInPath = Annotated[str, Path(description="Id of an item; it can contain slashes.")]
Responses = dict[int | str, dict[str, Any]]


def errors(*statuses: int) -> Responses:
    """Describe error responses.

    Args:
        *statuses: HTTP status codes.
    """
    return {status: {"model": schema.ErrorAnswer} for status in statuses}


def request_body(parameters: type[BaseModel]) -> dict[str, Any]:
    """Describe a body that is a form, JSON or an image.

    Args:
        parameters: The parameters of the route.
    """
    return schema.body_of(parameters) | {"parameters": schema.query_of(parameters)}


BODY_ERRORS = errors(400, 401, 403, 408, 413, 415, 421, 422, 503)
