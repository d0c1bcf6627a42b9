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
    return _body(parameters) | {"parameters": _query(parameters)}


BODY_ERRORS = errors(400, 401, 403, 408, 413, 415, 421, 422, 503)

_IMAGE = {
    "type": "string",
    "format": "binary",
    "description": "A JPEG, PNG, WebP, GIF, BMP, TIFF or PPM image.",
}


def _body(parameters: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI request body: a form with an image, JSON, or the image itself."""
    described = parameters.model_json_schema()
    fields = {
        name: part
        for name, part in described["properties"].items()
        if name not in _FROM_CODE[parameters]
    }
    form = {
        "type": "object",
        "properties": {"image": _IMAGE, **fields},
        "required": ["image", *(name for name in described.get("required", []) if name in fields)],
        "additionalProperties": False,
    }
    content: dict[str, Any] = {
        "multipart/form-data": {"schema": form},
        "application/octet-stream": {"schema": _IMAGE},
    }
    if "code" in described["properties"]:
        content["application/json"] = {"schema": described}
    return {"requestBody": {"required": True, "content": content}}


_FROM_CODE: dict[type[BaseModel], tuple[str, ...]] = {
    schema.SearchParameters: ("id", "code", "content", "values", "looks", "model"),
    schema.ItemParameters: ("code", "content", "model"),
    schema.NoParameters: (),
}


def _query(parameters: type[BaseModel]) -> list[dict[str, Any]]:
    """The same parameters as a query string, for images that are the whole body."""
    described = parameters.model_json_schema()
    skipped = _FROM_CODE[parameters]
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": part,
            "description": part.get("description", ""),
        }
        for name, part in described["properties"].items()
        if name not in skipped
    ]
