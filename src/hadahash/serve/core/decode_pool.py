"""A pool of decoder processes. A process that times out or crashes is replaced."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..problem import Problem
from ..settings import ServeSettings
from .decode_worker import HEAD, message
from .limits import Limit, Turns

if TYPE_CHECKING:
    from ...data.preprocess import Preprocess

LOG = logging.getLogger(__name__)
COMMAND = (sys.executable, "-m", "hadahash.serve.core.decode_worker")
# An image takes some megabytes. Without these, glibc returns them to the system after each image,
# and a third of the time goes to getting them back.
_KEPT_MEMORY = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(2**25))
_THUMBNAIL_NICENESS = 5  # uploads first
_MAX_FILE_BYTES = 200_000_000  # of an image in the collection
_SAVE_AGAIN = "Open the image in another program, save it again and send that."
_PROBLEMS = {  # error of the worker -> status, code, hint
    "ImageTooLarge": (413, "image_too_large", "Send a smaller image. /v1/stats lists the limits."),
    "UnsupportedImage": (415, "not_an_image", "Convert it, for example to JPEG or PNG."),
    "CorruptImage": (422, "broken_image", _SAVE_AGAIN),
    "UnreadableImage": (404, "no_image", "The file was moved or deleted after it was indexed."),
}


class EncodedImage(NamedTuple):
    """An image file in memory."""

    content: bytes
    type: str


class DecodedImage(NamedTuple):
    """An image for the network, uint8 (side, side, 3), and what it looks like, 8 bytes."""

    pixels: NDArray[np.uint8]
    looks: bytes


class DecodePool:
    """Decoder processes; each works on one image at a time.

    Args:
        settings: Limits of the service.
        workers: Number of processes.
        niceness: Added to the niceness of the processes.
        on_replace: Called whenever a process is replaced.
    """

    def __init__(
        self,
        settings: ServeSettings,
        workers: int,
        *,
        niceness: int = 0,
        on_replace: Callable[[], object] | None = None,
    ) -> None:
        self._settings, self._on_replace = settings, on_replace
        command = (*COMMAND, str(settings.decode_memory), str(niceness))
        self._workers = [Worker(command, settings.start_seconds) for _ in range(workers)]
        self.turns: Turns[Worker] = Turns()
        share = settings.client_share
        self._large = Limit(max(1, int(settings.queue * share)), share)
        self._large_turns: Turns[None] = Turns([None])
        self._opened = False  # whether the workers take turns

    async def start(self, count: int | None = None) -> None:
        """Start processes; the others start when they are needed.

        Args:
            count: Number of processes; None: all.

        Raises:
            Problem: 503, if one does not start.
        """
        if not self._opened:
            self._opened = True
            for worker in self._workers:
                self.turns.put(worker)
        await asyncio.gather(*(worker.start() for worker in self._workers[:count]))

    async def close(self) -> None:
        """End all processes."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    async def decode_for_model(
        self, content: bytes, preprocess: Preprocess, client: str = ""
    ) -> DecodedImage:
        """Decode an uploaded image exactly as it is decoded for indexing.

        Large images are decoded one at a time: the other processes are for ordinary images.

        Args:
            content: The image file.
            preprocess: Preprocessing of the model.
            client: Who sent it; clients take turns.

        Returns:
            The image.

        Raises:
            Problem: If the image cannot be decoded; 503, if many large images wait.
        """
        side = preprocess.side
        task: dict[str, Any] = {"kind": "square", "side": side, "fit": preprocess.fit}
        task["max_bytes"] = self._settings.max_bytes
        most = {"large_pixels": self._settings.large_pixels}
        answer, pixels = await self._perform(task | most, content, client)
        if "large" in answer:
            with self._large.admit(client):
                await self._large_turns.get(client)
                try:
                    answer, pixels = await self._perform(task, content, client)
                finally:
                    self._large_turns.put(None)
        square = np.frombuffer(pixels, np.uint8).reshape(side, side, 3)
        return DecodedImage(square, bytes.fromhex(answer["looks"]))

    async def render_thumbnail(
        self, path: Path, side: int, client: str = "", content: bytes = b""
    ) -> EncodedImage:
        """Decode a file of the collection and encode it again, at most `side` pixels wide and high.

        Args:
            path: The image file.
            side: Largest width and height.
            client: Who asked for it; clients take turns.
            content: The content of the file, if it was read already.

        Returns:
            A JPEG or PNG without metadata.

        Raises:
            Problem: If the image cannot be decoded.
        """
        task = {"kind": "thumbnail", "path": str(path), "side": side, "max_bytes": _MAX_FILE_BYTES}
        answer, content = await self._perform(task, content, client)
        return EncodedImage(content, answer["type"])

    async def _perform(
        self, task: dict[str, Any], content: bytes, client: str
    ) -> tuple[dict[str, Any], bytes]:
        limits = {"max_pixels": self._settings.max_pixels, "max_side": self._settings.max_side}
        worker = await self.turns.get(client)
        try:
            request = message(task | limits, content)  # a copy, not before it is needed
            try:
                answer, result = await self._attempt(worker, request)
            except (asyncio.IncompleteReadError, OSError):
                # The process may have ended before it received the image: retry once with a new
                # one.
                answer, result = await self._attempt(worker, request)
        except (asyncio.IncompleteReadError, OSError):
            raise _undecodable("The image crashed the decoder.") from None
        finally:
            self.turns.put(worker)
        if "error" in answer:
            status, code, hint = _PROBLEMS[answer["error"]]
            raise Problem(status, code, f"The image cannot be used: {answer['reason']}.", hint)
        return answer, result

    async def _attempt(self, worker: Worker, request: bytes) -> tuple[dict[str, Any], bytes]:
        seconds, done = self._settings.decode_seconds, False
        try:
            await worker.start()
            answer = await asyncio.wait_for(worker.request(request), seconds)
            done = True
            return answer
        except asyncio.TimeoutError:
            message = f"Decoding the image took more than {seconds:g} s."
            raise _undecodable(message) from None
        finally:
            if not done:  # the state of the process is unknown
                if self._on_replace is not None:
                    self._on_replace()
                await worker.stop()


