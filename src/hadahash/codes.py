"""Codes: packed binary codes with ids, from arrays and files.

`hadahash.packing` defines a bit and how bits are packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import UsageError
from .packing import binarize as binarize
from .packing import check_bits as check_bits
from .packing import hamming as hamming
from .packing import is_one as is_one
from .packing import pack as pack
from .packing import pack_bits
from .packing import unpack as unpack
from .packing import words as words
from .skipped import Skipped as Skipped
from .skipped import write_skipped as write_skipped


@dataclass(frozen=True, eq=False)
class Codes:
    """Packed binary codes with one id per row.

    Use `Codes.from_bits`, `from_signs` or `from_values` to create codes from unpacked arrays.

    Attributes:
        packed: uint8 (n, ceil(bits / 8)), as numpy.packbits writes it.
        bits: Code length.
        ids: (n,) of int64, or an object array of str; 0..n-1 by default.
        skipped: Images that have no code, with the reason.
        content: Content bits of the same images, packed uint8 (n, ceil(content_bits / 8)), or None.
            Class bits (`packed`) tell classes apart, content bits tell images apart.
        content_bits: Number of content bits; 0 without content.
        content_fingerprint: Identifies the projection that made the content bits; None: unknown.

    >>> codes = Codes.from_signs([[1, -1], [-1, -1]], ids=["a.jpg", "b.jpg"])
    >>> len(codes), codes[[1]].ids.tolist()
    (2, ['b.jpg'])
    """

    packed: NDArray[np.uint8]
    bits: int
    ids: NDArray[Any] = None  # type: ignore[assignment]
    skipped: tuple[Skipped, ...] = ()
    content: NDArray[np.uint8] | None = None
    content_bits: int = 0
    content_fingerprint: str | None = None

    def __post_init__(self) -> None:
        bits = check_bits(self.bits)
        packed = _checked_packed(self.packed, bits)
        content, content_bits = _checked_content(self.content, self.content_bits, len(packed))
        object.__setattr__(self, "bits", bits)
        object.__setattr__(self, "packed", packed)
        object.__setattr__(self, "ids", as_ids(self.ids, len(packed)))
        object.__setattr__(self, "skipped", tuple(Skipped(*row) for row in self.skipped))
        object.__setattr__(self, "content", content)
        object.__setattr__(self, "content_bits", content_bits)
        if content is None:
            object.__setattr__(self, "content_fingerprint", None)

    @classmethod
    def from_values(cls, values: ArrayLike, ids: Any = None) -> Codes:
        """Binarize real values: a bit is 1 where its value is >= 0.

        Args:
            values: Real values (n, bits), numpy or torch.
            ids: One id per row, strings or integers; 0..n-1 by default.

        Returns:
            The codes.

        Raises:
            UsageError: The values contain NaN or look like bits.

        >>> Codes.from_values([[0.3, -1.2, 0.0]]).signs().tolist()
        [[1, -1, 1]]
        """
        values = _to_numpy(values)
        return cls(pack(values), values.shape[1], ids)

    @classmethod
    def from_signs(cls, signs: ArrayLike, ids: Any = None) -> Codes:
        """Pack signs.

        Args:
            signs: -1 and +1 (n, bits), numpy or torch.
            ids: One id per row, strings or integers; 0..n-1 by default.

        Returns:
            The codes.

        Raises:
            UsageError: There are other values.
        """
        signs = _to_numpy(signs)
        if not np.isin(signs, (-1, 1)).all():
            raise UsageError("Signs must be -1 or +1. Codes.from_bits takes 0 and 1.")
        return cls(pack_bits(signs > 0), signs.shape[1], ids)

    @classmethod
    def from_bits(cls, bits: ArrayLike, ids: Any = None) -> Codes:
        """Pack bits.

        Args:
            bits: Booleans, or 0 and 1 (n, bits), numpy or torch.
            ids: One id per row, strings or integers; 0..n-1 by default.

        Returns:
            The codes.

        Raises:
            UsageError: There are other values.

        >>> Codes.from_bits([[1, 0, 1]]).signs().tolist()
        [[1, -1, 1]]
        """
        array = _to_numpy(bits)
        if not np.isin(array, (0, 1)).all():
            raise UsageError("Bits must be 0 or 1. Codes.from_signs takes -1 and +1.")
        return cls(pack_bits(array.astype(bool)), array.shape[1], ids)

    def __len__(self) -> int:
        return len(self.packed)

    def __getitem__(self, rows: Any) -> Codes:
        """The codes selected by a slice, mask, row or list of rows, without `skipped`."""
        if isinstance(rows, (int, np.integer)):
            rows = [rows]
        content = None if self.content is None else self.content[rows]
        return replace(
            self, packed=self.packed[rows], ids=self.ids[rows], skipped=(), content=content
        )

    def signs(self) -> NDArray[np.int8]:
        """The codes as int8 (n, bits) of +1 and -1, without content bits."""
        return unpack(self.packed, self.bits)

    def class_codes(self) -> Codes:
        """The codes without their content bits.

        Returns:
            Codes with the same ids.
        """
        return replace(self, content=None, content_bits=0)

    def content_codes(self) -> Codes:
        """The content bits as codes of their own.

        Returns:
            Codes of `content_bits` bits with the same ids.

        Raises:
            UsageError: The codes have no content bits.
        """
        if self.content is None:
            raise UsageError("These codes have no content bits. Encode with a model that has them.")
        return Codes(self.content, self.content_bits, self.ids, self.skipped)

    def repeated(self, weight: int) -> Codes:
        """Codes of one part: the class bits `weight` times, then the content bits.

        The Hamming distance between such codes is `weight` times the distance of the class bits
        plus the distance of the content bits.

        Args:
            weight: How often the class bits are stored, >= 1.

        Returns:
            Codes of `weight * bits + content_bits` bits with the same ids.

        Raises:
            UsageError: `weight` is not an integer >= 1.

        >>> codes = Codes(pack([[1, -1]]), 2, content=pack([[-1, 1, 1]]), content_bits=3)
        >>> codes.repeated(2).signs().tolist()
        [[1, -1, 1, -1, -1, 1, 1]]
        """
        if isinstance(weight, bool) or not isinstance(weight, (int, np.integer)) or weight < 1:
            raise UsageError(f"weight must be an integer >= 1, got {weight!r}.")
        parts = [np.unpackbits(self.packed, axis=1, count=self.bits)] * int(weight)
        if self.content is not None:
            parts.append(np.unpackbits(self.content, axis=1, count=self.content_bits))
        joined = np.concatenate(parts, axis=1)
        return Codes(pack_bits(joined.view(bool)), joined.shape[1], self.ids, self.skipped)

    def prefix(self, bits: int) -> Codes:
        """The first `bits` class bits of every code; content bits are kept.

        Args:
            bits: New code length, 1 to `self.bits`.

        Returns:
            Codes with the same ids.

        Raises:
            UsageError: `bits` is out of range.
        """
        bits = check_bits(bits)
        if bits > self.bits:
            raise UsageError(f"bits must be <= {self.bits}, the length of these codes, got {bits}.")
        packed = self.packed[:, : -(-bits // 8)].copy()
        if bits % 8:
            packed[:, -1] &= 0xFF << (8 - bits % 8) & 0xFF
        return replace(self, packed=packed, bits=bits)

    @staticmethod
    def concatenate(parts: Sequence[Codes]) -> Codes:
        """Join codes of the same lengths, in order.

        Args:
            parts: The codes, at least one.

        Returns:
            All rows and all skipped images.

        Raises:
            UsageError: The parts have different lengths, or content bits of two projections.
        """
        lengths = sorted({part.bits for part in parts})
        if len(lengths) != 1:
            raise UsageError(f"Cannot concatenate codes of different lengths: {lengths} bits.")
        lengths = sorted({part.content_bits for part in parts})
        if len(lengths) != 1:
            raise UsageError(f"Cannot concatenate codes with {lengths} content bits.")
        contents = [part.content for part in parts if part.content is not None]
        made_by = {part.content_fingerprint for part in parts}
        if len(made_by - {None}) > 1:
            raise UsageError("Cannot concatenate content bits of two projections. Encode again.")
        return Codes(
            packed=np.concatenate([part.packed for part in parts]),
            bits=parts[0].bits,
            ids=np.concatenate([part.ids for part in parts]),
            skipped=tuple(row for part in parts for row in part.skipped),
            content=np.concatenate(contents) if contents else None,
            content_bits=parts[0].content_bits,
            content_fingerprint=made_by.pop() if len(made_by) == 1 else None,
        )

    def save(self, path: str | Path) -> None:
        """Write the codes atomically.

        Args:
            path: `x.npz`, or `x.parquet` with one row per image (needs pyarrow).

        Raises:
            UsageError: The file extension is not supported.
            StorageError: The file cannot be written.
        """
        from .code_files import save_codes

        save_codes(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> Codes:
        """Read codes that `save` wrote.

        Args:
            path: The .npz or .parquet file.

        Returns:
            The codes.

        Raises:
            StorageError: The file cannot be read or is damaged.
        """
        from .code_files import load_codes

        return load_codes(Path(path))


def as_codes(codes: Any) -> Codes:
    """Convert signs, bits or packed bytes to `Codes`; `Codes` are returned unchanged.

    Args:
        codes: `Codes`; an array (n, bits) of -1/+1, of 0/1 or of booleans; or packed uint8
            (n, bytes) with values above 1, whose length is 8 * bytes. numpy or torch.

    Returns:
        The codes.

    Raises:
        UsageError: The array is none of these, or could be either bits or packed bytes.

    >>> as_codes([[1, -1], [-1, -1]]).bits, as_codes([[True, False]]).bits
    (2, 2)
    """
    if isinstance(codes, Codes):
        return codes
    array = _to_numpy(codes)
    if array.dtype == bool:
        return Codes.from_bits(array)
    if array.dtype == np.uint8:
        if array.size and array.max() > 1:
            return Codes(array, 8 * array.shape[1])
        raise UsageError(
            "A uint8 array of 0 and 1 could be bits or packed bytes. "
            "Use Codes.from_bits(bits) or Codes(packed, bits)."
        )
    if array.dtype.kind in "iuf":
        if np.isin(array, (-1, 1)).all():
            return Codes.from_signs(array)
        if np.isin(array, (0, 1)).all():
            return Codes.from_bits(array)
    raise UsageError(
        f"Cannot interpret {array.dtype} {array.shape} as codes. "
        "Use Codes.from_values(x) for real values, Codes.from_signs or Codes.from_bits."
    )


def as_ids(ids: Any, count: int) -> NDArray[Any]:
    """Ids as an array without a fixed width: int64, or objects of type str.

    Args:
        ids: Strings or integers; None means 0..count-1.
        count: Number of ids required.

    Returns:
        int64 (count,) or an object array of str (count,).

    Raises:
        UsageError: The number of ids is not `count`, or the ids are of an unsupported or mixed
            type.
    """
    if ids is None:
        return np.arange(count)
    array = ids if isinstance(ids, np.ndarray) else np.array(list(ids), object)
    if array.shape != (count,):
        raise UsageError(f"{count} codes need {count} ids, got an array of shape {array.shape}.")
    if array.dtype.kind in "iu":
        if array.size and array.max() >= 2**63:
            raise UsageError(f"Integer ids must be < 2**63, got {array.max()}.")
        return array.astype(np.int64)
    values = array.tolist()
    if all(isinstance(value, str) for value in values):
        return np.array(values, object) if values else np.empty(0, object)
    if all(
        isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in values
    ):
        return np.array(values, np.int64)
    raise UsageError("Ids must be all strings or all integers.")


def _checked_packed(codes: Any, bits: int) -> NDArray[np.uint8]:
    """Packed codes of this length, aligned."""
    packed: NDArray[np.uint8] = np.require(codes, requirements=("C", "A"))
    width = -(-bits // 8)
    if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != width:
        raise UsageError(
            f"Packed {bits}-bit codes must be uint8 (n, {width}), got {packed.dtype} "
            f"{packed.shape}. Codes.from_bits, from_signs and from_values pack arrays."
        )
    padding = width * 8 - bits
    if padding and (packed[:, -1] & ((1 << padding) - 1)).any():
        raise UsageError(f"The last {padding} padding bits of {bits}-bit codes must be 0.")
    return packed


def _checked_content(content: Any, bits: Any, count: int) -> tuple[NDArray[np.uint8] | None, int]:
    """Content bits of `count` codes, and their number."""
    if content is None:
        if bits != 0:
            raise UsageError(f"content_bits must be 0 without content, got {bits!r}.")
        return None, 0
    bits = check_bits(bits, "content_bits")
    packed = _checked_packed(content, bits)
    if len(packed) != count:
        raise UsageError(f"{count} codes need {count} rows of content bits, got {len(packed)}.")
    return packed, bits


def _to_numpy(values: Any) -> NDArray[Any]:
    """An array (n, bits) of a list, an array or a torch tensor."""
    if hasattr(values, "detach"):
        tensor = values.detach().cpu()
        values = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    array = np.asarray(values)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise UsageError(f"Codes must have the shape (n, bits), got {array.dtype} {array.shape}.")
    return array
