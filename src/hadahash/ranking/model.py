"""What a ranking needs to know: codewords, fitted numbers, and the weights of the parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..codes import check_bits, pack, unpack
from ..errors import UsageError, unknown

Rank = Literal["hamming", "class", "photo"]
RANKS: tuple[str, ...] = get_args(Rank)

SHARPNESS = 8.0  # where none was fitted
MIN_SHARPNESS, MAX_SHARPNESS = 4.0, 16.0  # quality is flat in between
CONTENT_WEIGHT = 2.0  # with codewords
CLASS_WEIGHT = 2
MAX_WEIGHT = 1e4  # of the content; then the class breaks ties only
VALUE_GRID = 1 << 20  # values of queries are rounded to multiples of 1 / VALUE_GRID

Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranking:
    """How the items of an index are ranked. It needs no model.

    - `class`: the probability that query and item share a class. Single-label:
      P(c | s) = softmax_c(sharpness / bits * <s, w_c>), and the score is sum_c P(c | q) P(c | s).
      Multi-label: p(c | s) = sigmoid(slope_c <s, w_c> / bits + offset_c), and the score is
      1 - prod_c (1 - p(c | q) p(c | s)). Without codewords: <v, s> of the query's values v.
    - `photo`: log of the former + weight * <z, t> / content_bits, with the query's content values
      z and the item's content bits t. Without codewords: (class_weight * <v, s> + weight * <z, t>)
      / content_bits; with a binary query and weight 1 this is the order of
      class_weight * d_class + d_content.

    Attributes:
        codewords: int8 (C, bits) of +-1, or None.
        classes: Names of the classes; may be empty.
        multilabel: Whether an image has any number of classes.
        sharpness: See above. Single-label only.
        slope: float64 (C,), multi-label: for codes.
        offset: float64 (C,), multi-label: for codes.
        query_slope: float64 (C,), multi-label: for real-valued queries; None to use `slope`.
        query_offset: float64 (C,), multi-label: for real-valued queries; None to use `offset`.
        content_weight: Weight of the content in `photo`. By default 2 with codewords, 1 without.
        class_weight: Weight of a class bit relative to a content bit where there are no codewords.
        content_fingerprint: Identifies the projection that made the content bits.
    """

    codewords: NDArray[np.int8] | None = None
    classes: tuple[str, ...] = ()
    multilabel: bool = False
    sharpness: float = SHARPNESS
    slope: Doubles | None = None
    offset: Doubles | None = None
    query_slope: Doubles | None = None
    query_offset: Doubles | None = None
    content_weight: float = None  # type: ignore[assignment]
    class_weight: int = CLASS_WEIGHT
    content_fingerprint: str | None = None

    def __post_init__(self) -> None:
        codewords = self.codewords
        if codewords is not None:
            codewords = np.ascontiguousarray(codewords, np.int8)
            if codewords.ndim != 2 or not codewords.size or not np.isin(codewords, (-1, 1)).all():
                raise UsageError(f"codewords must be -1 and +1 (C, bits), got {codewords.shape}.")
        object.__setattr__(self, "codewords", codewords)
        object.__setattr__(self, "classes", tuple(str(name) for name in self.classes))
        if self.classes and codewords is not None and len(self.classes) != len(codewords):
            raise UsageError(
                f"classes must be {len(codewords)} names, or none, got {len(self.classes)}."
            )
        if self.content_weight is None:
            object.__setattr__(self, "content_weight", 1.0 if codewords is None else CONTENT_WEIGHT)
        if not 0 < self.sharpness <= 100:
            raise UsageError(f"sharpness must be above 0 and <= 100, got {self.sharpness}.")
        check_weight(self.content_weight)
        if not 1 <= int(self.class_weight) <= 255 or int(self.class_weight) != self.class_weight:
            raise UsageError(f"class_weight must be an integer 1 to 255, got {self.class_weight}.")
        for name in _FITTED:
            object.__setattr__(self, name, self._per_class(name, getattr(self, name)))
        if (
            self.multilabel
            and codewords is not None
            and (self.slope is None or self.offset is None)
        ):
            raise UsageError("A multi-label ranking needs slope and offset. fit_ranking fits them.")

    @property
    def bits(self) -> int | None:
        """Number of class bits; None without codewords."""
        return None if self.codewords is None else self.codewords.shape[1]

    def prefix(self, bits: int) -> Ranking:
        """The ranking of codes that are shortened to their first `bits` bits.

        Args:
            bits: New number of class bits.

        Returns:
            The ranking with shortened codewords. The fitted numbers stay: they are relative to the
            length of the codes.
        """
        if self.codewords is None:
            return self
        return replace(self, codewords=self.codewords[:, :bits])

    def class_probabilities(self, values: ArrayLike) -> Doubles:
        """Probabilities of the classes, from real values or from the signs of codes.

        Args:
            values: (n, bits); -1 and +1 for codes.

        Returns:
            float64 (n, C). Rows sum to 1 unless multi-label.

        Raises:
            UsageError: There are no codewords, or their length differs.
        """
        values = np.asarray(values, np.float64)
        if self.codewords is None:
            raise UsageError("Class probabilities need codewords. This ranking has none.")
        if values.ndim != 2 or values.shape[1] != self.codewords.shape[1]:
            raise UsageError(f"values must be (n, {self.codewords.shape[1]}), got {values.shape}.")
        # Sums of integers are exact, so a row does not depend on the other rows.
        whole = np.rint(values * VALUE_GRID) @ self.codewords.T.astype(np.float64)
        agreement = whole / (VALUE_GRID * self.codewords.shape[1])
        if not self.multilabel:
            return softmax(self.sharpness * agreement)
        slope, offset = self._fitted_for((np.abs(values) == 1).all(axis=1, keepdims=True))
        return sigmoid(slope * agreement + offset)

    def to_dict(self) -> dict[str, Any]:
        """The ranking as JSON values; codewords as hexadecimal text of the packed bits.

        Returns:
            What `from_dict` takes.
        """
        codewords = self.codewords
        return {
            "bits": self.bits,
            "codewords": None
            if codewords is None
            else [row.tobytes().hex() for row in pack(codewords)],
            "classes": list(self.classes),
            "multilabel": self.multilabel,
            "sharpness": self.sharpness,
            **{name: _listed(getattr(self, name)) for name in _FITTED},
            "content_weight": self.content_weight,
            "class_weight": int(self.class_weight),
            "content_fingerprint": self.content_fingerprint,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Ranking:
        """The ranking that `to_dict` described.

        Args:
            stored: JSON values.

        Returns:
            The ranking.

        Raises:
            UsageError: A value is missing or not valid.
        """
        try:
            values = dict(stored)
            _check_names(values)
            codewords = _parse_codewords(values.pop("codewords"), values.pop("bits"))
            _check_types(values)
            return cls(codewords, **values)
        except (TypeError, ValueError) as error:  # includes UsageError
            text = str(error).rstrip(".")
            raise UsageError(f"This is not a stored ranking: {text}. Save it again.") from None

    def _fitted_for(self, binary: NDArray[np.bool_]) -> tuple[Doubles, Doubles]:
        """Slopes and offsets for each row, binary or real-valued."""
        if self.slope is None or self.offset is None:
            raise UsageError("A multi-label ranking needs slope and offset. fit_ranking fits them.")
        if self.query_slope is None or self.query_offset is None:
            return self.slope, self.offset
        return (
            np.where(binary, self.slope, self.query_slope),
            np.where(binary, self.offset, self.query_offset),
        )

    def _per_class(self, name: str, array: Doubles | None) -> Doubles | None:
        if array is None:
            return None
        array = np.asarray(array, np.float64)
        count = 0 if self.codewords is None else len(self.codewords)
        if array.shape != (count,) or not np.isfinite(array).all():
            raise UsageError(f"{name} must be {count} finite numbers, got {array.shape}.")
        return array


_FITTED = ("slope", "offset", "query_slope", "query_offset")
_NUMBERS = ("sharpness", "class_weight", "content_weight")


def _check_names(values: Mapping[str, Any]) -> None:
    known = {"bits", *(field.name for field in fields(Ranking))}
    missing = {"bits", "codewords"} - values.keys()
    for text, names in (("lacks", missing), ("unknown", values.keys() - known)):
        if names:
            raise ValueError(f"{text} {', '.join(sorted(map(str, names)))}")


def _check_types(values: Mapping[str, Any]) -> None:
    """Refuse JSON values that Python would take for others, such as texts and booleans."""
    classes = values.get("classes", ())
    if not isinstance(classes, (list, tuple)) or not all(isinstance(c, str) for c in classes):
        raise ValueError("classes must be a list of names")
    for name, value in values.items():
        if name == "multilabel" and not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, got {value!r}")
        if name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ValueError(f"{name} must be a number, got {value!r}")
        if name == "content_fingerprint" and not isinstance(value, str | None):
            raise ValueError(f"{name} must be a text, got {value!r}")


def _parse_codewords(rows: Any, bits: Any) -> NDArray[np.int8] | None:
    """Codewords from hexadecimal digits of their packed bits."""
    if rows is None:
        if bits is not None:
            raise ValueError(f"bits must be null without codewords, got {bits!r}")
        return None
    width = -(-check_bits(bits) // 8)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, str) for row in rows):
        raise ValueError("codewords must be a list of hexadecimal digits")
    packed = [bytes.fromhex(row) for row in rows]
    for row in packed:
        if len(row) != width:
            raise ValueError(f"a codeword of {bits} bits has {width} bytes, got {len(row)}")
    array = np.frombuffer(b"".join(packed), np.uint8).reshape(len(rows), width)
    codewords = unpack(array, bits)
    if not np.array_equal(pack(codewords), array):
        raise ValueError(f"the bits of a codeword after the first {bits} must be 0")
    return codewords


def check_rank(rank: str) -> str:
    """Return a known name of a ranking; refuse others."""
    if rank not in RANKS:
        raise unknown("ranking", rank, RANKS)
    return rank


def check_weight(weight: float) -> float:
    """Return a weight of the content that scores can hold; refuse others."""
    if not 0 <= weight <= MAX_WEIGHT:
        raise UsageError(f"weight must be 0 to {MAX_WEIGHT:.0f}, got {weight}.")
    return float(weight)


def softmax(x: Doubles) -> Doubles:
    """Softmax of each row."""
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def sigmoid(x: Doubles) -> Doubles:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1.0 + small))


def _listed(array: Doubles | None) -> list[float] | None:
    return None if array is None else array.tolist()
