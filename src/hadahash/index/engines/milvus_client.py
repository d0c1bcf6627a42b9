"""The connection to a Milvus server: settings, and calls with retries, limits and one-line errors.

A call to a server that does not answer ends after `deadline` seconds, however many attempts and
threads wait for it.
"""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeVar

from ...errors import HadaHashError, MissingExtraError, StorageError, UsageError, unknown
from ...settings import check_ranges, fields_of, from_mapping, require, setting

T = TypeVar("T")

URI, TOKEN = "HADAHASH_MILVUS_URI", "HADAHASH_MILVUS_TOKEN"
OLDEST, NEWEST = (2, 3), (3, 999)  # versions of the server
_CONNECTION_FAILED = 2  # error code of pymilvus
_LONGEST_PAUSE = 3.0  # seconds between two attempts that pymilvus makes within one of ours
_CONNECTING = Lock()  # pymilvus connects under a lock of its own, without a limit


@dataclass(frozen=True)
class MilvusSettings:
    """Address and options of the server. The token is never stored or printed."""

    uri: str = setting("", "http://host:19530, or a file name that ends in .db for milvus-lite.")
    token: str = field(default="", repr=False)
    collection: str = setting("", "Name of the collection; an existing one is used.")
    alias: str = setting(
        "", "An alias that `hadahash index upgrade` switches to each new collection."
    )
    index_type: Literal["BIN_FLAT", "BIN_IVF_FLAT"] = setting(
        "BIN_FLAT", "Index of a new collection; an existing one keeps its own."
    )
    lists: int = setting(1024, "Inverted lists of BIN_IVF_FLAT.", gt=0)
    consistency: Literal["Strong", "Session", "Bounded", "Eventually"] = setting(
        "Strong", "Consistency of reads. Strong: a search sees every completed write."
    )
    timeout: float = setting(30.0, "Seconds per attempt of a call.", gt=0)
    retries: int = setting(3, "Attempts of a call, with a growing pause between them.", gt=0)
    deadline: float = setting(60.0, "Seconds per call, with all its attempts.", gt=0)
    load_timeout: float = setting(600.0, "Seconds until a collection is loaded for search.", gt=0)
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
    """A connection that is opened on first use. All calls are idempotent.

    Attributes:
        settings: Address and options.
        collection: The collection of `call`. An alias is replaced by the collection it names.
    """

    def __init__(self, settings: MilvusSettings) -> None:
        """Store the settings; no connection is opened yet."""
        self.settings = settings
        self.collection = settings.collection
        self._client: Any = None

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client for the collection.

        Raises:
            StorageError: The server refuses, or cannot be reached.
        """
        return self.call_any(method, self.collection, *arguments, **options)

    def call_any(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client with exactly these arguments.

        Raises:
            StorageError: The server refuses, or cannot be reached.
        """
        return self.attempt(
            lambda client, seconds: getattr(client, method)(
                *arguments, **{"timeout": seconds, **options}
            )
        )

    def attempt(self, action: Callable[[Any, float], T]) -> T:
        """Run an action, up to `retries` times if the server is unreachable or slow.

        Args:
            action: Gets the client, and the seconds that this attempt may take.

        Returns:
            What the action returns.

        Raises:
            StorageError: The server refuses, or cannot be reached.
        """
        grpc, refused = _libraries()[1:]
        end = time.monotonic() + self.settings.deadline
        attempts, pause = 1, 0.5
        while True:
            try:
                seconds = self._seconds(end)
                return action(self._connect(seconds), seconds)
            except (grpc.RpcError, grpc.FutureTimeoutError, refused, _Waited) as error:
                late = time.monotonic() + pause >= end
                if late or attempts >= self.settings.retries or not _is_temporary(error, grpc):
                    raise self._one_line(error, grpc, attempts) from error
            time.sleep(pause)
            attempts, pause = attempts + 1, 2 * pause

    def _seconds(self, end: float) -> float:
        """The time-out of an attempt that ends in time.

        pymilvus may pause and try again just before its time-out, so an attempt lasts up to twice
        that and a pause.
        """
        left = max(end - time.monotonic(), 0.01)
        return min(self.settings.timeout, max((left - _LONGEST_PAUSE) / 2, left / 4))

    def close(self) -> None:
        """Close the connection. The next call opens a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connect(self, seconds: float) -> Any:
        found = self._client
        if found is not None:
            return found
        if not _CONNECTING.acquire(timeout=seconds):
            raise _Waited
        try:
            if self._client is None:
                self._client = self._new_client(seconds)
            return self._client
        finally:
            _CONNECTING.release()

    def _new_client(self, seconds: float) -> Any:
        client, *_ = _libraries()
        # pymilvus logs tracebacks of errors that are handled here.
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # milvus-lite imports deprecated modules
            new = client(uri=self.settings.uri, token=self.settings.token, timeout=seconds)
        try:
            self._check_version(new, seconds)
        except BaseException:
            new.close()
            raise
        return new

    def _check_version(self, client: Any, seconds: float) -> None:
        """Refuse a server that was made for other clients; a build without a number is accepted."""
        grpc = _libraries()[1]
        try:
            version = str(client.get_server_version(timeout=seconds))
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:  # milvus-lite
                return
            raise
        found = re.search(r"(\d+)\.(\d+)", version)
        if found and not OLDEST <= (int(found[1]), int(found[2])) <= NEWEST:
            raise StorageError(
                f"Milvus at {self.settings.uri} has version {version}; supported are "
                f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.x. Use a server of these versions, or "
                "another version of hadahash."
            )

    def _one_line(self, error: Any, grpc: Any, attempts: int) -> HadaHashError:
        where = f"Milvus at {self.settings.uri}"
        if _is_rejected(error, grpc):
            return StorageError(f"{where} rejects the token. Set {TOKEN} to a valid one.")
        if _is_temporary(error, grpc):
            slow = _code(error, grpc) == grpc.StatusCode.DEADLINE_EXCEEDED
            limits = f"{attempts} attempts, deadline {self.settings.deadline:g} s"
            return StorageError(
                f"{where} {'is too slow' if slow else 'cannot be reached'} ({limits}). Check its "
                "address and the deadline. Items stored so far are kept; update() with the same "
                "items continues."
            )
        if _code(error, grpc) == grpc.StatusCode.UNIMPLEMENTED:
            return StorageError(
                f"{where} does not have a function that this needs, as milvus-lite, which has no "
                f"aliases. Use a server of version {OLDEST[0]}.{OLDEST[1]} or later."
            )
        reason = " ".join(str(getattr(error, "message", error)).split())
        return StorageError(f"{where}, collection '{self.collection}': {reason}")


class _Waited(Exception):
    """Another thread has been connecting for too long."""


def _libraries() -> tuple[Any, Any, Any]:
    try:
        import grpc
        import pymilvus
    except ImportError:
        raise MissingExtraError("pymilvus", "milvus") from None
    return pymilvus.MilvusClient, grpc, pymilvus.MilvusException


def _code(error: Any, grpc: Any) -> Any:
    """The code of gRPC or of Milvus, or None."""
    return error.code() if isinstance(error, grpc.RpcError) else getattr(error, "code", None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it. Chains of pymilvus may be cyclic."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__


def _is_rejected(error: Any, grpc: Any) -> bool:
    """Whether the token is wrong. pymilvus reports this as a failed connection."""
    return any(_code(each, grpc) == grpc.StatusCode.UNAUTHENTICATED for each in _causes(error))


def _is_temporary(error: Any, grpc: Any) -> bool:
    """Whether a retry may succeed."""
    if isinstance(error, grpc.FutureTimeoutError | _Waited):
        return True
    code = _code(error, grpc)
    if isinstance(code, grpc.StatusCode):
        return code in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.ABORTED,
        )
    if code == _CONNECTION_FAILED:
        return not _is_rejected(error, grpc)
    return bool(getattr(error, "retriable", False))
