"""The service conforms to its OpenAPI description."""

from __future__ import annotations

from contextlib import suppress

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from serving import WRITE, ToyCollection, in_thread

schemathesis = pytest.importorskip("schemathesis")

from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)


@pytest.fixture(scope="module")
def address(toy_collection, tmp_path_factory):
    import shutil

    root = tmp_path_factory.mktemp("described") / "own"
    shutil.copytree(toy_collection.root, root, symlinks=True)
    with in_thread(ToyCollection(root), write_token=WRITE) as address:
        yield address


BOUNDED = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_responses_match_the_description(address, mode):
    """Valid and invalid requests get responses that the description has."""
    described = schemathesis.openapi.from_url(f"{address}/openapi.json")
    for found in described.get_all_operations():
        operation = found.ok()

        @BOUNDED
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case):
            case.call_and_validate(checks=CHECKS, headers={"Authorization": f"Bearer {WRITE}"})

        with suppress(Unsatisfiable):  # some operations have no invalid requests
            check()


def test_every_route_is_described(address):
    paths = httpx.get(f"{address}/openapi.json").json()["paths"]
    assert set(paths) == {
        "/v1/search",
        "/v1/encode",
        "/v1/duplicates",
        "/v1/duplicates/dismiss",
        "/v1/items",
        "/v1/items/{id}",
        "/v1/images/{id}",
        "/v1/thumbnails/{id}",
        "/v1/map",
        "/v1/stats",
        "/v1/reload",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    assert set(paths["/v1/search"]["post"]["requestBody"]["content"]) == {
        "multipart/form-data",
        "application/octet-stream",
        "application/json",
    }
