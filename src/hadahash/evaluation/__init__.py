"""Measuring retrieval: mean average precision that no order of ties can bend, precision and recall, balance of bits."""

from __future__ import annotations

from .metrics import PrecisionRecall
from .result import Report
from .scoring import evaluate

__all__ = ["PrecisionRecall", "Report", "evaluate"]
