"""Talking to a Milvus server: its settings, calls that are tried a few times and end in one line, and text in filters."""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from ... import settings
from ...errors import HadaHashError, MissingExtraError, StorageError, UsageError, unknown

T = TypeVar("T")

URI, TOKEN = "HADAHASH_MILVUS_URI", "HADAHASH_MILVUS_TOKEN"
_CONNECTION_FAILED = 2  # pymilvus' code


@dataclass(frozen=True)
class MilvusSettings:
    """Where the codes are and how the server is asked. The token is never written to a file and never shown."""

    uri: str  # http://host:19530, or a file whose name ends in .db for milvus-lite
    token: str = field(default="", repr=False)
    collection: str = ""  # letters, digits and _; one that exists is taken up
    index_type: Literal["BIN_FLAT", "BIN_IVF_FLAT"] = "BIN_FLAT"
    lists: int = (
        1024  # of BIN_IVF_FLAT; a search looks into all of them unless it is given `probes`
    )
    consistency: Literal["Strong", "Session", "Bounded", "Eventually"] = (
        "Strong"  # Strong: what was written is found
    )
    timeout: float = 30.0  # seconds that one try may take
    retries: int = 3  # tries in all, with a growing pause between them
    batch: int = 5000  # items in one upsert

    def __post_init__(self) -> None:
        settings.require(
            re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", self.collection) is not None,
            f"collection={self.collection!r} is not possible: a name has letters, digits and _, and begins with no digit.",
        )
        for name in ("timeout", "retries", "batch", "lists"):
            value = getattr(self, name)
            settings.require(
                value > 0, f"{name}={value} is not possible: it must be greater than 0."
            )

    @property
    def stored(self) -> dict[str, Any]:
        """What a file may hold: all but the token."""
        return {key: value for key, value in vars(self).items() if key != "token"}


def read_settings(options: dict[str, Any]) -> MilvusSettings:
    """Settings from options; the address and the token may come from the environment, the name may be left to us."""
    known = settings.fields_of(MilvusSettings)
    for name in options:
        if name not in known:
            raise unknown("option of the index engine 'milvus'", name, known)
    given = {
        "uri": os.environ.get(URI),
        "token": os.environ.get(TOKEN),
        "collection": f"hadahash_{uuid.uuid4().hex[:12]}",
    }
    values = given | {name: value for name, value in options.items() if value is not None}
    if not values["uri"]:
        raise UsageError(
            f"The index engine 'milvus' needs the address of a server: give uri=... or set {URI}."
        )
    if str(values["uri"]).endswith(".db"):
        values["uri"] = str(Path(values["uri"]).absolute())
    return settings.make(
        MilvusSettings, {name: value for name, value in values.items() if value is not None}
    )


class Server:
    """A connection that is made when it is first needed. Every call is one that may safely be repeated."""

    def __init__(self, chosen: MilvusSettings) -> None:
        self.settings = chosen

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client on the collection."""
        timed = {"timeout": self.settings.timeout, **options}
        return self.attempt(
            lambda: getattr(self._client, method)(self.settings.collection, *arguments, **timed)
        )

    def attempt(self, action: Callable[[], T]) -> T:
        """Do it, up to `retries` times if the server is away or slow; then, or if it refuses, an error of one line."""
        grpc, refused = _libraries()[1:]
        tries, pause = 1, 0.5
        while True:
            try:
                return action()
            except (grpc.RpcError, grpc.FutureTimeoutError, refused) as error:
                if tries == self.settings.retries or not _passing(error, grpc):
                    raise self._one_line(error, grpc) from error
            time.sleep(pause)
            tries, pause = tries + 1, 2 * pause

    @cached_property
    def _client(self) -> Any:
        client, *_ = _libraries()
        logging.getLogger("pymilvus").setLevel(
            logging.CRITICAL
        )  # it writes tracebacks of errors that are handled here
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # milvus-lite imports what setuptools has deprecated
            return client(
                uri=self.settings.uri, token=self.settings.token, timeout=self.settings.timeout
            )

    def _one_line(self, error: Any, grpc: Any) -> HadaHashError:
        where = f"Milvus at {self.settings.uri}"
        code = error.code() if isinstance(error, grpc.RpcError) else getattr(error, "code", None)
        if code == grpc.StatusCode.UNAUTHENTICATED or "auth" in str(error).lower():
            return StorageError(f"{where} refuses the token. Set {TOKEN} to one it knows.")
        if _passing(error, grpc):
            tries = f"{self.settings.retries} tries of {self.settings.timeout:g} s"
            slow = code == grpc.StatusCode.DEADLINE_EXCEEDED
            return StorageError(
                f"{where} {'is too slow' if slow else 'cannot be reached'} ({tries}). Check that it runs, its address, and "
                "timeout. What was stored until now stays: update() with the same items goes on."
            )
        reason = " ".join(str(getattr(error, "message", error)).split())
        return StorageError(f"{where}, collection '{self.settings.collection}': {reason}")


def _libraries() -> tuple[Any, Any, Any]:
    try:
        import grpc
        import pymilvus
    except ImportError:
        raise MissingExtraError("pymilvus", "milvus") from None
    return pymilvus.MilvusClient, grpc, pymilvus.MilvusException


def _passing(error: Any, grpc: Any) -> bool:
    """May the next try succeed?"""
    if isinstance(error, grpc.FutureTimeoutError):
        return True
    code = error.code() if isinstance(error, grpc.RpcError) else error.code
    if isinstance(code, grpc.StatusCode):
        return code in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.ABORTED,
        )
    return code == _CONNECTION_FAILED or bool(getattr(error, "retriable", False))


# ---- text ----------------------------------------------------------------------------------------------------------
# Filters have no reliable way to write quotes, backslashes and line ends, and invalid Unicode cannot be sent at all. So each
# such character is written as the character before it and a digit, and that one gets a digit too: the order stays the same.

_SPOILERS = "\0\n\r\"'\\"
_BEFORE = {"\0": "\1"} | {
    each: chr(ord(each) - 1) for each in _SPOILERS[1:]
}  # nothing is before \0: \1 takes the other digit
_WRITTEN = {spoiler: lead + ("0" if spoiler == "\0" else "1") for spoiler, lead in _BEFORE.items()}
_WRITTEN |= {lead: lead + ("1" if spoiler == "\0" else "0") for spoiler, lead in _BEFORE.items()}
_WRITTEN |= {chr(each): f"\ud7ff1{each:04x}" for each in range(0xD800, 0xE000)} | {
    "\ud7ff": "\ud7ff0"
}
_TABLE = str.maketrans(_WRITTEN)
_READ = {written: each for each, written in _WRITTEN.items()}
_ESCAPES = re.compile(
    f"[{''.join(map(re.escape, _BEFORE.values()))}][01]|\ud7ff(?:0|1[0-9a-f]{{4}})"
)


def write_text(text: str) -> str:
    """Text as the server gets it: safe in filters, in the same order, and as it was where nothing in it is odd.

    >>> write_text("photos/cat 1.jpg"), write_text("it's"), read_text(write_text("it's"))
    ('photos/cat 1.jpg', 'it&1s', "it's")
    """
    return text.translate(_TABLE)


def read_text(text: str) -> str:
    return _ESCAPES.sub(lambda match: _READ[match[0]], text)


def literal(value: int | str) -> str:
    """A value that is already safe, as filters write it."""
    return str(value) if isinstance(value, int) else f'"{value}"'


def one_of(values: Iterable[int | str]) -> str:
    return f"[{', '.join(map(literal, values))}]"
