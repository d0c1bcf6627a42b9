"""The engine past one machine: the codes are in a collection of a Milvus server, the folder only says where.

    index = Index.build(codes, labels, engine="milvus", uri="http://milvus:19530", collection="photos")
    index.save("photos.index")

Every search gives what the default engine gives, to the order inside ties. Milvus answers with the k nearest, but which of
the items at the k-th distance these are is its own choice, and it never gives more than 16,384 at once. So a few more are
asked for: if the last is further away than the k-th, none can be missing. If not, all up to the k-th distance are fetched;
past 16,384, from distance to distance; and where more than 16,384 lie at one distance, by ranges of ids.

Changes take effect in batches, not in one step as in a folder. Each batch may be repeated: after an error, `update` with the
same items ends in the same state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...codes import Codes
from ...errors import StorageError, UsageError
from ..api import ENGINES, Filter, Hits, Index, Search, refuse_missing
from ..items import Id, Ids, Item, ItemTable, Label, Mask
from ..segments import packed_codebook
from ..storage import folder as store
from .milvus_client import (
    MilvusSettings,
    Server,
    literal,
    one_of,
    read_settings,
    read_text,
    write_text,
)

PAGE = 16_384  # the most that Milvus gives at once
_ROWS = 32 * PAGE  # at most in an answer to many queries
_IDS = 1000  # in one filter
_META = "milvus"  # where the manifest names the server

Hit = tuple[int, Id]  # distance, id: in the order of hits


@ENGINES.register("milvus")
class MilvusIndex(Index):
    """A collection with the fields id, code (BINARY_VECTOR, HAMMING) and item (JSON: path and labels)."""

    engine = "milvus"

    def __init__(
        self, bits: int, codebook: NDArray[np.uint8] | None, settings: MilvusSettings
    ) -> None:
        super().__init__()
        self.bits, self.codebook, self.settings, self.meta = bits, codebook, settings, {}
        self._server = Server(settings)
        self._kind: type[Id] | None = (
            None  # of the ids of the collection; None until it is known to be there
        )
        self._origin: store.Origin | None = None

    @classmethod
    def _create(cls, bits: int, codebook: Any, **options: Any) -> MilvusIndex:
        book = None if codebook is None else packed_codebook(codebook, bits)
        return cls(bits, book, read_settings(options))

    # ---- the folder ----------------------------------------------------------------------------------------------

    @classmethod
    def _open(cls, folder: Path) -> MilvusIndex:
        opened = store.open_folder(folder)
        if not isinstance(opened.meta.get(_META), dict):
            raise StorageError(
                f"{folder} does not say which Milvus server holds its codes. Build the index again."
            )
        index = cls(opened.bits, opened.codebook, read_settings(opened.meta[_META]))
        index._origin = opened.origin
        index.meta = {key: value for key, value in opened.meta.items() if key != _META}
        return index

    def save(self, folder: str | Path) -> None:
        """Write down where the codes are, without the token; they themselves are safe with the server."""
        with self._writing:
            meta = {**self.meta, _META: self.settings.stored}
            state = store.State(self.engine, self.bits, self.codebook, (), meta)
            self._origin = store.save_folder(Path(folder), state, self._origin)[1]

    def verify(self) -> None:
        """Check that the server has the collection and that it is of this kind; its bytes are the server's to check."""
        if not self._there():
            raise StorageError(
                f"Milvus at {self.settings.uri} has no collection '{self.settings.collection}'."
            )

    def drop(self) -> None:
        """Remove the collection with all its items from the server."""
        with self._writing:
            if self._there():
                self._server.call("drop_collection")
            self._kind = None

    # ---- the collection ------------------------------------------------------------------------------------------

    def _there(self) -> bool:
        """Is there a collection? It is looked at once, and refused if it is not one of ours with codes of as many bits."""
        if self._kind is None and self._server.call("has_collection"):
            found = self._server.call("describe_collection")
            kinds = {each["name"]: each["type"].name for each in found["fields"]}
            try:
                bits = json.loads(found["description"])["hadahash bits"]
            except (ValueError, KeyError, TypeError):
                bits = None
            name = f"The collection '{self.settings.collection}' at {self.settings.uri}"
            if bits is None or not {"id", "code", "item"} <= set(kinds):
                raise UsageError(
                    f"{name} was not made by hadahash. Choose another name with collection=..."
                )
            if bits != self.bits:
                raise UsageError(
                    f"{name} holds codes of {bits} bits, got codes of {self.bits} bits."
                )
            self._server.call("load_collection")
            self._kind = int if kinds["id"] == "INT64" else str
        return self._kind is not None

    def _make(self, kind: type[Id]) -> None:
        """An empty collection for ids of this kind."""
        from pymilvus import DataType, MilvusClient

        about = json.dumps({"hadahash bits": self.bits})
        schema = MilvusClient.create_schema(
            auto_id=False, enable_dynamic_field=False, description=about
        )
        if kind is int:
            schema.add_field("id", DataType.INT64, is_primary=True)
        else:
            schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=65_535)
        schema.add_field("code", DataType.BINARY_VECTOR, dim=8 * self._width)
        schema.add_field("item", DataType.JSON)
        wanted = MilvusClient.prepare_index_params()
        lists = {"nlist": self.settings.lists} if self.settings.index_type == "BIN_IVF_FLAT" else {}
        wanted.add_index(
            "code", index_type=self.settings.index_type, metric_type="HAMMING", params=lists
        )
        try:
            self._server.call(
                "create_collection", schema=schema, consistency_level=self.settings.consistency
            )
        except StorageError:
            if not self._server.call(
                "has_collection"
            ):  # another process, or a try whose answer was lost, may have made it
                raise
        self._server.call("create_index", wanted, sync=False)
        self._server.call("load_collection")
        self._kind = kind

    @property
    def _width(self) -> int:
        return -(-self.bits // 8)

    @property
    def _fresh(self) -> dict[str, Any]:
        return {"consistency_level": self.settings.consistency}

    # ---- changing ------------------------------------------------------------------------------------------------

    def _put(self, packed: NDArray[np.uint8], items: ItemTable) -> None:
        with self._writing:
            if (
                self._there() and self._kind is not items.ids_are
            ):  # it is empty: ids of two kinds do not get this far
                self.drop()
            if not self._there():
                self._make(items.ids_are)
            for start in range(0, len(items), self.settings.batch):
                rows = np.arange(start, min(start + self.settings.batch, len(items)))
                self._server.call(
                    "upsert",
                    [
                        _row(code, item)
                        for code, item in zip(packed[rows], items.at(rows), strict=True)
                    ],
                )

    def _remove(self, ids: Ids) -> None:
        for chunk in _chunks(ids):
            self._server.call("delete", filter=_among(chunk))

    # ---- asking --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._query("", ["count(*)"])[0]["count(*)"]) if self._there() else 0

    @property
    def ids_are(self) -> type[Id] | None:
        return self._kind if self._there() and self._query("", ["id"], limit=1) else None

    @property
    def ids(self) -> Ids:
        return self._id_array([_read_id(row["id"]) for row in self._all(["id"])])

    def codes(self, ids: ArrayLike | None = None) -> Codes:
        if ids is None:
            rows = self._all(["id", "code"])
        else:
            wanted = self._ids(ids)
            found = {_read_id(row["id"]): row for row in self._rows_of(wanted, ["id", "code"])}
            refuse_missing(wanted, np.array([each in found for each in wanted.tolist()], bool))
            rows = [found[each] for each in wanted.tolist()]
        packed = np.frombuffer(b"".join(_bytes(row["code"]) for row in rows), np.uint8).reshape(
            -1, self._width
        )
        return Codes(
            packed=packed.copy(),
            bits=self.bits,
            ids=self._id_array([_read_id(row["id"]) for row in rows]),
        )

    def has(self, ids: ArrayLike) -> Mask:
        wanted = self._ids(ids)
        there = {_read_id(row["id"]) for row in self._rows_of(wanted, ["id"])}
        return np.array([each in there for each in wanted.tolist()], bool)

    def get(self, ids: ArrayLike) -> list[Item]:
        wanted = self._ids(ids)
        found = {item.id: item for item in map(_read_item, self._rows_of(wanted, ["id", "item"]))}
        refuse_missing(wanted, np.array([each in found for each in wanted.tolist()], bool))
        return [found[each] for each in wanted.tolist()]

    def _rows_of(self, ids: Ids, fields: list[str]) -> Iterator[dict[str, Any]]:
        if self._there():
            for chunk in _chunks(ids):
                yield from self._query(_among(chunk), fields)

    def _query(self, where: str, fields: list[str], **options: Any) -> list[dict[str, Any]]:
        return list(
            self._server.call("query", filter=where, output_fields=fields, **self._fresh, **options)
        )

    def _all(self, fields: list[str]) -> list[dict[str, Any]]:
        """All rows in the order of ids."""
        if not self._there():
            return []
        pages = self._server.call("query_iterator", batch_size=PAGE, output_fields=fields)
        rows: list[dict[str, Any]] = []
        while page := self._server.attempt(pages.next):
            rows += page
        pages.close()
        return sorted(rows, key=lambda row: row["id"])

    def _id_array(self, ids: list[Id]) -> Ids:
        return np.array(ids, str if self._kind is str and ids else np.int64)

    # ---- searching -----------------------------------------------------------------------------------------------

    def _search(self, search: Search) -> Hits:
        rows: list[list[Hit]] = [[] for _ in search.packed]
        if search.k and len(rows) and self._there():
            look = _Look(self, search)
            for where in _wheres(search.filter):
                for row, found in zip(rows, look.nearest(where), strict=True):
                    row += found
        rows = [sorted(row)[: search.k] for row in rows]
        kind, nothing = (str, "") if self._kind is str else (np.int64, -1)
        shape = len(rows), max(map(len, rows), default=0)
        ids, distances = np.full(shape, nothing, object), np.full(shape, -1, np.int32)
        for number, row in enumerate(rows):
            distances[number, : len(row)] = [distance for distance, _ in row]
            ids[number, : len(row)] = [each for _, each in row]
        return Hits(ids.astype(kind), distances, np.full(len(rows), self._certain(search.probes)))

    def _certain(self, probes: int | None) -> bool:
        return (
            self.settings.index_type == "BIN_FLAT"
            or probes is None
            or probes >= self.settings.lists
        )


class _Look:
    """One search: asks the server until the answer is sure."""

    def __init__(self, index: MilvusIndex, search: Search) -> None:
        self.server, self.settings, self.bits, self.search = (
            index._server,
            index.settings,
            index.bits,
            search,
        )
        self.fresh = index._fresh
        self.codes = [code.tobytes() for code in search.packed]

    def nearest(self, where: str) -> list[list[Hit]]:
        """For each query the k nearest in order, and perhaps more."""
        k, numbers = self.search.k, range(len(self.codes))
        limit = min(PAGE, k + max(16, k // 2))
        found = dict(zip(numbers, self._ask(numbers, limit, where), strict=True))
        unsure: dict[
            int, list[int]
        ] = {}  # by the distance of the k-th, which is right even where others tie with it
        for number, hits in found.items():
            if len(hits) == limit and self._sure(hits) < k:
                unsure.setdefault(hits[k - 1][0] if k <= limit else self.search.radius, []).append(
                    number
                )
        for distance, tied in unsure.items():
            for number, hits in zip(tied, self._ask(tied, PAGE, where, most=distance), strict=True):
                found[number] = hits if len(hits) < PAGE else self._further(number, where)
        return [sorted(found[number]) for number in numbers]

    def _sure(self, hits: list[Hit]) -> int:
        """How many hits of a full answer are nearer than the last, so that none can be missing among them."""
        return sum(distance < hits[-1][0] for distance, _ in hits)

    def _further(self, number: int, where: str) -> list[Hit]:
        """The k nearest of one query, page after page."""
        found: list[Hit] = []
        least = 0
        while len(found) < self.search.k and least <= self.search.radius:
            (hits,) = self._ask([number], PAGE, where, least)
            if len(hits) < PAGE:
                return found + sorted(hits)
            sure = self._sure(hits)
            if sure == 0:  # more than a page at one distance
                found += self._tied(number, hits, where)
                least = hits[0][0] + 1
            else:
                found += sorted(hits[:sure])
                least = hits[-1][0]
        return found

    def _tied(self, number: int, hits: list[Hit], where: str) -> list[Hit]:
        """Items at the distance of these, a page of an unknown many, in the order of ids: at least k, or all."""
        found: list[Hit] = []
        distance = hits[0][0]
        while len(found) < self.search.k and hits:
            after, last = _both(where, _past(found[-1][1]) if found else ""), None
            while len(hits) == PAGE:  # fewer ids, until all of them fit into a page
                last = sorted(hits)[PAGE // 2 - 1][1]
                (hits,) = self._ask(
                    [number],
                    PAGE,
                    _both(after, f"id <= {literal(_write_id(last))}"),
                    distance,
                    distance,
                )
            found += sorted(hits)
            hits = (
                []
                if last is None
                else self._ask([number], PAGE, _both(where, _past(last)), distance, distance)[0]
            )
        return found

    def _ask(
        self,
        numbers: Sequence[int],
        limit: int,
        where: str,
        least: int = 0,
        most: int | None = None,
    ) -> list[list[Hit]]:
        """What the server says of these queries: hits from `least` to `most` away, nearest first."""
        most = self.search.radius if most is None else most
        params: dict[str, Any] = {}
        if least > 0 or most < self.bits:
            params = {
                "radius": most + 1,
                "range_filter": least,
            }  # range_filter <= distance < radius
        if self.settings.index_type == "BIN_IVF_FLAT":
            params["nprobe"] = min(self.search.probes or self.settings.lists, self.settings.lists)
        together, answers = max(1, _ROWS // limit), []
        for start in range(0, len(numbers), together):
            asked = [self.codes[number] for number in numbers[start : start + together]]
            about = {"search_params": {"metric_type": "HAMMING", "params": params}, **self.fresh}
            answers += self.server.call("search", data=asked, limit=limit, filter=where, **about)
        return [
            [(round(hit["distance"]), _read_id(hit["id"])) for hit in answer] for answer in answers
        ]


# ---- rows and filters ----------------------------------------------------------------------------------------------


def _row(code: NDArray[np.uint8], item: Item) -> dict[str, Any]:
    about = {
        "path": None if item.path is None else write_text(item.path),
        "labels": [_tag(each) for each in item.labels],
    }
    return {"id": _write_id(item.id), "code": code.tobytes(), "item": about}


def _read_item(row: dict[str, Any]) -> Item:
    about = row["item"] if isinstance(row["item"], dict) else json.loads(row["item"])
    path = None if about["path"] is None else read_text(about["path"])
    labels = (int(tag[1:]) if tag[0] == "#" else read_text(tag[1:]) for tag in about["labels"])
    return Item(_read_id(row["id"]), path, tuple(labels))


def _tag(label: Label) -> str:
    """A label as text that tells 7 from "7"."""
    return f"#{label}" if isinstance(label, int) else f"={write_text(label)}"


def _write_id(each: Id) -> Id:
    return write_text(each) if isinstance(each, str) else each


def _read_id(each: Id) -> Id:
    return read_text(each) if isinstance(each, str) else each


def _bytes(code: Any) -> bytes:
    """A code comes as bytes, or as a list of one bytes."""
    return bytes(code[0] if isinstance(code, list) else code)


def _chunks(ids: Ids) -> Iterator[list[Id]]:
    for start in range(0, len(ids), _IDS):
        yield [_write_id(each) for each in ids[start : start + _IDS].tolist()]


def _among(chunk: Iterable[Id]) -> str:
    return f"id in {one_of(chunk)}"


def _wheres(chosen: Filter) -> list[str]:
    """Filters that together let through what is chosen, each item once."""
    if chosen.labels is not None and not chosen.labels:
        return []
    tags = (
        ""
        if chosen.labels is None
        else f'json_contains_any(item["labels"], {one_of(sorted(map(_tag, chosen.labels)))})'
    )
    return (
        [tags]
        if chosen.ids is None
        else [_both(_among(chunk), tags) for chunk in _chunks(chosen.ids)]
    )


def _past(each: Id) -> str:
    return f"id > {literal(_write_id(each))}"


def _both(*wheres: str) -> str:
    return " and ".join(filter(None, wheres))
