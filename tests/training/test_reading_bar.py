"""Reading images for a fixed backbone shows its progress."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from toys import make_toy, tiny_hasher

from hadahash import fitting
from hadahash.messages import reading_bar


@pytest.mark.parametrize("frozen", [True, False])
def test_the_long_part_of_frozen_training_has_a_bar(monkeypatch, frozen):
    bars = []

    @contextmanager
    def recorded(total, *, shown):
        bars.append([total, shown, 0])
        yield lambda count: bars[-1].__setitem__(2, bars[-1][2] + count)

    monkeypatch.setattr(fitting, "reading_bar", recorded)
    tiny_hasher(frozen=frozen, epochs=1).fit(*make_toy(40, seed=0), progress=True)
    assert bars == [[40, frozen, 40 if frozen else 0]]


@pytest.mark.parametrize("shown", [True, False])
def test_the_bar_counts_images(monkeypatch, capfd, shown):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with reading_bar(40, shown=shown) as advance:
        advance(40)
    assert ("40/40" in capfd.readouterr().err) == shown
