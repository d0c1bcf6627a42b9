"""Decoders of uploads: neither large images nor thumbnails keep all of them busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import numpy as np
import psutil
import pytest
from make_images import encode, picture, png
from serving import in_thread, wait_for

from hadahash.serve.core import decode_pool, decode_worker
from hadahash.serve.core.decode_pool import _THUMBNAIL_NICENESS

RED = "red/002.png"


def flat_png(width: int, height: int) -> bytes:
    """A small file of many pixels."""
    return png(width, height, 1, 0, bytes(height * (1 + -(-width // 8))))


@pytest.mark.parametrize(("kind", "large"), [("PNG", True), ("JPEG", False)])
def test_photos_of_phones_are_not_large(kind, large):
    """A JPEG is decoded at a fraction of its size."""
    content = encode(np.zeros((1500, 2000, 3), np.uint8), kind)
    limits = {"max_pixels": 10**8, "max_bytes": 10**8, "max_side": 10**5}
    task = {"kind": "square", "side": 256, "fit": "crop", "large_pixels": 10**6, **limits}
    answer, pixels = decode_worker.perform(task, content)
    assert ("large" in answer) == large and bool(pixels) != large


@pytest.fixture
def decoding(monkeypatch) -> Iterator[threading.Event]:
    """Decoders do not answer to large files before it is set."""
    go_on, real = threading.Event(), decode_pool.Worker.request

    async def request(self, message):
        answer = await real(self, message)
        while len(message) > 2000 and "large" not in answer[0] and not go_on.is_set():
            await asyncio.sleep(0.01)
        return answer

    monkeypatch.setattr(decode_pool.Worker, "request", request)
    yield go_on
    go_on.set()


def test_large_images_leave_decoders_to_others(collection_copy, decoding):
    large, small = flat_png(5000, 4001), encode(picture(), "PNG")
    assert len(large) > 2000 > len(small)
    limits = {"decode_workers": 2, "decode_seconds": 60, "queue": 16}
    with in_thread(collection_copy, **limits) as address, ThreadPoolExecutor(5) as pool:

        def search(image):
            return httpx.post(f"{address}/v1/search", files={"image": image}, timeout=60)

        waiting = [pool.submit(search, large) for _ in range(5)]
        wait_for(lambda: any(each.done() for each in waiting))
        refused = [each.result() for each in waiting if each.done()]
        answers = [
            httpx.post(f"{address}/v1/search", files={"image": small}, timeout=10) for _ in range(3)
        ]
        decoding.set()
        assert [answer.status_code for answer in answers] == [200] * 3
        assert all(answer.json()["error"]["code"] == "busy" for answer in refused)
        done = sorted(each.result().status_code for each in waiting)
        assert done == [200] * 4 + [503], "a quarter of the queue is for large images"


@pytest.fixture
def stopped_thumbnails() -> Iterator[Callable[[], None]]:
    """A function that stops the decoder processes for thumbnails, until the end of the test."""
    stopped: list[psutil.Process] = []

    def stop():
        niceness = str(_THUMBNAIL_NICENESS)
        for process in psutil.Process().children():
            if process.cmdline()[-1] == niceness:
                process.suspend()
                stopped.append(process)
        assert stopped

    yield stop
    for process in stopped:
        with suppress(psutil.NoSuchProcess):
            process.resume()


def test_uploads_do_not_wait_for_thumbnails(collection_copy, stopped_thumbnails):
    limits = {"thumbnail_workers": 1, "decode_seconds": 60}
    with in_thread(collection_copy, **limits) as address, ThreadPoolExecutor(1) as pool:
        assert httpx.get(f"{address}/v1/thumbnails/blue/000.png").status_code == 200
        stopped_thumbnails()
        waiting = pool.submit(httpx.get, f"{address}/v1/thumbnails/{RED}", timeout=60)
        image = encode(picture(), "PNG")
        for _ in range(3):
            answer = httpx.post(f"{address}/v1/search", files={"image": image}, timeout=30)
            assert answer.status_code == 200 and not waiting.done()
        resumed = [each.resume() for each in psutil.Process().children()]
        assert resumed and waiting.result().status_code == 200
