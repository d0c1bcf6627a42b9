"""Limits for requests in progress: in total, and per client."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from ..problem import busy
from ..settings import is_loopback

T = TypeVar("T")


def client_name(address: tuple[str, int] | None) -> str:
    """Return the name under which the requests of a client are counted.

    It is the address. On loopback, where all programs of this machine and a reverse proxy have the
    same address, it is the connection.

    Args:
        address: Address and port, as ASGI gives them.

    Returns:
        The name.

    >>> client_name(("192.0.2.7", 5000)), client_name(("127.0.0.1", 5000)), client_name(None)
    ('192.0.2.7', '127.0.0.1:5000', '')
    """
    if address is None:
        return ""
    host, port = address
    return f"{host}:{port}" if is_loopback(host) else host


class Limit:
    """Slots for requests in progress. One client can only hold some of them.

    Args:
        slots: Number of slots.
        share: Largest fraction of the slots that one client can hold, at most 1.
        on_change: Called with the number of slots in use.
    """

    def __init__(
        self, slots: int, share: float = 1.0, *, on_change: Callable[[int], object] | None = None
    ) -> None:
        self._slots, self._per_client = slots, max(1, int(slots * share))
        self._on_change = on_change
        self._held: Counter[str] = Counter()
        self.in_use = 0

    @contextmanager
    def admit(self, client: str = "") -> Iterator[None]:
        """Hold one slot.

        Args:
            client: Name of the client.

        Raises:
            Problem: 503, if no slot is free, or the client holds too many.
        """
        if self.in_use >= self._slots:
            raise busy()
        if self._held[client] >= self._per_client:
            raise busy("Too many requests of this client in progress.")
        self._held[client] += 1
        self._use(1)
        try:
            yield
        finally:
            self._use(-1)
            self._held[client] -= 1
            if not self._held[client]:
                del self._held[client]

    def _use(self, slots: int) -> None:
        self.in_use += slots
        if self._on_change is not None:
            self._on_change(self.in_use)


class Turns(Generic[T]):
    """Hands out resources; if none is free, the clients that wait take turns.

    A client with many requests does not delay the one request of another.

    Args:
        free: The resources.
    """

    def __init__(self, free: Iterable[T] = ()) -> None:
        self.free = deque(free)
        self._waiting: dict[str, deque[asyncio.Future[T]]] = {}  # the next client first

    async def get(self, client: str = "") -> T:
        """Return a resource, as soon as one is free and it is this client's turn."""
        if self.free:
            return self.free.popleft()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.put(future.result())
            raise

    def put(self, resource: T) -> None:
        """Give a resource back."""
        while self._waiting:
            client = next(iter(self._waiting))
            queue = self._waiting.pop(client)
            future = queue.popleft()
            if queue:
                self._waiting[client] = queue  # behind the others
            if not future.done():
                future.set_result(resource)
                return
        self.free.append(resource)
