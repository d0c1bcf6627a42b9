"""Routes for search and encoding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute

from ...codes import Codes
from ...queries import Queries
from ..core.collection import display_name
from ..core.encode import EncodedQuery
from ..core.names import to_json
from ..core.query import SearchQuery, values_text
from ..core.results import Found, Shown
from ..core.service import Service
from ..core.timing import StageTimer
from ..problem import Problem
from . import schema
from .auth import check_read_token, require_read_token
from .body import client_of, received
from .openapi import BODY_ERRORS, errors, request_body
from .schema import PLAIN_VALUES, NoParameters, SearchParameters

_PLAIN = tuple(name for name in SearchParameters.model_fields if name != "label")
_HITS_PER_TURN = 100  # they are written in a fraction of a millisecond


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
        client = client_of(request)
        async with received(request, SearchParameters, service) as parsed:
            with service.searches.admit(client):
                timer, given = StageTimer(service.metrics), parsed.parameters
                values = {name: getattr(given, name) for name in _PLAIN}
                query = SearchQuery(**values, labels=tuple(given.label))
                found = await service.search(query, parsed.image, timer, client)
                return Response(await answer_body(found, timer), media_type="application/json")

    @router.post(
        "/encode",
        response_model=schema.EncodeAnswer,
        responses=BODY_ERRORS,
        openapi_extra=request_body(NoParameters),
    )
    async def encode(request: Request) -> Response:
        """The code of an uploaded image."""
        service.require_ready()
        client = client_of(request)
        async with received(request, NoParameters, service) as parsed:
            if parsed.image is None:
                hint = "Send it as the part 'image' of a form."
                raise Problem(415, "no_image_sent", "The request contains no image.", hint)
            with service.searches.admit(client):
                timer = StageTimer(service.metrics)
                encoded, model = await service.encode(parsed.image, timer, client)
                body = PLAIN_VALUES.dump_json(_encoded(encoded, model, timer))
                return Response(body, media_type="application/json")

    return router


def _encoded(encoded: EncodedQuery, model: str, timer: StageTimer) -> dict[str, Any]:
    """The values of a `schema.EncodeAnswer`."""
    return _code(encoded.query) | {
        "values": values_text(encoded.query, model, encoded.looks),
        "looks": encoded.looks.hex(),
        "model": model,
        "took_ms": timer.elapsed(),
    }


async def answer_body(found: Found, timer: StageTimer) -> bytes:
    """Write a `schema.SearchAnswer`; other requests have their turn between the parts of its hits.

    Args:
        found: The results.
        timer: Measured the stages.

    Returns:
        JSON.
    """
    hits, parts = found.hits, []
    if len(hits) <= _HITS_PER_TURN:
        return PLAIN_VALUES.dump_json(answer_of(found, timer))
    for start in range(0, len(hits), _HITS_PER_TURN):
        part = [_hit(each) for each in hits[start : start + _HITS_PER_TURN]]
        parts.append(PLAIN_VALUES.dump_json(part)[1:-1])
        await asyncio.sleep(0)
    rest = PLAIN_VALUES.dump_json(answer_of(found._replace(hits=[]), timer))
    before, name, after = rest.partition(b'"hits":[')  # quotes within texts are escaped
    return b"".join((before, name, b",".join(parts), after))


def answer_of(found: Found, timer: StageTimer) -> dict[str, Any]:
    """Return the values of a `schema.SearchAnswer`.

    Args:
        found: The results.
        timer: Measured the stages.

    Returns:
        Plain values.
    """
    item = found.item
    query = {
        "id": None if item is None else to_json(item.id),
        "name": None if item is None else display_name(item),
        "labels": [] if item is None else [to_json(label) for label in item.labels],
        "values": values_text(found.query, found.model, found.looks)
        if isinstance(found.query, Queries)
        else None,
        "looks": None if found.looks is None else found.looks.hex(),
        "model": found.model,
    }
    return {
        "query": query | _code(found.query),
        "rank": found.rank,
        "weight": found.weight,
        "hits": [_hit(each) for each in found.hits],
        "exact": True,  # the service never limits the probes of a search
        "took_ms": timer.elapsed(),
    }


def _code(query: Queries | Codes) -> dict[str, Any]:
    codes = query.codes() if isinstance(query, Queries) else query
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
        "looks_distance": shown.looks_distance,
        "score": neighbor.score,
        "similarity": neighbor.similarity,
        "same_photo": shown.same_photo,
        "code": neighbor.code.tobytes().hex(),
        "has_image": shown.has_image,
    }
