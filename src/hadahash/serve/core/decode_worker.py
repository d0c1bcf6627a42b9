"""A process that decodes images: `python -m hadahash.serve.core.decode_worker`.

A crash of this process does not affect the service. The process sends a message when it is ready,
then reads tasks from standard input and writes answers to standard output until the input ends. A
message is a JSON object after its length (4 bytes, big-endian), followed by the number of bytes
that its "bytes" field gives.

    square      decode an image to the input of the network: uint8 (side, side, 3); "looks" in the
                answer is what it looks like, see `hadahash.data.appearance`. With "large_pixels",
                an image with more pixels is not decoded: the answer is "large"
    thumbnail   decode a file, or what is sent, to a JPEG or PNG of at most `side` pixels, without
                metadata
"""

from __future__ import annotations

import io
import json
import math
import os
import signal
import struct
import sys
import warnings
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...data.appearance import appearance_bits
from ...data.images import ImageInput, ImageLimits, image_size, open_reduced
from ...errors import ImageError

HEAD = struct.Struct(">I")
_JPEG = b"\xff\xd8"  # the first bytes of a file
_PNG_PIXELS = 128 * 128  # smaller images are sent as PNG: JPEG would blur them and saves little


def main() -> None:
    """Process tasks until standard input ends. Arguments: memory limit in bytes, niceness."""
    memory, niceness = (int(argument) for argument in sys.argv[1:3])
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is sent to the whole process group; only the service handles it
    warnings.simplefilter("ignore")  # a file could fill the log with warnings
    _limit_memory(memory)
    with suppress(OSError, AttributeError):
        os.nice(niceness)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    send(sink, {"ready": True}, b"")
    while head := source.read(HEAD.size):
        task = json.loads(source.read(HEAD.unpack(head)[0]))
        answer, content = perform(task, source.read(task["bytes"]))
        send(sink, answer, content)


def send(sink: BinaryIO, header: dict[str, Any], content: bytes) -> None:
    """Write one message. If the service has gone, the process ends."""
    try:
        sink.write(message(header, content))
        sink.flush()
    except BrokenPipeError:
        os._exit(1)  # at an ordinary exit the buffer would be written again


def message(header: dict[str, Any], content: bytes) -> bytes:
    """Return one message as bytes."""
    text = json.dumps(header | {"bytes": len(content)}).encode()
    return HEAD.pack(len(text)) + text + content


def perform(task: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the answer to one task, or the name and the reason of its error."""
    source = content or task["path"] if "path" in task else content
    limits = ImageLimits(task["max_pixels"], task["max_bytes"], task["max_side"])
    side, most = task["side"], task.get("large_pixels")
    try:
        if most is not None and _cost(source, limits) > most:
            return {"large": True}, b""
        is_square = task["kind"] == "square"
        image = open_reduced(source, side, limits=limits, preview=not is_square)
        if is_square:
            looks = {"looks": appearance_bits(image).hex()}
            return looks, image.square(side, fit=task["fit"]).tobytes()
        return render_thumbnail(image.pixels, side)
    except ImageError as error:
        return {"error": type(error).__name__, "reason": error.reason}, b""
    except MemoryError:
        return {"error": "ImageTooLarge", "reason": "decoding it needs too much memory"}, b""


def _cost(source: ImageInput, limits: ImageLimits) -> int:
    """Number of pixels to decode. Those of a JPEG, which is decoded reduced, count a quarter."""
    pixels = math.prod(image_size(source, limits=limits))
    is_jpeg = isinstance(source, bytes) and source.startswith(_JPEG)
    return pixels // 4 if is_jpeg else pixels


def render_thumbnail(pixels: NDArray[np.uint8], side: int) -> tuple[dict[str, Any], bytes]:
    """Return the header and the content of an image of at most `side` pixels."""
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    small = image.width * image.height <= _PNG_PIXELS
    buffer = io.BytesIO()
    image.save(buffer, "PNG" if small else "JPEG", quality=88)
    return {"type": "image/png" if small else "image/jpeg"}, buffer.getvalue()


def _limit_memory(allowed: int) -> None:
    """Limit the address space to `allowed` bytes above what the process uses now."""
    try:
        import resource
        from pathlib import Path

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + allowed
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError, ValueError):
        return  # not available on this system


if __name__ == "__main__":
    main()
