"""Every limit of the service, in one place."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass

from ..settings import require

SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class ServeSettings:
    """What the service allows itself and others. Change one with --set name=value."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any that is free
    read_token: str | None = (
        None  # who searches must show it; needed wherever others can reach the service
    )
    write_token: str | None = None  # who adds and removes must show it; without one, nobody can

    device: str = "auto"  # auto, cpu or cuda
    max_bytes: int = 10_000_000  # of an uploaded image
    max_pixels: int = 40_000_000  # of any image
    max_files: int = 8  # in one form
    max_fields: int = 20
    max_field_bytes: int = 65_536  # of a form's field, or of a JSON body
    max_k: int = 1000
    max_labels: int = 100  # in one filter

    queue: int = 64  # searches at work or waiting; further ones are answered 503
    picture_queue: int = 256  # the same for pictures
    batch: int = 32  # queries that are encoded or searched together
    decode_workers: int = 0  # processes that open images; 0: one a core, at least 2
    decode_seconds: float = 5.0  # then the process that decodes is ended, and the image refused
    upload_seconds: float = (
        15.0  # for a whole request to arrive, and for each part of an answer to be taken
    )
    header_seconds: float = 10.0  # for a request's head to arrive
    drain_seconds: int = 8  # for requests at work to end once the service is told to stop
    watch_seconds: float = 2.0  # how often to look whether the index on disk has changed; 0: never

    thumbnail_side: int = 192  # pixels of a thumbnail's longer side
    picture_side: int = 1600  # and of a picture's
    cache_bytes: int = 64_000_000  # thumbnails kept in memory
    map_points: int = 4000  # images on the map

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, (int, float)) and name not in (
                "port",
                "decode_workers",
                "watch_seconds",
            ):
                require(value > 0, f"{name}={value} is not possible: it must be more than 0.")
        require(
            0 <= self.port <= 65_535, f"port={self.port} is not possible: it must be 0 to 65535."
        )
        self._check_tokens()

    def _check_tokens(self) -> None:
        for name, token in (("read", self.read_token), ("write", self.write_token)):
            long_enough = token is None or (
                len(token) >= SHORTEST_TOKEN and token.isascii() and token.isprintable()
            )
            require(
                long_enough,
                f"The {name} token must be at least {SHORTEST_TOKEN} plain characters. {_REMEDY}",
            )
        same = self.read_token is not None and self.read_token == self.write_token
        require(
            not same,
            f"The read and the write token must differ: who may search may not change. {_REMEDY}",
        )
        require(
            self.read_token is not None or is_loopback(self.host),
            f"Others can reach {self.host}, so a read token is needed: set HADAHASH_READ_TOKEN, or use --host 127.0.0.1.",
        )

    @property
    def workers(self) -> int:
        return self.decode_workers or max(2, os.cpu_count() or 1)


_REMEDY = "Make one with: openssl rand -hex 16"


def is_loopback(host: str) -> bool:
    """Is this name or address this machine's own, which nobody else can reach?

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
