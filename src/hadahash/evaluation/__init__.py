"""Retrieval metrics that do not depend on the order of tied results: mAP, precision, recall."""

from __future__ import annotations

from .metrics import PrecisionRecall
from .result import Report
from .scoring import evaluate

__all__ = ["PrecisionRecall", "Report", "evaluate"]
