"""Queries: real-valued outputs of a model, from which codes and class probabilities follow.

A query carries more than its code: how sure the model is of each bit. Rankings use it
(`hadahash.ranking`); the database stays binary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .codes import Codes, as_ids, unpack
from .errors import UsageError
from .packing import is_one, pack_bits
from .skipped import Skipped

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Queries:
    """Real-valued queries with one id per row.

    Attributes:
        values: float32 (q, bits) in [-1, 1]; the sign is the class bit.
        ids: (q,) of int64, or an object array of str; 0..q-1 by default.
        skipped: Images that have no values, with the reason.
        content: float32 (q, content bits), about unit variance; the sign is the content bit. None
            without content bits.
        probabilities: float32 (q, C): class probabilities of the model's classifier, or None.
        content_fingerprint: Identifies the projection of the content; None: unknown.

    >>> queries = Queries([[0.9, -0.2, 0.0]])
    >>> queries.codes().signs().tolist()
    [[1, -1, 1]]
    """

    values: Floats
    ids: NDArray[Any] = None  # type: ignore[assignment]
    skipped: tuple[Skipped, ...] = ()
    content: Floats | None = None
    probabilities: Floats | None = None
    content_fingerprint: str | None = None

    def __post_init__(self) -> None:
        values = _floats("values", self.values)
        if np.abs(values).max(initial=0) > 1:
            raise UsageError(
                f"values must be in [-1, 1], got {np.abs(values).max():g}. Apply tanh to outputs."
            )
        content = None if self.content is None else _floats("content", self.content)
        probabilities = self.probabilities
        if probabilities is not None:
            probabilities = _floats("probabilities", probabilities)
            if probabilities.size and (probabilities.min() < 0 or probabilities.max() > 1 + 1e-5):
                raise UsageError("probabilities must be in [0, 1]. Apply softmax to scores.")
        for name, array in (("content", content), ("probabilities", probabilities)):
            if array is not None and len(array) != len(values):
                raise UsageError(
                    f"{len(values)} queries need {len(values)} rows of {name}, got {len(array)}."
                )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "content", content)
        object.__setattr__(self, "probabilities", probabilities)
        object.__setattr__(self, "ids", as_ids(self.ids, len(values)))
        object.__setattr__(self, "skipped", tuple(Skipped(*row) for row in self.skipped))

    @classmethod
    def from_codes(cls, codes: Codes) -> Queries:
        """Queries that are as sure of every bit: all values are -1 or +1.

        Args:
            codes: Codes, with or without content bits.

        Returns:
            Queries with the same ids.
        """
        content = None
        if codes.content is not None:
            content = unpack(codes.content, codes.content_bits).astype(np.float32)
        values, made_by = codes.signs().astype(np.float32), codes.content_fingerprint
        return cls(values, codes.ids, codes.skipped, content, content_fingerprint=made_by)

    @property
    def bits(self) -> int:
        """Number of class bits."""
        return int(self.values.shape[1])

    @property
    def content_bits(self) -> int:
        """Number of content bits; 0 without."""
        return 0 if self.content is None else int(self.content.shape[1])

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Queries:
        """The queries selected by a slice, mask, row or list of rows, without `skipped`."""
        if isinstance(rows, (int, np.integer)):
            rows = [rows]
        return replace(
            self,
            values=self.values[rows],
            ids=self.ids[rows],
            skipped=(),
            content=None if self.content is None else self.content[rows],
            probabilities=None if self.probabilities is None else self.probabilities[rows],
        )

    def prefix(self, bits: int) -> Queries:
        """The queries with their first `bits` class bits.

        Args:
            bits: New number of class bits, 1 to `self.bits`.

        Returns:
            Queries with the same ids, content and probabilities.

        Raises:
            UsageError: `bits` is out of range.
        """
        if not 1 <= bits <= self.bits:
            raise UsageError(f"bits must be 1 to {self.bits}, got {bits}.")
        return replace(self, values=self.values[:, :bits])

    def codes(self) -> Codes:
        """The codes: the signs of values and content."""
        content = None if self.content is None else pack_bits(is_one(self.content))
        return Codes(
            pack_bits(is_one(self.values)),
            self.bits,
            self.ids,
            self.skipped,
            content,
            self.content_bits,
            self.content_fingerprint,
        )


def _floats(name: str, array: ArrayLike | Any) -> Floats:
    """float32 (n, width) of numbers, numpy or torch; refuses NaN and infinite values."""
    if hasattr(array, "detach"):
        array = array.detach().cpu().float().numpy()
    found = np.asarray(array)
    if found.ndim != 2 or found.dtype.kind not in "iuf" or not found.shape[1]:
        raise UsageError(f"{name} must be numbers (n, width), got {found.dtype} {found.shape}.")
    found = np.ascontiguousarray(found, np.float32)
    if not np.isfinite(found).all():
        raise UsageError(f"{name} must be finite, got NaN or infinity.")
    return found
