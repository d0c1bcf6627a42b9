"""Decodes images in a process of its own: `python decode_batch.py < batch.pickle`.

A fork of the process of the tests would do, but libraries that have threads there may hang in it.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import sys
import warnings
from pathlib import Path

from hadahash.data.images import ImageLimits, image_size, open_image, open_reduced
from hadahash.errors import ImageError

SECONDS, MEGABYTES = 5, 1500


def decode(data: bytes) -> None:
    """What the library does with an image, apart from the network."""
    limits = ImageLimits(max_pixels=10_000_000)
    for read in (image_size, open_image, lambda *a, **k: open_reduced(a[0], 64, **k)):
        try:
            read(data, limits=limits)
        except ImageError as error:
            assert "\n" not in str(error)


def decode_all(batch: list[bytes], send: int) -> None:
    """In a child process with little memory, which is ended after 5 s of CPU for one image."""
    warnings.simplefilter("ignore")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = size + MEGABYTES * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for number, data in enumerate(batch):
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        os.write(send, f"{number}\n".encode())
        try:
            decode(data)
        except BaseException as error:
            text = json.dumps(f"{type(error).__name__}: {error}"[:300])
            os.write(send, f"{text}\n".encode())
    os.write(send, b"end\n")


if __name__ == "__main__":
    decode_all(pickle.load(sys.stdin.buffer), sys.stdout.fileno())
