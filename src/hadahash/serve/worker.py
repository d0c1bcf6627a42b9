"""A process that opens images: `python -m hadahash.serve.worker`. Whatever a file does to it, the service goes on.

It says that it is ready, then reads tasks from its standard input and writes answers to its standard output until the
input ends. Both are a JSON object after its length (4 bytes, big-endian), followed by as many bytes as its "bytes" says.

    square    an image to the square the network looks at: uint8 (side, side, 3)
    picture   a file to a JPEG or PNG of at most `side` pixels, which holds nothing but its pixels
"""

from __future__ import annotations

import io
import json
import signal
import struct
import sys
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..data.images import ImageLimits, open_image, shrink_to_square
from ..errors import ImageError

HEAD = struct.Struct(">I")
_SMALL = 128 * 128  # pictures up to here are PNG: JPEG would blur them, and saves little


def main() -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the service decides when to end
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    send(sink, {"ready": True}, b"")
    while head := source.read(HEAD.size):
        task = json.loads(source.read(HEAD.unpack(head)[0]))
        answer, content = perform(task, source.read(task["bytes"]))
        send(sink, answer, content)


def send(sink: BinaryIO, header: dict[str, Any], content: bytes) -> None:
    sink.write(message(header, content))
    sink.flush()


def message(header: dict[str, Any], content: bytes) -> bytes:
    text = json.dumps(header | {"bytes": len(content)}).encode()
    return HEAD.pack(len(text)) + text + content


def perform(task: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
    """The answer to one task: what came out, or the name of the error and its reason."""
    limits = ImageLimits(max_pixels=task["max_pixels"], max_bytes=task["max_bytes"])
    try:
        if task["kind"] == "square":
            pixels = shrink_to_square(
                open_image(content, limits=limits), task["side"], fit=task["fit"]
            )
            return {}, pixels.tobytes()
        return picture(
            open_image(task["path"], limits=limits, at_least=2 * task["side"]), task["side"]
        )
    except ImageError as error:
        return {"error": type(error).__name__, "reason": error.reason}, b""


def picture(pixels: NDArray[np.uint8], side: int) -> tuple[dict[str, Any], bytes]:
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    small = image.width * image.height <= _SMALL
    buffer = io.BytesIO()
    image.save(buffer, "PNG" if small else "JPEG", quality=88)
    return {"type": "image/png" if small else "image/jpeg"}, buffer.getvalue()


if __name__ == "__main__":
    main()
