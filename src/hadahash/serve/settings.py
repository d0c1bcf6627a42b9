"""Every limit of the service."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import lru_cache

from ..settings import check_ranges, require, setting

MIN_TOKEN_LENGTH = 16
_REMEDY = "Create one with: openssl rand -hex 16"


@dataclass(frozen=True)
class ServeSettings:
    """Limits of the service. Change one with `hadahash serve --set name=value`."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8000, "Port to listen on; 0: any free port.", ge=0, le=65_535)
    read_token: str | None = setting(
        None, "Bearer token required for search requests; required unless host is loopback."
    )
    write_token: str | None = setting(
        None, "Bearer token required to change the index; without one it is read-only."
    )
    device: str = setting("auto", "Device of the model: auto, cpu or cuda.")
    workers: int = setting(
        1, "Worker processes; each loads the model, and has queues of its own.", gt=0, le=64
    )

    max_bytes: int = setting(10_000_000, "Size of an uploaded image in bytes.", gt=0)
    max_pixels: int = setting(89_478_485, "Pixels of an image; as when it is indexed.", gt=0)
    max_side: int = setting(30_000, "Width and height of an image in pixels.", gt=0)
    max_files: int = setting(8, "Files per form.", gt=0)
    max_fields: int = setting(20, "Fields per form.", gt=0)
    max_field_bytes: int = setting(65_536, "Size of a form field or of a JSON body.", gt=0)
    max_k: int = setting(1000, "Results per search.", gt=0)
    max_labels: int = setting(100, "Labels per filter.", gt=0)
    max_listed_labels: int = setting(1000, "Labels listed by /v1/stats.", gt=0)

    queue: int = setting(64, "Searches running or waiting; more are answered 503.", gt=0)
    upload_queue: int = setting(512, "Requests whose body is being received.", gt=0)
    upload_memory: int = setting(256_000_000, "Bytes of all request bodies in memory.", gt=0)
    write_queue: int = setting(64, "Index changes running or waiting.", gt=0)
    image_queue: int = setting(256, "Images and thumbnails running or waiting.", gt=0)
    client_share: float = setting(
        0.25,
        "Fraction of each queue that one client address can hold; loopback: each connection.",
        gt=0,
        le=1,
    )
    batch: int = setting(32, "Queries encoded, searched or written together.", gt=0)

    decode_workers: int = setting(
        0, "Decoder processes for uploads; 0: one per usable core, at least 2.", ge=0
    )
    thumbnail_workers: int = setting(
        0, "Decoder processes for thumbnails; 0: one per two usable cores.", ge=0
    )
    large_pixels: int = setting(
        20_000_000,
        "Uploaded images with more pixels (a JPEG: four times as many) are decoded one at a time.",
        gt=0,
    )
    decode_seconds: float = setting(5.0, "Time limit for decoding an image.", gt=0)
    decode_memory: int = setting(
        2_000_000_000, "Memory that decoding an image may use, in bytes.", gt=0
    )
    start_seconds: float = setting(60.0, "Time limit for starting a decoder process.", gt=0)
    upload_seconds: float = setting(
        15.0, "Time limit for receiving a body, and for a client to accept data.", gt=0
    )
    header_seconds: float = setting(10.0, "Time limit for receiving the request headers.", gt=0)
    index_seconds: float = setting(
        30.0, "Time limit for an answer of the index, for example of a Milvus server.", gt=0
    )
    drain_seconds: int = setting(8, "Time for running requests to finish at shutdown.", gt=0)
    watch_seconds: float = setting(
        2.0, "Interval for checking whether the index on disk has changed; 0: never.", ge=0
    )

    thumbnail_side: int = setting(192, "Longer side of a thumbnail in pixels.", gt=0)
    image_side: int = setting(1600, "Longer side of an image in pixels.", gt=0)
    cache_bytes: int = setting(64_000_000, "Thumbnails kept in memory, in bytes.", gt=0)
    thumbnail_folder: str = setting(
        "", "Folder of thumbnails on disk; by default ~/.cache/hadahash/thumbnails."
    )
    thumbnail_disk_bytes: int = setting(
        1_000_000_000, "Thumbnails kept on disk, in bytes; 0: none.", ge=0
    )
    map_points: int = setting(4000, "Images on the map.", gt=0)

    def __post_init__(self) -> None:
        check_ranges(self)
        self._check_tokens()

    def _check_tokens(self) -> None:
        for name, token in (("read", self.read_token), ("write", self.write_token)):
            valid = token is None or (
                len(token) >= MIN_TOKEN_LENGTH and token.isascii() and token.isprintable()
            )
            require(
                valid,
                f"The {name} token must have at least {MIN_TOKEN_LENGTH} printable ASCII "
                f"characters. {_REMEDY}",
            )
        same = self.read_token is not None and self.read_token == self.write_token
        require(not same, f"The read token and the write token must differ. {_REMEDY}")
        require(
            self.read_token is not None or is_loopback(self.host),
            f"Other machines can reach {self.host}, so a read token is required: "
            "set HADAHASH_READ_TOKEN, or use --host 127.0.0.1.",
        )

    @property
    def upload_decoders(self) -> int:
        """Number of decoder processes for uploads."""
        return self.decode_workers or max(2, _cores())

    @property
    def thumbnail_decoders(self) -> int:
        """Number of decoder processes for images of the collection."""
        return self.thumbnail_workers or max(1, _cores() // 2)


def _cores() -> int:
    from ..native import usable_cores

    return usable_cores()


@lru_cache(1000)
def is_loopback(host: str) -> bool:
    """Return whether this host name or address cannot be reached from other machines.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0")]
    [True, True, True, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
