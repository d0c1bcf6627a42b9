"""The engine for several machines: codes in a collection of a Milvus server.

    index = Index.build(codes, engine="milvus", uri="http://milvus:19530", collection="photos")
    index.save("photos.index")

The folder stores the address of the server, the name of the collection, and the numbers of the
ranking with the projection to content bits. Every search
returns what the default engine returns, including the order of ties (milvus_search.py).

Changes take effect batch by batch, not atomically as in a folder. They are idempotent: after an
error, `update` with the same items leads to the same state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...codes import Codes
from ...errors import StorageError, UsageError
from ..api import ENGINES, Index
from ..checks import pack_codewords, ranking_of
from ..items import (
    Id,
    Ids,
    Item,
    ItemTable,
    Label,
    Mask,
    check_ids_exist,
    empty_ids,
    id_array,
    id_type_of,
    missing_id,
)
from ..query import Filter, Hits, SearchRequest
from ..storage.folder import MANIFEST, IndexFolder, IndexState, LoadedIndex, SavedRevision
from ..walk import walk_ranked
from . import milvus_search
from .milvus_alias import next_name, switch_alias, without_alias
from .milvus_client import MilvusServer, MilvusSettings, read_settings
from .milvus_collection import Found, check_bits, check_same_model, find_collection
from .milvus_filter import (
    decode_id,
    decode_item,
    encode_item,
    expressions,
    id_after,
    id_chunks,
    id_in,
)
from .milvus_layout import BOTH, CODE, TEXT, Layout, create_collection, finish_collection

_MOST_SEEDS = 1000  # items that a ranked search begins with
_META = "milvus"  # the key of `meta` in the manifest that names the server


@ENGINES.register("milvus")
class MilvusIndex(Index):
    """A collection with the fields id, code (BINARY_VECTOR, HAMMING) and item (path and labels).

    With content bits it has a second vector field (milvus_layout.py).

    Attributes:
        settings: Server, collection and options. `index_type` and `lists` are those of the
            collection, after its first use.
        codewords: Packed codewords, or None. They are stored in the folder.
        server: The connection; `server.collection` is the collection in use.
    """

    engine = "milvus"
    stores_content = True

    def __init__(
        self, bits: int, codewords: NDArray[np.uint8] | None, settings: MilvusSettings
    ) -> None:
        """Create an index; the server is not called yet.

        Args:
            bits: Length of the codes.
            codewords: Packed codewords, or None.
            settings: Server, collection and options.
        """
        super().__init__()
        self.bits, self.codewords, self.settings = bits, codewords, settings
        self.meta: dict[str, Any] = {}
        self.server = MilvusServer(settings)
        self._stored_type: type[Id] | None = None  # None until the collection is known to exist
        self._class_weight: int | None = None  # of the collection; None until it is known
        self._text = False  # whether the collection has content bits as text
        self._revision: SavedRevision | None = None

    @classmethod
    def _create(cls, bits: int, codewords: Any, **options: Any) -> MilvusIndex:
        return cls(bits, pack_codewords(codewords, bits), read_settings(options))

    # ---- folder ----------------------------------------------------------------------------------

    @classmethod
    def _load(cls, loaded: LoadedIndex) -> MilvusIndex:
        manifest = loaded.manifest
        if not isinstance(manifest.meta.get(_META), dict):
            raise StorageError(
                f"{loaded.revision.folder} does not name a Milvus server. Build the index again."
            )
        stored = dict(manifest.meta[_META])
        if "batch" in stored:  # its name in version 0.1
            stored["batch_size"] = stored.pop("batch")
        index = cls(manifest.bits, manifest.codewords, read_settings(stored))
        index._revision = loaded.revision
        index.meta = {key: value for key, value in manifest.meta.items() if key != _META}
        index.content_bits, index.ranking = manifest.content_bits, manifest.ranking
        index._projection = loaded.projection
        return index

    def save(self, folder: str | Path, *, name: str = MANIFEST) -> None:
        """Write the address of the codes to a folder, without the token. See `Engine.save`."""
        with self._writing:
            meta = {**self.meta, _META: self.settings.stored}
            content = (self.content_bits, self.ranking, self._projection)
            state = IndexState(self.engine, self.bits, self.codewords, meta, (), *content)
            saved = IndexFolder(folder, name).commit(state, self._revision)
            self._revision, self._projection = saved.revision, saved.projection

    @property
    def location(self) -> str | None:
        """Server and collection."""
        return f"{self.settings.uri} {self.settings.collection}"

    def next_options(self) -> dict[str, Any]:
        """The same server and settings, and a collection that does not exist yet."""
        return {**self.settings.stored, "collection": next_name(self.server)}

    def pin(self) -> bool:
        """Replace an alias by the collection that it names; see `Engine.pin`."""
        before, self.settings = self.settings, without_alias(self.server)
        return self.settings != before

    def made_current(self) -> None:
        """Let the alias name this collection; see `Engine.made_current`."""
        if self.settings.alias and self._exists():
            switch_alias(self.server, self.settings.alias, self.settings.collection)

    def verify(self) -> None:
        """Check that the collection exists and is compatible; the server checks its own files.

        Raises:
            StorageError: There is no such collection.
        """
        self.refresh()
        if self._projection is not None:
            self._projection.verify()
        if not self._exists():
            raise StorageError(
                f"Milvus at {self.settings.uri} has no collection '{self.settings.collection}'."
            )

    def drop(self) -> None:
        """Remove the collection with all its items from the server.

        Raises:
            UsageError: An alias names the collection.
            StorageError: The server refuses, or cannot be reached.
        """
        with self._writing:
            found = find_collection(self.server, self.server.collection)
            if found is not None and found.aliases:
                raise UsageError(
                    f"The alias '{found.aliases[0]}' names the collection '{found.name}'. "
                    "Switch it to another collection before drop()."
                )
            if found is not None:
                self.server.call("drop_collection")
            self.refresh()

    def refresh(self) -> None:
        """Forget what is known about the collection, and follow its alias at the next call."""
        with self._writing:
            self._stored_type, self._class_weight, self._text = None, None, False
            self.server.collection = self.settings.collection

    def close(self) -> None:
        """Close the connection to the server. The next call opens a new one."""
        self.server.close()

    # ---- the collection --------------------------------------------------------------------------

    def _exists(self) -> bool:
        """Whether the collection exists. It is checked once; an incompatible one is an error."""
        if self._stored_type is None:
            found = find_collection(self.server, self.settings.collection)
            if found is not None:
                self._use(found)
        return self._stored_type is not None

    def _use(self, found: Found) -> None:
        """Use an existing collection, as it was created, and load it."""
        check_bits(self.server, found, self.bits, self.content_bits)
        check_same_model(self.server, found, self.meta.get("model"))
        self.server.collection = found.name
        self._class_weight = found.about.get("class_weight")
        self._text = TEXT in found.fields
        self._use_index_of_collection(found.about)
        finish_collection(self.server, self.settings, self._layout)
        self._stored_type = found.id_type

    def _use_index_of_collection(self, about: dict[str, Any]) -> None:
        """Take index type and lists from the collection: searches rely on them to be exact."""
        if "index_type" not in about:  # version 0.1 did not store them
            found = self.server.call("describe_index", index_name="code") or {}
            about = {"index_type": found.get("index_type"), "lists": found.get("nlist")}
        lists = int(about.get("lists") or self.settings.lists)
        index_type = about["index_type"] or self.settings.index_type
        self.settings = replace(self.settings, index_type=index_type, lists=lists)

    def _make_collection(self, id_type: type[Id]) -> None:
        """Create the collection, unless another process has just created it, maybe differently."""
        create_collection(self.server, self.settings, self._layout, id_type)
        self._stored_type = self._class_weight = None
        self._exists()

    @property
    def _layout(self) -> Layout:
        """The fields of the collection, or of the one that will be created."""
        if self._class_weight is None:
            self._class_weight = int(ranking_of(self).class_weight)
        model = self.meta.get("model")
        return Layout(self.bits, self.content_bits, self._class_weight, self._text, model)

    # ---- changes ---------------------------------------------------------------------------------

    def _put(
        self, packed: NDArray[np.uint8], items: ItemTable, content: NDArray[np.uint8] | None = None
    ) -> None:
        with self._writing:
            if not self._exists():
                self._make_collection(items.id_type)
            if self._stored_type is not items.id_type:
                stored = "int" if self._stored_type is int else "str"
                raise UsageError(
                    f"The collection '{self.settings.collection}' is for {stored} ids, got "
                    f"{items.id_type.__name__}. Remove it with drop(), or choose another name."
                )
            for start in range(0, len(items), self.settings.batch_size):
                rows = np.arange(start, min(start + self.settings.batch_size, len(items)))
                part = None if content is None else content[rows]
                codes = Codes(packed[rows], self.bits, rows, (), part, self.content_bits)
                pairs = zip(self._layout.encode(codes), items.at(rows), strict=True)
                batch = [vectors | encode_item(item) for vectors, item in pairs]
                self.server.call("upsert", batch)

    def _remove(self, ids: Ids) -> None:
        for chunk in id_chunks(ids):
            self.server.call("delete", filter=id_in(chunk))

    # ---- queries ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of items."""
        return int(self._query("", ["count(*)"])[0]["count(*)"]) if self._exists() else 0

    @property
    def id_type(self) -> type[Id] | None:
        """Type of the ids, int or str; None while the collection is empty."""
        filled = self._exists() and self._query("", ["id"], limit=1)
        return self._stored_type if filled else None

    @property
    def ids(self) -> Ids:
        """All ids in ascending order: int64, or object (str)."""
        return self._id_array(self._all(["id"]))

    def sample_ids(self, count: int) -> Ids:
        """Some ids; see `Engine.sample_ids`. They are the first ones that the server returns."""
        if not self._exists():
            return empty_ids(None)
        rows = self._query("", ["id"], limit=min(count, milvus_search.PAGE))
        return self._id_array(sorted(rows, key=lambda row: row["id"]))

    def codes(self, ids: ArrayLike | None = None) -> Codes:
        """The codes of all items, or of these; see `Engine.codes`."""
        fields = ["id", *self._layout.fields]
        if ids is None:
            rows = self._all(fields)
        else:
            requested = self._checked_ids(ids)
            found = {decode_id(row["id"]): row for row in self._rows_of(requested, fields)}
            known = [each in found for each in requested.tolist()]
            check_ids_exist(requested, np.array(known, bool))
            rows = [found[each] for each in requested.tolist()]
        codes = self._layout.decode(rows, self._id_array(rows))
        return replace(codes, content_fingerprint=self.content_fingerprint)

    def has(self, ids: ArrayLike) -> Mask:
        """Which of the ids are in the index, bool (n,)."""
        requested = self._checked_ids(ids)
        found = {decode_id(row["id"]) for row in self._rows_of(requested, ["id"])}
        return np.array([each in found for each in requested.tolist()], bool)

    def get(self, ids: ArrayLike) -> list[Item]:
        """Id, path and labels of items; see `Engine.get`."""
        requested = self._checked_ids(ids)
        rows = self._rows_of(requested, ["id", "item"])
        found = {item.id: item for item in map(decode_item, rows)}
        check_ids_exist(requested, np.array([each in found for each in requested.tolist()], bool))
        return [found[each] for each in requested.tolist()]

    def label_counts(self) -> dict[Label, int]:
        """Number of items per label. Reads all items from the server."""
        counts: Counter[Label] = Counter()
        for row in self._pages(["id", "item"]):
            counts.update(decode_item(row).labels)
        return dict(counts)

    def has_label(self, labels: Sequence[Label]) -> bool:
        """Whether an item has one of the labels; asks for one item. See `Engine.has_label`."""
        where = expressions(Filter(frozenset(labels))) if self._exists() else []
        return any(self._query(each, ["id"], limit=1) for each in where)

    def _search(self, request: SearchRequest) -> Hits:
        rows = self._nearest(request, CODE)
        shape = len(rows), max(map(len, rows), default=0)
        ids = np.full(shape, missing_id(self._stored_type), object)
        distances = np.full(shape, -1, np.int32)
        for number, row in enumerate(rows):
            distances[number, : len(row)] = [distance for distance, _ in row]
            ids[number, : len(row)] = [each for _, each in row]
        if self._stored_type is not str:
            ids = ids.astype(np.int64)
        return Hits(ids, distances, np.full(len(rows), self._is_exact(request.probes)))

    def _ranked(self, request: SearchRequest) -> Hits:
        ranked, seeds = request.ranked, None
        if ranked is not None and ranked.rank == "photo" and self._has_both():
            both = ranked.queries.codes().repeated(self._layout.class_weight)
            k = min(request.k, _MOST_SEEDS)
            nearest = request._replace(packed=both.packed, k=k, radius=both.bits, probes=None)
            found = self._nearest(nearest, BOTH)
            seeds = [id_array([each for _, each in row]) for row in found]
        return walk_ranked(self, request, seeds)

    def _has_both(self) -> bool:
        return self._exists() and BOTH in self._layout.vectors

    def _nearest(self, request: SearchRequest, field: str) -> list[list[milvus_search.Candidate]]:
        """The k nearest items of each query in a vector field."""
        rows: list[list[milvus_search.Candidate]] = [[] for _ in request.packed]
        known = self._exists() and self._may_have(request.filter.ids)
        if request.k and len(rows) and known:
            bits = self._layout.vectors[field]
            search = milvus_search.MilvusSearch(self.server, self.settings, bits, request, field)
            for where in expressions(request.filter):
                for row, found in zip(rows, search.nearest(where), strict=True):
                    row += found
        return [sorted(row)[: request.k] for row in rows]

    def _is_exact(self, probes: int | None) -> bool:
        return self.settings.index_type == "BIN_FLAT" or (probes or 2**31) >= self.settings.lists

    # ---- calls -----------------------------------------------------------------------------------

    def _rows_of(self, ids: Ids, fields: list[str]) -> Iterator[dict[str, Any]]:
        if self._exists() and self._may_have(ids):
            for chunk in id_chunks(ids):
                yield from self._query(id_in(chunk), fields)

    def _may_have(self, ids: Ids | None) -> bool:
        """Whether the ids are of the type of the collection; an empty one has neither."""
        return ids is None or not len(ids) or id_type_of(ids) is self._stored_type

    def _query(self, where: str, fields: list[str], **options: Any) -> list[dict[str, Any]]:
        options["consistency_level"] = self.settings.consistency
        return list(self.server.call("query", filter=where, output_fields=fields, **options))

    def _pages(self, fields: list[str]) -> Iterator[dict[str, Any]]:
        """All rows, in the order of ids as the server stores them.

        This is what `query_iterator` of pymilvus does, with a time-out for every call.
        """
        options = {"limit": milvus_search.PAGE, "iterator": "True", "reduce_stop_for_best": "True"}
        if self._exists():  # pages are read with the consistency of the collection: wait first
            self._query("", ["count(*)"])
        where = ""
        while self._exists() and (page := self._query(where, fields, **options)):
            yield from page
            where = id_after(decode_id(page[-1]["id"]))

    def _all(self, fields: list[str]) -> list[dict[str, Any]]:
        """All rows in the order of ids."""
        return sorted(self._pages(fields), key=lambda row: row["id"])

    def _id_array(self, rows: list[dict[str, Any]]) -> Ids:
        return id_array([decode_id(row["id"]) for row in rows]) if rows else empty_ids(None)
