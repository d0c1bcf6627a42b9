"""Read one item ahead in a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from itertools import repeat
from typing import Any, Generic, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")


class Prefetcher(Generic[K, V]):
    """Reads items in a thread, one ahead of the consumer.

    Leaving the loop early stops the thread. An error in `read` is raised when its item is
    requested.

    Args:
        read: Reads one item.
        order: What to read, in order; it may be endless.

    Example:
        >>> list(Prefetcher(str, [1, 2, 3]))
        ['1', '2', '3']
    """

    def __init__(self, read: Callable[[K], V], order: Iterable[K]) -> None:
        self._read, self._order = read, order

    def __iter__(self) -> Generator[V, None, None]:
        pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        waiting, context = deque[Future[V]](), copy_context()
        try:
            for key in self._order:
                waiting.append(pool.submit(context.run, self._read, key))
                if len(waiting) > 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def read_ahead(items: Generator[V, None, None]) -> Iterator[V]:
    """Run a generator in a thread, one item ahead of the consumer.

    Args:
        items: The generator. It is closed when the consumer leaves early.

    Yields:
        Its items, in order.

    Example:
        >>> list(read_ahead(x * x for x in range(4)))
        [0, 1, 4, 9]
    """
    end = object()

    def read(_: None) -> Any:
        return next(items, end)

    with closing(items), closing(iter(Prefetcher(read, repeat(None)))) as found:
        for item in found:
            if item is end:
                return
            yield cast(V, item)
