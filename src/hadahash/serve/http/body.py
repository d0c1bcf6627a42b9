"""Request bodies: limited in bytes and time while they arrive, and never written to disk."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastapi import Request
from pydantic import BaseModel
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import Message

from ..core.limits import client_name
from ..core.service import Service
from ..problem import Problem, busy
from ..settings import ServeSettings

P = TypeVar("P", bound=BaseModel)
_FORM_OVERHEAD = 65_536  # bytes of a form besides its image
_LISTS = ("label",)  # parameters that can be repeated
_FORM_HINT = "Send a form in UTF-8 with one image and a few fields."


@dataclass(frozen=True)
class ParsedRequest(Generic[P]):
    """The parameters of a request, and the image that it contains."""

    parameters: P
    image: bytes | None


class _Held:
    """The bytes of a body, which count against the memory limit of all bodies."""

    def __init__(self, service: Service) -> None:
        self._service, self.count = service, 0

    def add(self, count: int) -> None:
        """Count received bytes.

        Raises:
            Problem: 503, if all bodies together are too large.
        """
        self.count += count
        self._service.upload_bytes += count
        if self._service.upload_bytes > self._service.settings.upload_memory:
            raise busy()

    def release(self) -> None:
        self._service.upload_bytes -= self.count
        self.count = 0


def client_of(request: Request) -> str:
    """Return the name under which the requests of a client are counted."""
    return client_name(request.client)


@asynccontextmanager
async def received(
    request: Request, model: type[P], service: Service
) -> AsyncIterator[ParsedRequest[P]]:
    """Read the body of a request. It counts against `upload_memory` until the context ends.

    The body is JSON; or a form with an `image`; or an image, with its parameters in the query.

    Args:
        request: The request.
        model: The parameters.
        service: Its limits, and the memory of all bodies.

    Yields:
        Parameters and image.

    Raises:
        Problem: If the body is too large, too slow or not valid.
        ValidationError: If the parameters are not valid.
    """
    held = _Held(service)
    try:
        yield await _parse(request, model, service, held)
    finally:
        held.release()


async def _parse(
    request: Request, model: type[P], service: Service, held: _Held
) -> ParsedRequest[P]:
    media_type, charset = _content_type(request)
    settings = service.settings
    with service.uploads.admit(client_of(request)):
        if media_type == "application/json":
            body = await _read_body(request, settings.max_field_bytes, settings, held)
            return ParsedRequest(model.model_validate(_parse_json(body)), None)
        if media_type == "multipart/form-data":
            if charset not in ("utf-8", "utf8"):
                message = "Forms in other encodings than UTF-8 are not supported."
                raise Problem(400, "bad_form", message, _FORM_HINT)
            return await _parse_form(request, model, settings, held)
        if media_type == "application/octet-stream" or media_type.startswith("image/"):
            parameters = model.model_validate(_collect_params(request.query_params.multi_items()))
            body = await _read_body(request, settings.max_bytes, settings, held)
            return ParsedRequest(parameters, body)
    hint = "Send multipart/form-data, application/json, or an image as application/octet-stream."
    message = f"Unsupported content type '{media_type[:60]}'."
    raise Problem(415, "unknown_content_type", message, hint)


def _content_type(request: Request) -> tuple[str, str]:
    """Media type and charset of a request, as the form parser reads them."""
    text = request.headers.get("content-type", "")
    if text == "application/json":  # needs no parser
        return text, "utf-8"
    media_type, options = parse_options_header(text)
    charset = options.get(b"charset", b"utf-8")
    return media_type.decode("latin-1"), charset.decode("latin-1").lower()


async def _parse_form(
    request: Request, model: type[P], settings: ServeSettings, held: _Held
) -> ParsedRequest[P]:
    limit = settings.max_bytes + _FORM_OVERHEAD
    parser = MultiPartParser(
        request.headers,
        _body_parts(request, limit, settings, held),
        max_files=settings.max_files,
        max_fields=settings.max_fields,
        max_part_size=settings.max_field_bytes,
    )
    parser.spool_max_size = limit  # files stay in memory
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Problem(400, "bad_form", error.message, _FORM_HINT) from None
    except ValueError:  # includes UnicodeError
        raise Problem(400, "bad_form", "The form is not valid.", _FORM_HINT) from None
    try:
        return await _split_form(form, model, settings.max_bytes)
    finally:
        await form.close()


async def _split_form(form: FormData, model: type[P], max_bytes: int) -> ParsedRequest[P]:
    fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    uploads = [(name, value) for name, value in form.multi_items() if isinstance(value, UploadFile)]
    if [name for name, _ in uploads] != ["image"]:
        hint = "Send one image as the part 'image', with a file name: curl -F image=@cat.jpg"
        message = f"The form must have one file named 'image', got {len(uploads)} files."
        raise Problem(422, "no_image_sent", message, hint)
    image = await uploads[0][1].read()
    if len(image) > max_bytes:
        raise _too_large(max_bytes)
    return ParsedRequest(model.model_validate(_collect_params(fields)), image)


async def _read_body(request: Request, limit: int, settings: ServeSettings, held: _Held) -> bytes:
    return b"".join([part async for part in _body_parts(request, limit, settings, held)])


async def _body_parts(
    request: Request, limit: int, settings: ServeSettings, held: _Held
) -> AsyncGenerator[bytes, None]:
    """The body in parts; raises as soon as it is too long or too slow."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    loop, more = asyncio.get_running_loop(), True
    deadline = loop.time() + settings.upload_seconds
    while more:
        message = await _receive(request, deadline - loop.time(), settings.upload_seconds)
        part, more = message.get("body", b""), message.get("more_body", False)
        held.add(len(part))
        if held.count > limit:
            raise _too_large(limit)
        yield part


async def _receive(request: Request, left: float, seconds: float) -> Message:
    """The next part of a request that may take `seconds` in total."""
    try:
        message = await _within(request.receive(), left)
    except asyncio.TimeoutError:
        text = f"The request took more than {seconds:g} s to arrive."
        raise Problem(408, "too_slow", text, "Send a smaller image.") from None
    if message["type"] == "http.disconnect":
        text = "The client closed the connection."
        raise Problem(400, "gone", text, "Send the whole request.")
    return message


async def _within(awaited: Awaitable[Message], seconds: float) -> Message:
    if sys.version_info < (3, 11):
        return await asyncio.wait_for(awaited, seconds)
    async with asyncio.timeout(seconds):  # without a task of its own
        return await awaited


def _too_large(limit: int) -> Problem:
    message = f"The request is larger than the limit of {limit:,} bytes."
    return Problem(413, "too_large", message, "Send a smaller image, or fewer values.")


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        hint = 'Send an object such as {"id": "cats/1.jpg"}.'
        raise Problem(400, "bad_json", "The body is not valid JSON.", hint) from None


def _collect_params(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Collect pairs; a repeated parameter becomes a list, which validation may refuse."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in _LISTS:
            found.setdefault(name, []).append(value)
        else:
            found[name] = [found[name], value] if name in found else value
    return found
