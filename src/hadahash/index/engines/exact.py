"""The default engine: an exhaustive scan in the order of ids."""

from __future__ import annotations

from ...native.tables import Rows, Table, cache_aligned
from ..api import ENGINES
from ..local import LocalIndex


@ENGINES.register("exact")
class ExactIndex(LocalIndex):
    """Compares every code. It needs no training, and its speed is bound by memory bandwidth."""

    engine = "exact"

    def layout(self, rows: Rows) -> Table:
        """A flat table."""
        return Table(cache_aligned(rows))
