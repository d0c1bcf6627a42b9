"""Reading a request's body: as it comes in, up to a limit in bytes and time, and never onto the disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from .problems import Problem
from .settings import ServeSettings

P = TypeVar("P", bound=BaseModel)
_ENVELOPE = 65_536  # what a form may take besides its image
_LISTS = ("label",)  # parameters that may come more than once


@dataclass(frozen=True)
class Asked(Generic[P]):
    """A request's parameters, and the image it brought."""

    parameters: P
    image: bytes | None


async def read_asked(request: Request, kind: type[P], settings: ServeSettings) -> Asked[P]:
    """JSON; or a form with an `image`; or an image as the whole body, its parameters in the query string."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "application/json":
        body = await _whole(request, settings.max_field_bytes, settings)
        return Asked(kind.model_validate(_json(body)), None)
    if content_type == "multipart/form-data":
        return await _form(request, kind, settings)
    if content_type == "application/octet-stream" or content_type.startswith("image/"):
        parameters = kind.model_validate(_gathered(request.query_params.multi_items()))
        return Asked(parameters, await _whole(request, settings.max_bytes, settings))
    hint = "Send multipart/form-data with an image, application/json, or the image itself as application/octet-stream."
    raise Problem(
        415,
        "unknown_content_type",
        f"The content type '{content_type[:60]}' is not read here.",
        hint,
    )


async def _form(request: Request, kind: type[P], settings: ServeSettings) -> Asked[P]:
    parser = MultiPartParser(
        request.headers,
        _limited(request, settings.max_bytes + _ENVELOPE, settings),
        max_files=settings.max_files,
        max_fields=settings.max_fields,
        max_part_size=settings.max_field_bytes,
    )
    parser.spool_max_size = (
        settings.max_bytes + _ENVELOPE
    )  # more than can come: files stay in memory
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Problem(
            400, "bad_form", error.message, "Send a form with one image and a few fields."
        ) from None
    try:
        return await _split(form, kind, settings)
    finally:
        await form.close()


async def _split(form: FormData, kind: type[P], settings: ServeSettings) -> Asked[P]:
    fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    uploads = [(name, value) for name, value in form.multi_items() if isinstance(value, UploadFile)]
    if [name for name, _ in uploads] != ["image"]:
        hint = "Send one image as the part 'image', with a file name: curl -F image=@cat.jpg"
        raise Problem(
            422,
            "no_image_sent",
            f"The form has {len(uploads)} files, not one that is called 'image'.",
            hint,
        )
    image = await uploads[0][1].read()
    if len(image) > settings.max_bytes:
        raise _too_large(settings.max_bytes)
    return Asked(kind.model_validate(_gathered(fields)), image)


async def _whole(request: Request, limit: int, settings: ServeSettings) -> bytes:
    return b"".join([part async for part in _limited(request, limit, settings)])


async def _limited(
    request: Request, limit: int, settings: ServeSettings
) -> AsyncGenerator[bytes, None]:
    """The body in parts; an error as soon as it is known to be longer than the limit, or takes too long to come."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    loop, received = asyncio.get_running_loop(), 0
    deadline = loop.time() + settings.upload_seconds
    parts = request.stream()
    while True:
        try:
            part = await asyncio.wait_for(anext(parts), deadline - loop.time())
        except StopAsyncIteration:
            return
        except asyncio.TimeoutError:
            raise Problem(
                408, "too_slow", "The request took too long to arrive.", "Send a smaller image."
            ) from None
        except ClientDisconnect:
            raise Problem(400, "gone", "The client has gone.", "Send the whole request.") from None
        received += len(part)
        if received > limit:
            raise _too_large(limit)
        yield part


def _too_large(limit: int) -> Problem:
    return Problem(
        413,
        "too_large",
        f"The request is longer than the {limit:,} bytes allowed.",
        "Send a smaller image.",
    )


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(
            400,
            "bad_json",
            "The body is not valid JSON.",
            'Send an object such as {"id": "cats/1.jpg"}.',
        ) from None


def _gathered(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Pairs to parameters; what comes twice and is not a list is an error of its own when it is checked."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in _LISTS:
            found.setdefault(name, []).append(value)
        else:
            found[name] = [found[name], value] if name in found else value
    return found
