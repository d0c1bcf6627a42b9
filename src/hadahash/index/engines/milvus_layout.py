"""The fields of a Milvus collection: class bits, and class and content bits together.

A server that only knows the Hamming distance compares weighted parts if the class bits are stored
as often as their weight. The field `both` holds them, followed by the content bits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...codes import Codes
from ...errors import StorageError
from ...packing import pack_bits
from ..items import Id
from .milvus_client import MilvusServer, MilvusSettings

CODE, BOTH = "code", "both"


class Layout(NamedTuple):
    """What a collection stores for each item.

    Attributes:
        bits: Number of class bits.
        content_bits: Number of content bits; 0 without.
        class_weight: How often the class bits are stored in the field `both`.
    """

    bits: int
    content_bits: int = 0
    class_weight: int = 1

    @property
    def vectors(self) -> dict[str, int]:
        """Number of bits of each vector field."""
        fields = {CODE: self.bits}
        if self.content_bits:
            fields[BOTH] = self.class_weight * self.bits + self.content_bits
        return fields

    def encode(self, codes: Codes) -> list[dict[str, bytes]]:
        """The vector fields of each item."""
        rows = [{CODE: code.tobytes()} for code in codes.packed]
        if self.content_bits:
            for row, both in zip(rows, codes.repeated(self.class_weight).packed, strict=True):
                row[BOTH] = both.tobytes()
        return rows

    def decode(self, rows: Sequence[dict[str, Any]], ids: Any) -> Codes:
        """The codes of rows with all vector fields."""
        packed = _stacked(rows, CODE, self.bits)
        if not self.content_bits:
            return Codes(packed, self.bits, ids)
        length = self.vectors[BOTH]
        both = np.unpackbits(_stacked(rows, BOTH, length), axis=1, count=length)
        content = pack_bits(both[:, length - self.content_bits :].astype(bool))
        return Codes(packed, self.bits, ids, (), content, self.content_bits)


def _stacked(rows: Sequence[dict[str, Any]], name: str, bits: int) -> NDArray[np.uint8]:
    """The vectors of a field, which are bytes, or a list of one bytes."""
    values = (row[name] for row in rows)
    joined = b"".join(bytes(each[0] if isinstance(each, list) else each) for each in values)
    return np.frombuffer(bytearray(joined), np.uint8).reshape(-1, -(-bits // 8))


def create_collection(
    server: MilvusServer, chosen: MilvusSettings, layout: Layout, id_type: type[Id]
) -> None:
    """Create the collection, unless another process has created it.

    Raises:
        StorageError: The server refuses.
    """
    from pymilvus import DataType, MilvusClient

    schema = MilvusClient.create_schema(
        auto_id=False, enable_dynamic_field=False, description=_description(chosen, layout)
    )
    if id_type is int:
        schema.add_field("id", DataType.INT64, is_primary=True)
    else:
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=65_535)
    params = MilvusClient.prepare_index_params()
    lists = {"nlist": chosen.lists} if chosen.index_type == "BIN_IVF_FLAT" else {}
    for name, bits in layout.vectors.items():
        schema.add_field(name, DataType.BINARY_VECTOR, dim=8 * -(-bits // 8))
        params.add_index(name, index_type=chosen.index_type, metric_type="HAMMING", params=lists)
    schema.add_field("item", DataType.JSON)
    try:
        server.call("create_collection", schema=schema, consistency_level=chosen.consistency)
    except StorageError as error:
        # Another process, or an attempt whose response was lost, may have created it.
        if not server.call("has_collection"):
            if not layout.content_bits or "vector" not in str(error):
                raise
            raise StorageError(
                f"Milvus at {chosen.uri} does not store two vectors per item, which content bits "
                "need. Use codes.class_codes(), or a server of version 2.4 or later."
            ) from error
    server.call("create_index", params, sync=False)
    server.call("load_collection")


def _description(chosen: MilvusSettings, layout: Layout) -> str:
    about = {
        "hadahash bits": layout.bits,
        "index_type": chosen.index_type,
        "lists": chosen.lists,
    }
    if layout.content_bits:
        about |= {"content_bits": layout.content_bits, "class_weight": layout.class_weight}
    return json.dumps(about)
