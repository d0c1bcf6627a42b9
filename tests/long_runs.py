"""Repetitions of long tests: few by default, all with HADAHASH_LONG=1."""

from __future__ import annotations

import os


def usually(number: int, *, long: int) -> int:
    """How often, or for how many seconds."""
    return long if os.environ.get("HADAHASH_LONG") == "1" else number