def create_pools(
    settings: ServeSettings, on_replace: Callable[[], object]
) -> tuple[DecodePool, DecodePool]:
    """Return the decoders of uploads, and those of images of the collection, which stand back.

    Args:
        settings: Limits of the service.
        on_replace: Called whenever a process is replaced.
    """
    uploaded = DecodePool(settings, settings.upload_decoders, on_replace=on_replace)
    stored = DecodePool(
        settings, settings.thumbnail_decoders, niceness=_THUMBNAIL_NICENESS, on_replace=on_replace
    )
    return uploaded, stored


class Worker:
    """One decoder process, started on first use and restarted after it ended.

    Args:
        command: Program and arguments.
        start_seconds: Time limit for its start.
    """

    def __init__(self, command: tuple[str, ...], start_seconds: float) -> None:
        self._command, self._start_seconds = command, start_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._failed = False  # whether the last start did

    @property
    def pid(self) -> int | None:
        """Process id, if the process runs."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Return when the process is ready, so that its start is not counted as decoding time.

        Raises:
            Problem: 503, if the process does not start.
        """
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self._start()

    async def _start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, env=_KEPT_MEMORY | os.environ
            )
            await asyncio.wait_for(self._read(self._process), self._start_seconds)
            self._failed = False
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
            if not self._failed:  # it is tried again and again
                LOG.error("A decoder process does not start: %s", " ".join(self._command))
            self._failed = True
            await self.stop()
            hint = "Check the log of the service."
            raise Problem(
                503, "no_decoder", "No image decoder could be started.", hint, {"Retry-After": "5"}
            ) from error

    async def request(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        """Send one task and return its answer."""
        if self._process is None or self._process.stdin is None:
            raise BrokenPipeError
        self._process.stdin.write(request)
        await self._process.stdin.drain()
        return await self._read(self._process)

    async def _read(self, process: asyncio.subprocess.Process) -> tuple[dict[str, Any], bytes]:
        if process.stdout is None:
            raise BrokenPipeError
        (size,) = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
        answer: dict[str, Any] = json.loads(await process.stdout.readexactly(size))
        return answer, await process.stdout.readexactly(answer["bytes"])

    async def stop(self) -> None:
        """End the process and wait for it."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _undecodable(message: str) -> Problem:
    return Problem(422, "broken_image", message, _SAVE_AGAIN)
