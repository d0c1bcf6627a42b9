"""The service reads HEIC and AVIF uploads, with the same limits as other images."""

from __future__ import annotations

from pathlib import Path

import pytest
from make_images import encode, picture
from PIL import features

from hadahash.data.images import LIMITS
from hadahash.serve.settings import ServeSettings

HEIC = Path(__file__).parents[1] / "data" / "heic" / "turned.heic"


def search(client, content: bytes, name: str):
    return client.post("/v1/search", files={"image": (name, content)}, data={"k": "3"})


@pytest.mark.parametrize("kind", ["heic", "avif"])
def test_an_upload_finds_images(client, kind):
    if kind == "heic":
        pytest.importorskip("pi_heif")
    elif not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    content = HEIC.read_bytes() if kind == "heic" else encode(picture(), "AVIF")
    answer = search(client, content, f"photo.{kind}")
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["hits"]) == 3
    damaged = search(client, content[:200], f"photo.{kind}")
    assert damaged.status_code == 422


def test_an_image_that_can_be_indexed_can_be_a_query():
    assert ServeSettings().max_pixels >= LIMITS.max_pixels
