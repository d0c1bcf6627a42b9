"""The connection to a Milvus server: settings, and calls with retries and one-line errors."""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeVar

from ...errors import HadaHashError, MissingExtraError, StorageError, UsageError, unknown
from ...settings import check_ranges, fields_of, from_mapping, require, setting

T = TypeVar("T")

URI, TOKEN = "HADAHASH_MILVUS_URI", "HADAHASH_MILVUS_TOKEN"
_CONNECTION_FAILED = 2  # error code of pymilvus


@dataclass(frozen=True)
class MilvusSettings:
    """Address and options of the server. The token is never stored or printed."""

    uri: str = setting("", "http://host:19530, or a file name that ends in .db for milvus-lite.")
    token: str = field(default="", repr=False)
    collection: str = setting("", "Name of the collection; an existing one is used.")
    index_type: Literal["BIN_FLAT", "BIN_IVF_FLAT"] = setting(
        "BIN_FLAT", "Index of a new collection; an existing one keeps its own."
    )
    lists: int = setting(1024, "Inverted lists of BIN_IVF_FLAT.", gt=0)
    consistency: Literal["Strong", "Session", "Bounded", "Eventually"] = setting(
        "Strong", "Consistency of reads. Strong: a search sees every completed write."
    )
    timeout: float = setting(30.0, "Seconds per attempt of a call.", gt=0)
    retries: int = setting(3, "Attempts of a call, with a growing pause between them.", gt=0)
    batch_size: int = setting(5000, "Items per upsert.", gt=0)

    def __post_init__(self) -> None:
        """Check the values."""
        require(
            re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", self.collection) is not None,
            "collection must consist of letters, digits and _, and not start with a digit, got "
            f"{self.collection!r}.",
        )
        check_ranges(self)

    @property
    def stored(self) -> dict[str, Any]:
        """The settings that may be stored: all but the token."""
        return {key: value for key, value in vars(self).items() if key != "token"}


def read_settings(options: dict[str, Any]) -> MilvusSettings:
    """Settings from options; address and token default to environment variables.

    Args:
        options: Names and values; None selects the default.

    Returns:
        The settings. The collection gets a random name, unless it is given.

    Raises:
        UsageError: An option is unknown or invalid, or there is no address.
    """
    known = fields_of(MilvusSettings)
    for name in options:
        if name not in known:
            raise unknown("option of the index engine 'milvus'", name, known)
    defaults = {
        "uri": os.environ.get(URI),
        "token": os.environ.get(TOKEN),
        "collection": f"hadahash_{uuid.uuid4().hex[:12]}",
    }
    values = defaults | {name: value for name, value in options.items() if value is not None}
    if not values["uri"]:
        raise UsageError(
            f"The index engine 'milvus' needs the address of a server: give uri=... or set {URI}."
        )
    if str(values["uri"]).endswith(".db"):
        values["uri"] = str(Path(values["uri"]).absolute())
    present = {name: value for name, value in values.items() if value is not None}
    return from_mapping(MilvusSettings, present)


class MilvusServer:
    """A connection that is opened on first use. All calls are idempotent."""

    def __init__(self, settings: MilvusSettings) -> None:
        """Store the settings; no connection is opened yet."""
        self.settings = settings
        self._client: Any = None
        self._connecting = Lock()

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client for the collection.

        Raises:
            StorageError: The server refuses, or cannot be reached.
        """
        timed = {"timeout": self.settings.timeout, **options}
        collection = self.settings.collection
        return self.attempt(
            lambda: getattr(self._connect(), method)(collection, *arguments, **timed)
        )

    def has(self, collection: str) -> bool:
        """Whether the server has a collection of this name.

        Raises:
            StorageError: The server refuses, or cannot be reached.
        """
        timeout = self.settings.timeout
        return bool(
            self.attempt(lambda: self._connect().has_collection(collection, timeout=timeout))
        )

    def attempt(self, action: Callable[[], T]) -> T:
        """Run an action, up to `retries` times if the server is unreachable or slow.

        Raises:
            StorageError: The server refuses, or cannot be reached.
        """
        grpc, refused = _libraries()[1:]
        attempts, pause = 1, 0.5
        while True:
            try:
                return action()
            except (grpc.RpcError, grpc.FutureTimeoutError, refused) as error:
                if attempts == self.settings.retries or not _is_temporary(error, grpc):
                    raise self._one_line(error, grpc) from error
            time.sleep(pause)
            attempts, pause = attempts + 1, 2 * pause

    def close(self) -> None:
        """Close the connection. The next call opens a new one."""
        with self._connecting:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connect(self) -> Any:
        client, *_ = _libraries()
        with self._connecting:
            if self._client is None:
                # pymilvus logs tracebacks of errors that are handled here.
                logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # milvus-lite imports deprecated modules
                    self._client = client(
                        uri=self.settings.uri,
                        token=self.settings.token,
                        timeout=self.settings.timeout,
                    )
            return self._client

    def _one_line(self, error: Any, grpc: Any) -> HadaHashError:
        where = f"Milvus at {self.settings.uri}"
        code = error.code() if isinstance(error, grpc.RpcError) else getattr(error, "code", None)
        if code == grpc.StatusCode.UNAUTHENTICATED or "auth" in str(error).lower():
            return StorageError(f"{where} rejects the token. Set {TOKEN} to a valid one.")
        if _is_temporary(error, grpc):
            attempts = f"{self.settings.retries} attempts of {self.settings.timeout:g} s"
            slow = code == grpc.StatusCode.DEADLINE_EXCEEDED
            return StorageError(
                f"{where} {'is too slow' if slow else 'cannot be reached'} ({attempts}). Check its "
                "address and the timeout. Items stored so far are kept; update() with the same "
                "items continues."
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


def _is_temporary(error: Any, grpc: Any) -> bool:
    """Whether a retry may succeed."""
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
