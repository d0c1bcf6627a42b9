"""Train a stored cell again, with its stored settings, and compare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files
from ..errors import HadaHashError, unknown
from .cells import RunContext
from .collected import Collected
from .measures import measure
from .noise import tolerance
from .plans import PLANS
from .provenance import source_revision
from .recipes import Cell, current_names
from .trainer import Trainer

_COMPARED = ("split_sha256", "hardware", "versions")
_DIGESTS = ("pixels_sha256", "labels_sha256", "classes_sha256", "weights_sha256")


@dataclass(frozen=True)
class Check:
    """A stored cell and its repetition.

    Attributes:
        name: The cell.
        stored: mAP in the result; of a trial, on its held-out images.
        repeated: mAP of the repetition.
        same_model: Whether the weights are equal to the bit; None if no digest is stored.
        tolerance: The largest difference that rerun noise explains.
        differences: What differs between the two besides the mAP.
    """

    name: str
    stored: float
    repeated: float
    same_model: bool | None
    tolerance: float
    differences: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the two agree within the rerun noise."""
        return abs(self.repeated - self.stored) <= self.tolerance

    def __str__(self) -> str:
        word = "agrees" if self.passed else "DIFFERS"
        text = f"{self.name}: {word}: stored {self.stored:.4f}, repeated {self.repeated:.4f}"
        text += f", tolerance {self.tolerance:.4f}"
        if self.same_model:
            text += ", weights equal to the bit"
        return f"{text} (different: {', '.join(self.differences)})" if self.differences else text


def check_cell(name: str, context: RunContext) -> Check:
    """Train a stored cell again and compare it with its result.

    Args:
        name: DATASET/NAME of a result file, or PLAN/DATASET/NAME of a record of a plan.
        context: Where and how to run; `context.results` holds the result.

    Returns:
        The comparison.

    Raises:
        UsageError: If there is no such result.
        HadaHashError: If the repetition failed or diverged.
    """
    stored = find_result(name, context.results)
    cell = cell_of(stored)
    record, coded = Trainer(context, source_revision()).run(cell)
    if coded is None:
        reason = record.get("diverged") or record.get("failed")
        raise HadaHashError(f"{name}: the repetition failed: {reason}")
    before, after = stored.get("digests", {}), record["digests"]
    differences = [key for key in _COMPARED if stored.get(key) != record[key]]
    differences += [key for key in _DIGESTS if before.get(key) not in (None, after[key])]
    known = before.get("model_sha256")
    same_machine = not {"hardware", "versions"} & set(differences)
    return Check(
        name,
        _score(stored),
        _score(measure(coded)),
        None if known is None else known == after["model_sha256"],
        tolerance(stored, same_machine=same_machine),
        tuple(differences),
    )


def _score(record: dict[str, Any]) -> float:
    return float(record["map"] if "map" in record else record["validation_map"])


def find_result(name: str, results: Path) -> dict[str, Any]:
    """Find a stored result.

    Args:
        name: DATASET/NAME, or PLAN/DATASET/NAME.
        results: Folder of the results.

    Returns:
        The content of the result.

    Raises:
        UsageError: If there is no such result.
    """
    plan, _, rest = name.partition("/")
    if plan in PLANS:
        records = Collected(results / plan).records()
        known = {
            f"{record['dataset']}/{record['name']}": record
            for record in records
            if "map" in record or "validation_map" in record
        }
        if rest not in known:
            raise unknown("cell", rest, known)
        return known[rest]
    path = results / f"{name.removesuffix('.json')}.json"
    if not path.exists():
        stored = (path.relative_to(results) for path in results.glob("*/*.json"))
        raise unknown("cell", name, [str(path.with_suffix("")) for path in stored])
    found: dict[str, Any] = files.read_json(path)
    return found


def cell_of(stored: dict[str, Any]) -> Cell:
    """The cell that repeats a stored result, with all of its settings.

    Args:
        stored: The content of a result.

    Returns:
        The cell.
    """
    settings = current_names(stored["settings"])
    return Cell(
        dataset=stored["dataset"],
        method=stored["method"],
        bits=stored["bits"],
        backbone=stored["backbone"],
        seed=stored["seed"],
        protocol=stored["protocol"],
        settings={key: value for key, value in settings.items() if value is not None},
        choose=False,
        validation=stored.get("validation", 0.0),
        recipe="check",
    )
