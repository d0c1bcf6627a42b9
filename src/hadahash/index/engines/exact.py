"""The default engine: every code is compared, in the order of ids."""

from __future__ import annotations

from ...native import search as native
from ..api import ENGINES
from ..segments import LocalIndex


@ENGINES.register("exact")
class ExactIndex(LocalIndex):
    """A flat scan: nothing to prepare, and as fast as the memory can be read."""

    engine = "exact"

    def layout(self, rows: native.Rows) -> native.Table:
        return native.Table(native.aligned(rows))
