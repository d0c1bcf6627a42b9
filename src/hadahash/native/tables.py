"""Tables of codes in the layout of the kernels: rows of words, and the partition of routed tables.

An item's ordinal is its position in ascending order of ids. A flat table holds codes in the order
of ordinals. A routed table holds them list by list, and maps positions to ordinals.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

# Codes as they are scanned: uint32 (n, 1) up to 32 bits, else uint64 (n, ceil(bits / 64)).
Rows = NDArray[Any]

MAX_ITEMS = 1 << 32  # per table: an ordinal has 32 bits
_CACHE_LINE = 64
_TILE_BYTES = 1 << 17  # as TILE_BYTES of search.h


class Partition(NamedTuple):
    """How a routed table is divided (route.c).

    Attributes:
        centroids: One centroid per list, (lists, words).
        list_shells: First shell of each list, int64 (lists + 1,).
        shell_distances: Distance of each shell to its centroid, int32 (shells,).
        shell_blocks: First block of each shell, int64 (shells + 1,).
        starts: First position of each block, int64 (blocks + 1,).
        subdistances: Distance to the centroid in each quarter of the code, uint8 (blocks, 4). None
            if a block is a whole shell.
    """

    centroids: Rows
    list_shells: NDArray[np.int64]
    shell_distances: NDArray[np.int32]
    shell_blocks: NDArray[np.int64]
    starts: NDArray[np.int64]
    subdistances: NDArray[np.uint8] | None

    def blocks(self) -> NDArray[np.int64]:
        """List, distance to its centroid and first position of each block, as `partition` takes.

        Returns:
            int64 (blocks, 3).
        """
        lists = np.repeat(np.arange(len(self.centroids)), np.diff(self.list_shells))
        shells = np.stack([lists, self.shell_distances], axis=1).astype(np.int64)
        per_block = np.repeat(shells, np.diff(self.shell_blocks), axis=0)
        return np.concatenate([per_block, self.starts[:-1, None]], axis=1)


def partition(
    centroids: Rows, blocks: NDArray[np.int64], rows: Rows, *, by_subdistances: bool
) -> Partition:
    """Build the partition of a routed table.

    Long blocks and shells are split into pieces that stay in the cache for all queries.

    Args:
        centroids: One centroid per list, (lists, words).
        blocks: List, distance to its centroid and first position of each block, (blocks, 3), in the
            order of positions.
        rows: The codes of the table.
        by_subdistances: Whether the codes of a block have equal `subdistances`.

    Returns:
        The partition.

    Raises:
        UsageError: The blocks are not contiguous, or do not cover the table.
    """
    _check_blocks(len(centroids), blocks, len(rows))
    longest = _TILE_BYTES // (centroids.itemsize * centroids.shape[1])
    pieces = -(-np.diff(blocks[:, 2], append=len(rows)) // longest)
    lists, distances, starts = np.repeat(blocks, pieces, axis=0).T
    piece_numbers = np.arange(len(starts)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = starts + longest * piece_numbers
    new = boundaries(lists, distances)
    shell_starts = np.repeat(starts[new], np.diff(new, append=len(starts)))
    shell_blocks = boundaries(lists, distances, (starts - shell_starts) // longest)
    list_shells = np.searchsorted(lists[shell_blocks], np.arange(len(centroids) + 1))
    return Partition(
        centroids,
        list_shells.astype(np.int64),
        distances[shell_blocks].astype(np.int32),
        np.append(shell_blocks, len(starts)).astype(np.int64),
        np.append(starts, len(rows)).astype(np.int64),
        subdistances(rows[starts], centroids[lists]) if by_subdistances else None,
    )


def subdistances(rows: Rows, others: Rows) -> NDArray[np.uint8]:
    """Hamming distance in each quarter of the bytes, row by row, clipped to 255.

    Args:
        rows: Codes, (n, words).
        others: Codes, (n, words).

    Returns:
        uint8 (n, 4).
    """
    unit = np.uint8 if rows.itemsize == 4 else np.uint16  # a quarter is a whole number of units
    counts = np.bitwise_count(rows.view(unit) ^ others.view(unit)).reshape(len(rows), 4, -1)
    return np.asarray(counts.sum(axis=2, dtype=np.int32).clip(max=255), np.uint8)


def boundaries(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions where a row of the columns (none negative) differs from the previous row."""
    return np.flatnonzero(np.bitwise_or.reduce([np.diff(column, prepend=-1) for column in columns]))


