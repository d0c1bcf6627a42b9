"""The processes that open images. One that takes too long is ended and replaced; the others never notice."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.preprocess import Preprocess
from .problems import Problem
from .settings import ServeSettings
from .worker import HEAD, message

COMMAND = (sys.executable, "-m", "hadahash.serve.worker")
_FORMATS_HINT = "Send a JPEG, PNG, WebP, GIF, BMP, TIFF or PPM image."
_ANSWERS = {  # the worker's error -> status, code, hint
    "ImageTooLarge": (
        413,
        "image_too_large",
        "Send a smaller image; /v1/stats says how large it may be.",
    ),
    "UnsupportedImage": (415, "not_an_image", _FORMATS_HINT),
    "CorruptImage": (422, "broken_image", "Open the image elsewhere, save it again and send that."),
    "UnreadableImage": (
        404,
        "no_image",
        "The file has been moved or removed since it was indexed.",
    ),
}


class Picture(NamedTuple):
    content: bytes
    type: str


class DecodePool:
    """`workers` processes; each has one image at a time."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._free: asyncio.Queue[Worker] = asyncio.Queue()
        self._all: list[Worker] = []
        self.replaced = 0  # workers that had to be ended

    async def start(self) -> None:
        self._all = [Worker() for _ in range(self._settings.workers)]
        for worker in self._all:
            self._free.put_nowait(worker)
        await asyncio.gather(*(worker.start() for worker in self._all))

    async def close(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._all))

    async def square(self, content: bytes, preprocess: Preprocess) -> NDArray[np.uint8]:
        """An uploaded image as the square that the network looks at, (side, side, 3): just as when it is indexed."""
        task = {
            "kind": "square",
            "side": preprocess.side,
            "fit": preprocess.fit,
            "max_bytes": self._settings.max_bytes,
        }
        _, pixels = await self._perform(task, content)
        return np.frombuffer(pixels, np.uint8).reshape(preprocess.side, preprocess.side, 3)

    async def picture(self, path: Path, side: int) -> Picture:
        """A file of the collection, at most `side` pixels wide and high."""
        answer, content = await self._perform(
            {"kind": "picture", "path": str(path), "side": side, "max_bytes": 200_000_000}
        )
        return Picture(content, answer["type"])

    async def _perform(
        self, task: dict[str, Any], content: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        worker = await self._free.get()
        asked = message(task | {"max_pixels": self._settings.max_pixels}, content)
        done = False
        try:
            await worker.start()
            answer, result = await asyncio.wait_for(
                worker.ask(asked), self._settings.decode_seconds
            )
            done = True
        except asyncio.TimeoutError:
            raise _undecodable(
                f"The image took more than {self._settings.decode_seconds:g} s to decode."
            ) from None
        except (asyncio.IncompleteReadError, OSError):
            raise _undecodable("The image broke the process that decoded it.") from None
        finally:
            if not done:  # it may be in the middle of anything
                self.replaced += 1
                await worker.stop()
            self._free.put_nowait(worker)
        if "error" in answer:
            status, code, hint = _ANSWERS[answer["error"]]
            raise Problem(status, code, f"The image cannot be used: {answer['reason']}.", hint)
        return answer, result


class Worker:
    """One process, started when it is first needed and again after it was stopped."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns when the process is ready, so that its start does not count as time to decode."""
        if self._process is None:
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(*COMMAND, stdin=pipe, stdout=pipe)
            await self._hear(self._process)

    async def ask(self, asked: bytes) -> tuple[dict[str, Any], bytes]:
        if self._process is None or self._process.stdin is None:
            raise BrokenPipeError
        self._process.stdin.write(asked)
        await self._process.stdin.drain()
        return await self._hear(self._process)

    async def _hear(self, process: asyncio.subprocess.Process) -> tuple[dict[str, Any], bytes]:
        if process.stdout is None:
            raise BrokenPipeError
        (size,) = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
        answer: dict[str, Any] = json.loads(await process.stdout.readexactly(size))
        return answer, await process.stdout.readexactly(answer["bytes"])

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _undecodable(message: str) -> Problem:
    return Problem(
        422, "broken_image", message, "Open the image elsewhere, save it again and send that."
    )
