"""Images that were skipped because they cannot be read, and the CSV file that lists them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from . import files


class Skipped(NamedTuple):
    """An image without a code.

    Attributes:
        path: Path or name of the image.
        reason: Why it has no code.
    """

    path: str
    reason: str


def write_skipped(path: str | Path, rows: Iterable[Skipped]) -> None:
    """Write skipped images as a CSV file with the columns path and reason.

    Without rows the file is removed, so that it never names images of an earlier run.
    """
    rows = list(rows)
    if not rows:
        Path(path).unlink(missing_ok=True)
        return
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(Skipped._fields)
    writer.writerows(rows)
    files.write_bytes(path, text.getvalue().encode("utf-8", "surrogateescape"))
