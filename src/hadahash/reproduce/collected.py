"""Results of a plan: a folder with one file of JSON lines per data set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files
from .recipes import Cell

Record = dict[str, Any]


@dataclass(frozen=True)
class Collected:
    """The results of a plan.

    Attributes:
        folder: The folder.
        suffix: Part of the file names, to separate the files of several processes.
    """

    folder: Path
    suffix: str = ""

    def append(self, record: Record) -> None:
        """Append a record. A line that an interrupted process left unfinished is removed first.

        Args:
            record: The record of one cell.
        """
        path = self.folder / f"{record['dataset']}{self.suffix}.jsonl"
        files.make_folder(self.folder)
        kept = path.read_bytes() if path.exists() else b""
        if kept and not kept.endswith(b"\n"):
            files.write_bytes(path, kept[: kept.rfind(b"\n") + 1])
        with path.open("ab") as file:
            file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")

    def records(self) -> list[Record]:
        """All complete records of all files; the last record of a cell counts."""
        found: dict[str, Record] = {}
        for path in sorted(self.folder.glob("*.jsonl")):
            for line in path.read_bytes().split(b"\n"):
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                found[f"{record['dataset']}/{record['name']}"] = record
        return list(found.values())

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells that have no result with their settings; a failed run is no result.

        Args:
            cells: The cells of a plan.

        Returns:
            Those to run, in the same order.
        """
        known = {
            (record["dataset"], record["name"], json.dumps(record["asked"], sort_keys=True))
            for record in self.records()
            if "failed" not in record
        }
        return [cell for cell in cells if (cell.dataset, cell.name, _asked(cell)) not in known]


def _asked(cell: Cell) -> str:
    return json.dumps({**cell.settings, **cell.varied}, sort_keys=True)
