"""Tests that repeat something many times: a little as a rule, and as often as is asked for where HADAHASH_LONG=1 is set."""

from __future__ import annotations

import os


def usually(number: int, *, long: int) -> int:
    """How often, or for how many seconds."""
    return long if os.environ.get("HADAHASH_LONG") == "1" else number
