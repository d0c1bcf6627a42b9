"""Mutated images: decoded or refused by type, in bounded time and memory; also by the service."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import httpx
import psutil
import pytest
from decode_batch import MEGABYTES, SECONDS
from make_images import animation, corpus, encode, many_frames, picture, scan_bomb
from mutations import mutated
from PIL import features
from raw_files import dng, two_colors
from serving import ToyCollection, in_thread
from toys import make_toy, write_folder
from trials import Crashed

from hadahash import Index

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")

BATCH = 100
DECODER = Path(__file__).parent / "decode_batch.py"
DIED = re.compile("crashed the decoder|took more than")  # a decoder of the service
HEIC = Path(__file__).parents[1] / "data" / "heic"


@cache
def seeds() -> list[bytes]:
    """Small files of every format that is read, whole and broken."""
    found = [case.data for case in corpus() if len(case.data) < 20_000]
    formats = ["JPEG", "PNG", "GIF", "TIFF", "BMP", "PPM"]
    formats += [name for name in ("WEBP", "AVIF") if features.check(name.lower())]
    found += [encode(picture(), name) for name in formats]
    found += [animation(name, 5) for name in ("GIF", "PNG")]
    found += [path.read_bytes() for path in sorted(HEIC.glob("*.hei*"))]
    found.append(dng(two_colors(60, 40)))
    return [data for data in found if data]


def outcomes(batch: list[bytes]) -> list[str | None]:
    """For each image, None or what went wrong."""
    found: list[str | None] = [None] * len(batch)
    start = 0
    while start < len(batch):
        done = subprocess.run(
            [sys.executable, DECODER],
            input=pickle.dumps(batch[start:]),
            stdout=subprocess.PIPE,
            check=False,
        )
        lines, status = done.stdout.decode().splitlines(), done.returncode
        at = start
        for line in lines:
            if line.isdigit():
                at = start + int(line)
            elif line != "end":
                found[at] = line
        if lines and lines[-1] == "end":
            break
        found[at] = f"the process ended with {status}"
        start = at + 1
    return found


def test_mutated_images_in_the_library(trials):
    tried = trials("images", "mutated files of every format, in the library")
    for trial in tried.numbers(3, 100):  # each of BATCH files
        batch = [mutated(trial.rng, seeds()) for _ in range(BATCH)]
        for number, text in enumerate(outcomes(batch)):
            tried.count("survived" if text is None else "crashed")
            if text is not None:
                tried.failures.append(f"trial {trial.number}, file {number}: {text}")


def test_bombs_and_extremes_in_the_library(trials):
    tried = trials("images", "bombs and extremes, in the library")
    bombs = [case.data for case in corpus()]
    bombs += [scan_bomb(4000, 2000), many_frames("GIF", 5000), many_frames("PNG", 5000)]
    for text in outcomes(bombs):
        tried.count("survived" if text is None else "crashed")
        if text is not None:
            tried.failures.append(text)


@pytest.fixture
def address(fitted, tmp_path):
    photos = write_folder(tmp_path / "photos", *make_toy(12, seed=2))
    fitted.save(tmp_path / "run")
    codes = fitted.encode(photos)
    Index.build(codes, paths=codes.ids.tolist()).save(tmp_path / "photos.index")
    settings = {"decode_workers": 2, "decode_seconds": float(SECONDS)}
    with in_thread(ToyCollection(tmp_path), **settings) as found:
        yield found


def test_mutated_images_in_the_service(trials, address):
    """Every answer is JSON, none is an error of the service, and no decoder dies or hangs."""
    tried = trials("images", "mutated files of every format, sent to the service")
    with httpx.Client(base_url=address, timeout=120) as client:
        decoders = {each.pid for each in psutil.Process().children()}
        for trial in tried.numbers(40, 10_000):
            with trial:
                data = mutated(trial.rng, seeds())
                answer = searched(client, data)
                if answer.status_code >= 500 or DIED.search(answer.text):
                    raise Crashed(answer.text[:200])
                assert answer.status_code in (200, 400, 413, 415, 422), answer.text
                answer.json()
        assert {each.pid for each in psutil.Process().children()} == decoders
        for pid in decoders:
            assert peak_megabytes(pid) < MEGABYTES
        assert searched(client, encode(picture(), "PNG")).status_code == 200


def searched(client: httpx.Client, data: bytes) -> httpx.Response:
    """The answer; if the machine is busy, that to the second request."""
    answer = client.post("/v1/search", files={"image": ("x", data)})
    if answer.status_code == 503:
        time.sleep(float(answer.headers["retry-after"]))
        answer = client.post("/v1/search", files={"image": ("x", data)})
    return answer


def peak_megabytes(pid: int) -> float:
    """The most memory that a process has ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
