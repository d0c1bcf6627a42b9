"""Codebooks: Hadamard matrices, codewords for classes, and measures of their quality."""

from .assignment import assign_codewords, class_similarity
from .bounds import distance_bound, varshamov_floor
from .designs import DESIGNS, Design, codebook, paper_order
from .hadamard import orders
from .nested import PrefixQuality, prefix_lengths, prefix_quality
from .quality import CodebookQuality, codebook_quality

__all__ = [
    "DESIGNS",
    "CodebookQuality",
    "Design",
    "PrefixQuality",
    "assign_codewords",
    "class_similarity",
    "codebook",
    "codebook_quality",
    "distance_bound",
    "orders",
    "paper_order",
    "prefix_lengths",
    "prefix_quality",
    "varshamov_floor",
]
