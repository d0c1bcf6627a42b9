"""Codebooks: Hadamard matrices, the codewords of the classes, and figures that tell how good they are."""

from .bounds import distance_bound, varshamov_floor
from .design import Design, codebook, designs, paper_order
from .hadamard import hadamard, orders
from .quality import Quality, quality

__all__ = [
    "Design",
    "Quality",
    "codebook",
    "designs",
    "distance_bound",
    "hadamard",
    "orders",
    "paper_order",
    "quality",
    "varshamov_floor",
]
