"""Run folders: train and evaluate on a data set, with everything needed to reproduce the result."""

from .code_files import evaluate_files
from .evaluation import EvaluatedRun, evaluate_run, find_run_data, read_evaluated_run
from .known_item import search_copies, usual_sample
from .record import DataSpec, data_digests, ids_digest
from .run_dir import RunDir
from .training import labels_of, train_run, validation_map
from .unlabelled import fit_unlabelled

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
    "read_evaluated_run",
    "search_copies",
    "train_run",
    "usual_sample",
    "validation_map",
]
