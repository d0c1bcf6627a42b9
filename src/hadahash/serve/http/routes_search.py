"""Routes for search and encoding."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute

from ...queries import Queries
from ..core.collection import display_name
from ..core.names import to_json
from ..core.query import SearchQuery, values_text
from ..core.search import Found, Shown
from ..core.service import Service
from ..core.timing import StageTimer
from ..problem import Problem
from . import schema
from .auth import check_read_token, require_read_token
from .body import client_of, parse_request
from .openapi import BODY_ERRORS, errors, request_body
from .schema import NoParameters, SearchParameters

_PLAIN = tuple(name for name in SearchParameters.model_fields if name != "label")
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class _DirectRoute(APIRoute):
    """A route whose function takes the request and returns the response.

    FastAPI describes it, dependencies included, but does not run it: it would take longer than the
    search. The read token is checked here.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            check_read_token(request)
            response: Response = await endpoint(request)
            return response

        return handle


def search_routes(service: Service) -> APIRouter:
    """Return the routes /v1/search and /v1/encode.

    Args:
        service: Answers them.
    """
    router = APIRouter(
        prefix="/v1",
        dependencies=[Depends(require_read_token)],
        responses=errors(401, 403, 421, 503),
        route_class=_DirectRoute,
    )

    @router.post(
        "/search",
        response_model=schema.SearchAnswer,
        responses=BODY_ERRORS | errors(404, 409),
        openapi_extra=request_body(SearchParameters),
    )
    async def search(request: Request) -> Response:
        """The most similar items of an uploaded image, of a code, or of an item of the index."""
        service.require_ready()
        parsed = await parse_request(request, SearchParameters, service)
        client = client_of(request)
        with service.searches.admit(client):
            timer, given = StageTimer(service.metrics), parsed.parameters
            values = {name: getattr(given, name) for name in _PLAIN}
            query = SearchQuery(**values, labels=tuple(given.label))
            found = await service.search(query, parsed.image, timer, client)
            return _JSONResponse(_answer(found, timer))

    @router.post(
        "/encode",
        response_model=schema.EncodeAnswer,
        responses=BODY_ERRORS,
        openapi_extra=request_body(NoParameters),
    )
    async def encode(request: Request) -> Response:
        """The code of an uploaded image."""
        service.require_ready()
        parsed = await parse_request(request, NoParameters, service)
        if parsed.image is None:
            hint = "Send it as the part 'image' of a form."
            raise Problem(415, "no_image_sent", "The request contains no image.", hint)
        client = client_of(request)
        with service.searches.admit(client):
            timer = StageTimer(service.metrics)
            encoded, model = await service.encode(parsed.image, timer, client)
            query, looks = encoded
            answer = {"values": values_text(query, model, looks), "looks": looks.hex()}
            answer |= _code(query) | {"model": model, "took_ms": timer.elapsed()}
            return _JSONResponse(answer)

    return router


class _JSONResponse(Response):
    """A response of plain values. A model per hit would take longer than the search."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return _ENCODER.encode(content).encode()


def _answer(found: Found, timer: StageTimer) -> dict[str, Any]:
    """The values of a `schema.SearchAnswer`."""
    result, item = found.result, found.result.item
    query = {
        "id": None if item is None else to_json(item.id),
        "name": None if item is None else display_name(item),
        "labels": [] if item is None else [to_json(label) for label in item.labels],
        "values": values_text(result.query, found.model, result.looks) if found.real else None,
        "looks": None if result.looks is None else result.looks.hex(),
        "model": found.model,
    }
    return {
        "query": query | _code(result.query),
        "rank": found.rank,
        "weight": found.weight,
        "hits": [_hit(each) for each in result.hits],
        "exact": True,  # the service never limits the probes of a search
        "took_ms": timer.elapsed(),
    }


def _code(query: Queries) -> dict[str, Any]:
    codes = query.codes()
    return {
        "code": codes.packed.tobytes().hex(),
        "bits": codes.bits,
        "content": None if codes.content is None else codes.content.tobytes().hex(),
        "content_bits": codes.content_bits,
    }


def _hit(shown: Shown) -> dict[str, Any]:
    """The values of a `schema.Hit`."""
    neighbor = shown.neighbor
    return {
        "id": to_json(neighbor.id),
        "name": display_name(neighbor),
        "labels": [to_json(label) for label in neighbor.labels],
        "distance": neighbor.distance,
        "content_distance": neighbor.content_distance,
        "looks_distance": shown.sameness.looks_distance,
        "score": neighbor.score,
        "similarity": neighbor.similarity,
        "same_photo": shown.sameness.same,
        "code": neighbor.code.tobytes().hex(),
        "has_image": shown.has_image,
    }
