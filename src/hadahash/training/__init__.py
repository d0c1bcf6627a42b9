"""Training: one loop, its checkpoints and log."""

from .checkpoint import Checkpoint
from .distributed import current_processes
from .log import Log
from .loop import TrainingResult, TrainingSet, train

__all__ = ["Checkpoint", "Log", "TrainingResult", "TrainingSet", "current_processes", "train"]
