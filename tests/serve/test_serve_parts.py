"""The parts that need no HTTP: settings, gate, batches, the processes that decode, the map."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import numpy as np
import pytest
from make_images import encode, picture
from toys import one_line

from hadahash.codes import Codes, pack
from hadahash.data.images import open_image, shrink_to_square
from hadahash.data.preprocess import Preprocess
from hadahash.errors import UsageError
from hadahash.serve import decoding
from hadahash.serve.batching import Batcher, Gate
from hadahash.serve.collection import label_values, open_collection
from hadahash.serve.decoding import DecodePool
from hadahash.serve.problems import Problem
from hadahash.serve.projection import project
from hadahash.serve.service import Service
from hadahash.serve.settings import ServeSettings

LONG = "a-token-long-enough"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_needs_no_token(host):
    assert ServeSettings(host=host).read_token is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_other_machines_need_one(host):
    with pytest.raises(UsageError, match="HADAHASH_READ_TOKEN"):
        ServeSettings(host=host)
    with pytest.raises(UsageError, match="read token is needed"):
        ServeSettings(host=host, write_token=LONG)
    assert ServeSettings(host=host, read_token=LONG).host == host


@pytest.mark.parametrize(
    "settings",
    [
        {"read_token": "short"},
        {"write_token": "ä" * 20},
        {"read_token": LONG, "write_token": LONG},
        {"port": 70_000},
        {"queue": 0},
        {"max_bytes": -1},
    ],
)
def test_settings_that_cannot_be(settings):
    with pytest.raises(UsageError) as caught:
        ServeSettings(**settings)
    one_line(caught.value)


def test_open_collection_names_what_is_missing(place):
    index = place.root / "photos.index"
    with pytest.raises(UsageError, match="--run"):
        open_collection(index)
    with pytest.raises(UsageError, match="--images"):
        open_collection(index, place.root / "run", [place.root / "nowhere"])


def test_an_index_tells_its_model_and_its_images(own_place):
    """As `hadahash index build` leaves it; the paths in it are absolute, and may be those of another machine."""
    photos, index = own_place.root / "photos", own_place.index
    index.meta |= {"run": str(own_place.root / "run"), "images": str(photos)}
    index.update(
        index.codes(),
        paths=[str(photos / name) for name in index.ids[:-1]] + ["/elsewhere/photos/x.png"],
    )
    index.save(own_place.root / "photos.index")
    sources = open_collection(own_place.root / "photos.index")
    assert sources.run is None and sources.images == (photos,)
    service = Service(sources, ServeSettings(device="cpu"))
    _, snapshot = service._open()
    assert all(snapshot.picture_path(item) == photos / item.id for item in index.get(index.ids))


def test_labels_may_be_numbers():
    assert label_values(["cat", "7", "-7", "²"]) == ["cat", "7", "-7", "²", 7]


def test_the_gate_lets_only_so_many_in():
    gate = Gate(2)
    with gate, gate:
        with pytest.raises(Problem) as caught, gate:
            pass
        assert caught.value.status == 503 and caught.value.headers == {"Retry-After": "1"}
    with gate:
        assert gate.taken == 1


def test_questions_that_wait_are_answered_together():
    sizes = []

    def work(questions):
        time.sleep(0.05)
        return [question * 2 for question in questions]

    async def ask_all():
        batcher = Batcher(work, most=8, seen=sizes.append)
        first = asyncio.create_task(batcher.ask(0))
        await asyncio.sleep(0.01)
        rest = [batcher.ask(number) for number in range(1, 20)]
        return await asyncio.gather(first, *rest)

    assert asyncio.run(ask_all()) == [2 * number for number in range(20)]
    assert sizes == [1, 8, 8, 3], "the first did not wait for others, the others went together"


def test_an_error_reaches_everyone_who_asked_and_no_one_else():
    def work(questions):
        if "bad" in questions:
            raise UsageError("bad")
        return questions

    async def ask_all():
        batcher = Batcher(work, most=8, seen=lambda size: None)
        asked = await asyncio.gather(
            batcher.ask("bad"), batcher.ask("beside it"), return_exceptions=True
        )
        gone = asyncio.create_task(batcher.ask("gone"))
        await asyncio.sleep(0)
        gone.cancel()
        return asked, await batcher.ask("good")

    (one, two), good = asyncio.run(ask_all())
    assert isinstance(one, UsageError) and isinstance(two, UsageError) and good == "good"


# A worker that sleeps, dies or talks nonsense when an image tells it to.
_ODD_WORKER = """
import os, sys, time
from hadahash.serve import worker
whole = worker.perform
def odd(task, content):
    if content == b"sleep": time.sleep(60)
    if content == b"die": os._exit(9)
    return whole(task, content)
worker.perform = odd
worker.main()
"""


def test_a_decode_that_hangs_or_dies_does_not_stop_the_others(monkeypatch):
    monkeypatch.setattr(decoding, "COMMAND", (sys.executable, "-c", _ODD_WORKER))
    preprocess, image = Preprocess(side=20), encode(picture(), "PNG")

    async def decode_all():
        pool = DecodePool(ServeSettings(decode_workers=2, decode_seconds=1))
        await pool.start()
        stuck = asyncio.create_task(pool.square(b"sleep", preprocess))
        started, others = time.monotonic(), []
        for _ in range(20):
            others.append(await pool.square(image, preprocess))
        took = time.monotonic() - started
        assert not stuck.done() and took < 1
        errors = await asyncio.gather(
            stuck, pool.square(b"die", preprocess), return_exceptions=True
        )
        again = [
            await pool.square(image, preprocess) for _ in range(4)
        ]  # both workers are there again
        await pool.close()
        return errors, others + again, pool.replaced

    errors, squares, replaced = asyncio.run(decode_all())
    assert [error.status for error in errors] == [422, 422] and replaced == 2
    expected = shrink_to_square(open_image(image), 20)
    assert all(np.array_equal(square, expected) for square in squares), (
        "and decoded just as when indexed"
    )


def test_no_process_is_left():
    async def start_and_stop():
        pool = DecodePool(ServeSettings(decode_workers=3))
        await pool.start()
        processes = [worker._process for worker in pool._all]
        await pool.close()
        return [process.returncode for process in processes]

    assert asyncio.run(start_and_stop()) == [-9, -9, -9] and threading.active_count() < 50


def test_the_map_is_the_principal_plane():
    rng = np.random.default_rng(0)
    signs = np.where(rng.random((300, 24)) < 0.5, 1, -1)
    points = project(Codes(packed=pack(signs), bits=24))
    centred = signs - signs.mean(axis=0)
    plane = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    for mine, theirs in zip(points.T, plane.T, strict=True):
        assert abs(np.corrcoef(mine, theirs)[0, 1]) > 0.999
    assert np.abs(points).max() == pytest.approx(1)
    assert np.array_equal(points, project(Codes(packed=pack(signs), bits=24)))


def test_equal_codes_lie_side_by_side():
    codes = Codes(packed=np.repeat(np.uint8([[0], [255]]), 50, axis=0), bits=8)
    points = project(codes)
    assert len(np.unique(points.round(6), axis=0)) == 100
    assert max(np.ptp(points[:50, 0]), np.ptp(points[50:, 0])) < abs(
        points[:50, 0].mean() - points[50:, 0].mean()
    )


@pytest.mark.parametrize("count", [0, 1, 2])
def test_maps_of_next_to_nothing(count):
    points = project(Codes(packed=np.zeros((count, 2), np.uint8), bits=16))
    assert points.shape == (count, 2) and np.isfinite(points).all()