class _TableStruct(ctypes.Structure):
    """`table_t` of search.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("codes", "ordinals", "allowed")),
        *((name, ctypes.c_int64) for name in ("size", "width")),
        *((name, ctypes.c_void_p) for name in ("centroids", "list_shells", "shell_distances")),
        *((name, ctypes.c_void_p) for name in ("shell_ordinals", "shell_blocks", "block_starts")),
        *((name, ctypes.c_void_p) for name in ("block_ordinals", "block_subdistances")),
        ("lists", ctypes.c_int64),
    )


class Table:
    """Codes to search, with the ordinals of their items.

    Holds references to the arrays that C code reads.

    Attributes:
        rows: The codes, by position.
        ordinals: Ordinal of each position; None if they are equal.
        partition: The partition of a routed table; None for a flat one.
    """

    def __init__(
        self,
        rows: Rows,
        *,
        ordinals: NDArray[np.uint32] | None = None,
        partition: Partition | None = None,
    ) -> None:
        """Create a table.

        Args:
            rows: The codes, as made by `rows_of`.
            ordinals: Ordinal of each position; None if they are equal.
            partition: The partition of a routed table.

        Raises:
            UsageError: The rows cannot be scanned, or are too many.
        """
        check_rows(rows)
        if len(rows) > MAX_ITEMS:
            raise UsageError(f"A table holds at most {MAX_ITEMS} codes, got {len(rows)}.")
        self.rows, self.ordinals, self.partition = rows, ordinals, partition
        self._fields = (rows, ordinals, *_partition_fields(partition, ordinals))
        self._struct = self._make_struct(None)
        self._unfiltered = ctypes.byref(self._struct)

    def __len__(self) -> int:
        """Number of codes."""
        return len(self.rows)

    def reference(self, allowed: NDArray[np.uint64] | None) -> Any:
        """The argument for C code, restricted to the allowed positions (a `bitmap`)."""
        return self._unfiltered if allowed is None else ctypes.byref(self._make_struct(allowed))

    def _make_struct(self, allowed: NDArray[np.uint64] | None) -> _TableStruct:
        rows, ordinals, *rest = (
            None if array is None else array.ctypes.data for array in self._fields
        )
        mask = None if allowed is None else allowed.ctypes.data
        width = self.rows.itemsize * self.rows.shape[1]
        lists = 0 if self.partition is None else len(self.partition.centroids)
        return _TableStruct(rows, ordinals, mask, len(self.rows), width, *rest, lists)


def _partition_fields(
    partition: Partition | None, ordinals: NDArray[np.uint32] | None
) -> tuple[NDArray[Any] | None, ...]:
    """The fields of `table_t` from `centroids` to `block_subdistances`."""
    if partition is None or ordinals is None:
        return (None,) * 8
    first = ordinals[partition.starts[:-1]]
    shells = np.minimum.reduceat(first, partition.shell_blocks[:-1]) if len(first) else first
    parts = partition.subdistances
    return (
        partition.centroids,
        partition.list_shells,
        partition.shell_distances,
        shells,
        partition.shell_blocks,
        partition.starts,
        first,
        None if parts is None else np.ascontiguousarray(parts),
    )


def rows_of(packed: NDArray[np.uint8]) -> Rows:
    """Packed codes as they are scanned: aligned, zero-padded to 4 bytes or a multiple of 8."""
    width = packed.shape[1]
    unit = 4 if width <= 4 else 8
    if width % unit:
        packed = np.pad(packed, ((0, 0), (0, -width % unit)))
    rows: Rows = np.ascontiguousarray(packed).view(np.uint32 if unit == 4 else np.uint64)
    return rows if rows.flags.aligned else rows.copy()


def packed_of(rows: Rows, bits: int) -> NDArray[np.uint8]:
    """Packed codes of rows: the inverse of `rows_of`."""
    return np.ascontiguousarray(rows.view(np.uint8)[:, : -(-bits // 8)])


def cache_aligned(rows: Rows, order: NDArray[np.intp] | None = None) -> Rows:
    """A copy of the rows, in this order, that starts on a cache line.

    A batch of queries takes about two thirds of the time on an aligned copy.
    """
    raw = np.empty(rows.nbytes + _CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % _CACHE_LINE
    copy = raw[start : start + rows.nbytes].view(rows.dtype).reshape(rows.shape)
    if order is None:
        copy[:] = rows
    else:
        np.take(rows, order, axis=0, out=copy, mode="clip")  # others copy twice
    return copy


def bitmap(mask: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """A mask by position as bits, plus one spare word: C code reads 64 bits from any position."""
    packed = np.packbits(mask, bitorder="little")
    return np.pad(packed, (0, 16 - len(packed) % 8)).view(np.uint64)


def cleared(bits: NDArray[np.uint64], positions: NDArray[Any]) -> NDArray[np.uint64]:
    """A copy of a `bitmap` without these positions."""
    copy = bits.copy()
    ones = np.left_shift(1, positions & 7).astype(np.uint8)
    np.bitwise_and.at(copy.view(np.uint8), positions >> 3, ~ones)
    return copy


def check_rows(rows: Rows) -> None:
    """Validate rows, so that C code never reads beyond their end or at a misaligned address.

    Raises:
        UsageError: The rows are not as `rows_of` makes them.
    """
    fits = (rows.dtype == np.uint32 and rows.shape[1:] == (1,)) or (
        rows.dtype == np.uint64 and rows.ndim == 2
    )
    if not fits or not rows.flags.c_contiguous or not rows.flags.aligned:
        raise UsageError(
            "Codes to search must be contiguous, aligned uint32 (n, 1) or uint64 (n, words), got "
            f"{rows.dtype} {rows.shape}. rows_of makes them."
        )


def _check_blocks(lists: int, blocks: NDArray[np.int64], size: int) -> None:
    list_numbers, distances, starts = blocks.T
    valid = (
        starts[:1].sum() == 0
        and (np.diff(starts, append=size) > 0).all()
        and len(starts) >= min(size, 1)
        and (blocks >= 0).all()
        and (list_numbers < lists).all()
        and (distances < 1 << 15).all()
    )
    if not valid or (np.diff(list_numbers << 15 | distances) < 0).any():
        raise UsageError("The blocks of a routed table must be contiguous and cover it.")
