"""The fields of a Milvus collection: class bits, and class and content bits together.

A server that only knows the Hamming distance compares weighted parts if the class bits are stored
as often as their weight. The field `both` holds them, followed by the content bits. A server that
stores one vector per item (before version 2.4) has the content bits as text; it does not compare
them, but a ranked search is exact without (walk.py).
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
from .milvus_collection import load_collection

CODE, BOTH, TEXT = "code", "both", "content"


class Layout(NamedTuple):
    """What a collection stores for each item.

    Attributes:
        bits: Number of class bits.
        content_bits: Number of content bits; 0 without.
        class_weight: How often the class bits are stored in the field `both`.
        text: Whether the content bits are text instead, in the field `content`.
        model: Id of the model that makes the codes, or None.
    """

    bits: int
    content_bits: int = 0
    class_weight: int = 1
    text: bool = False
    model: str | None = None

    @property
    def vectors(self) -> dict[str, int]:
        """Number of bits of each vector field."""
        fields = {CODE: self.bits}
        if self.content_bits and not self.text:
            fields[BOTH] = self.class_weight * self.bits + self.content_bits
        return fields

    @property
    def fields(self) -> list[str]:
        """The fields with bits."""
        return [*self.vectors, *([TEXT] if self.content_bits and self.text else [])]

    def encode(self, codes: Codes) -> list[dict[str, Any]]:
        """The fields with the bits of each item."""
        rows: list[dict[str, Any]] = [{CODE: code.tobytes()} for code in codes.packed]
        if codes.content is not None and self.text:
            for row, content in zip(rows, codes.content, strict=True):
                row[TEXT] = content.tobytes().hex()
        elif self.content_bits:
            for row, both in zip(rows, codes.repeated(self.class_weight).packed, strict=True):
                row[BOTH] = both.tobytes()
        return rows

    def decode(self, rows: Sequence[dict[str, Any]], ids: Any) -> Codes:
        """The codes of rows with all these fields."""
        packed = _stacked(rows, CODE, self.bits)
        if not self.content_bits:
            return Codes(packed, self.bits, ids)
        if self.text:
            joined = bytes.fromhex("".join(row[TEXT] for row in rows))
            found = np.frombuffer(bytearray(joined), np.uint8)
            content = found.reshape(-1, -(-self.content_bits // 8))
            return Codes(packed, self.bits, ids, (), content, self.content_bits)
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

    Content bits are stored as text if the server stores one vector per item.

    Raises:
        StorageError: The server refuses.
    """
    try:
        schema = _schema(chosen, layout, id_type)
        server.call("create_collection", schema=schema, consistency_level=chosen.consistency)
    except StorageError as error:
        # Another process, or an attempt whose response was lost, may have created it.
        if server.call("has_collection"):
            return
        if not layout.content_bits or layout.text or "vector" not in str(error):
            raise
        create_collection(server, chosen, layout._replace(text=True), id_type)


def finish_collection(server: MilvusServer, chosen: MilvusSettings, layout: Layout) -> None:
    """Create the indexes of a collection that has none, and load it. Idempotent.

    Raises:
        StorageError: The server refuses, or cannot be reached.
    """
    from pymilvus import MilvusClient

    missing = set(layout.vectors) - set(server.call("list_indexes"))
    params = MilvusClient.prepare_index_params()
    lists = {"nlist": chosen.lists} if chosen.index_type == "BIN_IVF_FLAT" else {}
    for name in sorted(missing):
        params.add_index(name, index_type=chosen.index_type, metric_type="HAMMING", params=lists)
    if missing:
        server.call("create_index", params, sync=False)
    load_collection(server)


def _schema(chosen: MilvusSettings, layout: Layout, id_type: type[Id]) -> Any:
    from pymilvus import DataType, MilvusClient

    schema = MilvusClient.create_schema(
        auto_id=False, enable_dynamic_field=False, description=_description(chosen, layout)
    )
    if id_type is int:
        schema.add_field("id", DataType.INT64, is_primary=True)
    else:
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=65_535)
    for name, bits in layout.vectors.items():
        schema.add_field(name, DataType.BINARY_VECTOR, dim=8 * -(-bits // 8))
    if TEXT in layout.fields:
        length = 2 * -(-layout.content_bits // 8)
        schema.add_field(TEXT, DataType.VARCHAR, max_length=length)
    schema.add_field("item", DataType.JSON)
    return schema


def _description(chosen: MilvusSettings, layout: Layout) -> str:
    about: dict[str, Any] = {
        "hadahash bits": layout.bits,
        "index_type": chosen.index_type,
        "lists": chosen.lists,
    }
    if layout.content_bits:
        about |= {"content_bits": layout.content_bits, "class_weight": layout.class_weight}
    if layout.model is not None:
        about["model"] = layout.model
    return json.dumps(about)
