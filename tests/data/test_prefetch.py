"""Reading ahead in a thread."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar

import pytest

from hadahash.data.prefetch import read_ahead

CONTEXT: ContextVar[str] = ContextVar("context", default="none")


def test_items_come_in_order_from_another_thread():
    def items():
        for number in range(20):
            yield number, threading.current_thread(), CONTEXT.get()

    token = CONTEXT.set("of the caller")
    found = list(read_ahead(items()))
    CONTEXT.reset(token)
    assert [each[0] for each in found] == list(range(20))
    assert {each[2] for each in found} == {"of the caller"}
    assert len({each[1] for each in found}) == 1 and found[0][1] is not threading.current_thread()
    assert list(read_ahead(iter_none())) == []


def iter_none():
    yield from ()


def test_an_early_end_closes_the_generator():
    state = []

    def items():
        try:
            for number in range(10**9):
                state.append(number)
                yield number
        finally:
            state.append("closed")

    for number in read_ahead(items()):
        if number == 3:
            time.sleep(0.05)  # time enough to run far ahead
            break
    assert state[-1] == "closed" and len(state) <= 7


def test_an_error_comes_after_the_items_before_it():
    def items():
        yield 1
        raise OSError("of the generator")

    found = read_ahead(items())
    assert next(found) == 1
    with pytest.raises(OSError, match="of the generator"):
        next(found)
