"""The public interface of every index. The contract of an engine is in engine.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..codes import as_codes
from ..errors import UsageError
from ..ranking import Ranking
from ..registry import Registry
from .checks import (
    check_lengths,
    check_ranking,
    keep_projection,
    model_meta,
    packed_content,
    packed_queries,
    ranked_queries,
    sorted_items,
    whole_number,
)
from .engine import Engine
from .items import (
    Ids,
    Item,
    empty_ids,
    id_array,
    id_type_of,
    label_set,
    parse_id,
    parse_labels,
    quote_ids,
)
from .query import Filter, Hit, Hits, Neighbor, SearchOptions, SearchRequest, pad_hits

if TYPE_CHECKING:
    from ..model import HashModel

__all__ = [
    "ENGINES",
    "Filter",
    "Hit",
    "Hits",
    "Index",
    "Item",
    "Neighbor",
    "SearchRequest",
    "parse_id",
    "parse_labels",
]

_WITHIN_COLUMNS = 64  # columns of the first search of `within`


class Index(Engine):
    """An index of binary codes.

    `Index.build` creates one, `Index.open` opens a saved one.

    Attributes:
        engine: Name of the engine.
        bits: Length of the codes, without content bits.
        content_bits: Number of content bits of each item; 0 without.
        ranking: Codewords and fitted numbers for `rank="class"` and `rank="photo"`, or None.
        meta: JSON values of the application; stored with the index by `save`.

    Example:
        >>> from hadahash.codes import Codes, pack
        >>> packed = pack([[1] * 8, [-1] * 8, [1] * 7 + [-1]])
        >>> codes = Codes(packed=packed, bits=8, ids=["a", "b", "c"])
        >>> index = Index.build(codes, labels=["cat", "dog", "dog"])
        >>> hits = index.search(codes[[0]], k=2)
        >>> hits.ids.tolist(), hits.distances.tolist(), hits.exact
        ([['a', 'c']], [[0, 1]], True)
        >>> index.search(codes[[0]], k=2, labels="dog").ids.tolist()
        [['c', 'b']]
    """

    @staticmethod
    def build(
        codes: Any,
        labels: Any = None,
        paths: Any = None,
        *,
        engine: str = "exact",
        codewords: Any = None,
        ranking: Ranking | None = None,
        model: HashModel | None = None,
        **options: Any,
    ) -> Index:
        """Create an index of codes.

        Args:
            codes: `Codes`, or anything that `hadahash.codes.as_codes` takes. Their ids become the
                ids of the items. Content bits are stored too.
            labels: One label per item, (n,) of integers or strings; or a numpy matrix (n, C) of 0
                and 1; or a list of collections of labels; or None.
            paths: One path per item, or None.
            engine: A name of `list_engines()`.
            codewords: Codewords of the classes, +-1 (C, bits), for engines that route by them; by
                default those of `ranking`.
            ranking: The ranking of the model that made the codes (`HashModel.ranking`), for
                `rank="class"` and `rank="photo"`. It is stored. Default: that of `model`.
            model: The model that made the codes. Its id and the folder it was loaded from are
                stored in `meta`, so that `hadahash search` and `serve` find it. Its projection to
                content bits is kept too.
            **options: Options of the engine.

        Returns:
            The index.

        Raises:
            UsageError: An argument is invalid.
        """
        codes = as_codes(codes)
        check_lengths(codes)
        about = model_meta(model, codes)
        ranking = model.ranking if ranking is None and model is not None else ranking
        check_ranking(ranking, codes)
        if codewords is None and ranking is not None:
            codewords = ranking.codewords
        index = ENGINES.get(engine)._create(codes.bits, codewords, **options)
        if codes.content_bits and not index.stores_content:
            raise UsageError(
                f"The index engine '{engine}' does not store content bits. "
                "Use codes.class_codes(), or another engine."
            )
        index.content_bits, index.ranking = codes.content_bits, ranking
        keep_projection(index, model, codes.content_fingerprint)
        index.meta |= about
        index.add(codes, labels, paths)
        return index

    @staticmethod
    def open(folder: str | Path) -> Index:
        """Open an index from a folder.

        If another process saves the index at the same time, the old or the new version is opened.

        Args:
            folder: A folder written by `save`.

        Returns:
            The index, of the engine it was saved with.

        Raises:
            StorageError: The folder contains no index, or it is damaged or cannot be read.
        """
        from .storage.folder import IndexFolder

        loaded = IndexFolder(folder).open()
        return ENGINES.get(loaded.manifest.engine)._load(loaded)

    # ---- changes ---------------------------------------------------------------------------------

    def add(self, codes: Any, labels: Any = None, paths: Any = None) -> None:
        """Add new items.

        Args:
            codes: As for `build`.
            labels: As for `build`.
            paths: As for `build`.

        Raises:
            UsageError: An id is already in the index (`update` replaces items), or an argument is
                invalid. Nothing is added.
        """
        self._write(codes, labels, paths, replace=False)

    def update(self, codes: Any, labels: Any = None, paths: Any = None) -> None:
        """Replace items that have the same ids and add new ones. Idempotent.

        Args:
            codes: As for `build`.
            labels: As for `build`.
            paths: As for `build`.

        Raises:
            UsageError: An argument is invalid. Nothing is changed.
        """
        self._write(codes, labels, paths, replace=True)

    def remove(self, ids: ArrayLike) -> None:
        """Remove items.

        Args:
            ids: Ids of the items.

        Raises:
            UsageError: An id is not in the index. Nothing is removed.
        """
        with self._writing:
            requested = np.unique(self._checked_ids(ids))
            known = self.has(requested)
            if not known.all():
                raise UsageError(
                    f"The index does not have {quote_ids(requested[~known])}. Nothing was removed."
                )
            if len(requested):
                self._remove(requested)

    # ---- queries ---------------------------------------------------------------------------------

    def search(
        self,
        query: Any,
        k: int = 10,
        *,
        rank: str = "hamming",
        weight: float | None = None,
        radius: int | None = None,
        labels: Any = None,
        ids: ArrayLike | None = None,
        probes: int | None = None,
        threads: int | None = None,
    ) -> Hits:
        """Find the k best items of each query, ties in the order of ids.

        The result equals an exhaustive search, unless `probes` is given. A filter by labels costs
        one pass over the label numbers of all items (about 1 ms per million); a filter by ids costs
        one lookup per id.

        Args:
            query: `Queries` (real values), `Codes`, packed uint8 (q, ceil(bits / 8)), or anything
                that `hadahash.codes.as_codes` takes. `index.codes(ids)` are the codes of items.
            k: Number of items per query. The result has min(k, len(index)) columns.
            rank: "hamming": the smallest Hamming distance first. "class": the greatest probability
                of sharing a class first, by the codewords of `index.ranking`; without codewords,
                the greatest inner product with the query's real values. "photo": the former,
                combined with the similarity of the content bits. See `Ranking`.
            weight: Weight of the content bits for `rank="photo"`, >= 0; the default is
                `index.ranking.content_weight`.
            radius: Maximum Hamming distance of a result, without content bits.
            labels: Only items that carry this label, or one of these labels.
            ids: Only these items; unknown ids are ignored.
            probes: Approximate search: number of inverted lists to visit. Rows that are then not
                guaranteed to be exact are marked in `hits.exact_rows`. Only `rank="hamming"` uses
                it.
            threads: Maximum number of threads; all usable cores by default.

        Returns:
            The hits.

        Raises:
            UsageError: An argument is invalid.
        """
        options = SearchOptions(rank, weight, radius, labels, ids, probes, threads)
        request = self._request(query, k, options)
        hits = self._search(request) if request.ranked is None else self._ranked(request)
        if hits.distances.shape[1] < request.k:
            return pad_hits(hits, min(request.k, len(self)))
        return hits

    def neighbors(
        self,
        query: Any,
        k: int = 10,
        *,
        rank: str = "hamming",
        weight: float | None = None,
        radius: int | None = None,
        labels: Any = None,
        ids: ArrayLike | None = None,
        probes: int | None = None,
        threads: int | None = None,
    ) -> list[list[Neighbor]]:
        """Find the k best items of each query, with code, path and labels, in one pass.

        Args:
            query: As for `search`.
            k: As for `search`.
            rank: As for `search`.
            weight: As for `search`.
            radius: As for `search`.
            labels: As for `search`.
            ids: As for `search`.
            probes: As for `search`.
            threads: As for `search`.

        Returns:
            For each query its neighbors, best first, without padding.

        Raises:
            UsageError: An argument is invalid.

        Example:
            >>> from hadahash.codes import Codes
            >>> codes = Codes(packed=np.uint8([[0], [255]]), bits=8, ids=["a", "b"])
            >>> index = Index.build(codes, labels=["cat", "dog"], paths=["a.jpg", "b.jpg"])
            >>> [(n.id, n.distance, n.path, n.labels) for n in index.neighbors(codes[[1]], 1)[0]]
            [('b', 0, 'b.jpg', ('dog',))]
        """
        options = SearchOptions(rank, weight, radius, labels, ids, probes, threads)
        return self._neighbors(self._request(query, k, options))

    def within(
        self,
        query: Any,
        radius: int,
        *,
        labels: Any = None,
        ids: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Hits:
        """Find all items within a distance.

        Args:
            query: As for `search`.
            radius: Maximum distance.
            labels: As for `search`.
            ids: As for `search`.
            threads: As for `search`.

        Returns:
            Hits with as many columns as the query with the most results needs.

        Raises:
            UsageError: An argument is invalid.
        """
        k = _WITHIN_COLUMNS
        while True:
            hits = self.search(query, k, radius=radius, labels=labels, ids=ids, threads=threads)
            most = int(hits.counts.max(initial=0))
            if most < k:
                return Hits(hits.ids[:, :most], hits.distances[:, :most], hits.exact_rows)
            k *= 8

    # ---- checks ----------------------------------------------------------------------------------

    def _request(self, query: Any, k: int, chosen: SearchOptions) -> SearchRequest:
        k, radius, probes = whole_number("k", k, 0), self.bits, chosen.probes
        if chosen.radius is not None:
            radius = min(whole_number("radius", chosen.radius, 0), self.bits)
        if probes is not None:
            probes = whole_number("probes", probes, 1)
        packed = packed_queries(query, self.bits)
        ranked = None
        if chosen.rank != "hamming" or chosen.weight is not None:
            ranked = ranked_queries(query, chosen.rank, chosen.weight, self)
        label_filter = None if chosen.labels is None else label_set(chosen.labels)
        id_filter = None if chosen.ids is None else np.unique(self._checked_ids(chosen.ids))
        return SearchRequest(
            packed,
            k,
            radius,
            Filter(label_filter, id_filter),
            probes,
            chosen.threads,
            packed_content(query, self),
            ranked,
        )

    def _write(self, codes: Any, labels: Any, paths: Any, *, replace: bool) -> None:
        sorted_codes, table = sorted_items(codes, labels, paths, self)
        with self._writing:  # no other writer may come between the checks and the change
            self._check_id_type(table.ids)
            if not replace:
                known = self.has(table.ids)
                if known.any():
                    raise UsageError(
                        f"The index already has {quote_ids(table.ids[known])}. "
                        "Use update() to replace items."
                    )
            if sorted_codes.content is not None and len(table):
                self._put(sorted_codes.packed, table, sorted_codes.content)
            elif len(table):
                self._put(sorted_codes.packed, table)

    def _checked_ids(self, ids: ArrayLike) -> Ids:
        """Ids of the type of this index."""
        array = id_array(ids)
        if array.size == 0:
            return empty_ids(self.id_type)
        self._check_id_type(array)
        return array

    def _check_id_type(self, ids: Ids) -> None:
        id_type = self.id_type if len(ids) else None
        if id_type is not None and id_type is not id_type_of(ids):
            raise UsageError(
                f"The ids of this index are {id_type.__name__}, got {id_type_of(ids).__name__} "
                f"(such as {ids[0]!r})."
            )


ENGINES: Registry[type[Index]] = Registry("index engine")
