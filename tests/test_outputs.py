"""Outputs of batches become one array, in memory or in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hadahash.data import spool
from hadahash.outputs import Outputs, fill_outputs, join_outputs


def parts(*, content: bool) -> tuple[list[Outputs], Outputs]:
    """Three batches of 7 images, of which two fail, and the outputs of none."""
    rng = np.random.default_rng(0)

    def make(rows: list[int], failed: list[tuple[int, str]]) -> Outputs:
        values, other = (rng.random((len(rows), width), np.float32) for width in (5, 3))
        return Outputs(values, np.array(rows, np.int64), failed, other if content else None)

    batches = [make([0, 2], [(1, "a")]), make([], [(3, "b")]), make([4, 5, 6], [])]
    return batches, make([], [])


@pytest.mark.parametrize("content", [True, False])
@pytest.mark.parametrize("available", [10**9, 0])
def test_filled_outputs_are_joined_outputs(monkeypatch, tmp_path, content, available):
    monkeypatch.setattr(spool, "available_memory", lambda: available)
    monkeypatch.setenv("HADAHASH_DATA", str(tmp_path))
    batches, nothing = parts(content=content)
    filled = fill_outputs(iter(batches), nothing, 7, spool.allocate)
    joined = join_outputs(batches, nothing)
    assert np.array_equal(filled.values, joined.values)
    assert filled.rows.tolist() == joined.rows.tolist() and filled.failed == joined.failed
    assert (filled.content is None) == (not content)
    assert filled.content is None or np.array_equal(filled.content, joined.content)
    assert isinstance(filled.values, np.memmap) == (available == 0)
    assert list(Path(tmp_path).iterdir()) == []  # the file has no name
