"""Codebooks: Hadamard matrices, codewords for classes, and measures of their quality."""

from .bounds import distance_bound, varshamov_floor
from .designs import DESIGNS, Design, codebook, paper_order
from .hadamard import orders
from .quality import CodebookQuality, codebook_quality

__all__ = [
    "DESIGNS",
    "CodebookQuality",
    "Design",
    "codebook",
    "codebook_quality",
    "distance_bound",
    "orders",
    "paper_order",
    "varshamov_floor",
]
