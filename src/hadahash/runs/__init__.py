"""Run folders: train and evaluate on a data set, with everything needed to reproduce the result.

The names below are imported on first use, so that an evaluation does not import what only training
needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .code_files import evaluate_files
    from .encoded import labels_of
    from .evaluation import (
        EvaluatedRun,
        evaluate_run,
        find_run_data,
        open_run_data,
        read_evaluated_run,
    )
    from .known_item import search_copies, usual_sample
    from .record import DataSpec, data_digests, ids_digest
    from .run_dir import RunDir
    from .training import train_run, validation_map
    from .unlabelled import fit_unlabelled

# Name -> the module that defines it.
_EXPORTS = {
    "DataSpec": "record",
    "EvaluatedRun": "evaluation",
    "RunDir": "run_dir",
    "data_digests": "record",
    "evaluate_files": "code_files",
    "evaluate_run": "evaluation",
    "find_run_data": "evaluation",
    "fit_unlabelled": "unlabelled",
    "ids_digest": "record",
    "labels_of": "encoded",
    "open_run_data": "evaluation",
    "read_evaluated_run": "evaluation",
    "search_copies": "known_item",
    "train_run": "training",
    "usual_sample": "known_item",
    "validation_map": "training",
}

__all__ = [
    "DataSpec",
    "EvaluatedRun",
    "RunDir",
    "data_digests",
    "evaluate_files",
    "evaluate_run",
    "find_run_data",
    "fit_unlabelled",
    "ids_digest",
    "labels_of",
    "open_run_data",
    "read_evaluated_run",
    "search_copies",
    "train_run",
    "usual_sample",
    "validation_map",
]

__getattr__ = lazy_names(__name__, _EXPORTS)
