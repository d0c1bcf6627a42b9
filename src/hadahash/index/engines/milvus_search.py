"""Exact search on a Milvus server.

Milvus returns the k nearest, with an arbitrary choice among the items at the k-th distance, and
never returns more than 16,384. So a few more are requested: if the last is farther than the k-th,
none can be missing. If not, all up to the k-th distance are fetched; beyond 16,384, distance by
distance; and where more than 16,384 are at one distance, by ranges of ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..items import Id
from ..query import SearchRequest
from .milvus_client import MilvusServer, MilvusSettings
from .milvus_filter import all_of, decode_id, id_after, id_up_to
from .milvus_layout import CODE

PAGE = 16_384  # the maximum that Milvus returns per call
_ROWS_PER_CALL = 32 * PAGE

Candidate = tuple[int, Id]  # distance, id: in the order of hits


class MilvusSearch:
    """One search request: queries the server until the result is exact."""

    def __init__(
        self,
        server: MilvusServer,
        settings: MilvusSettings,
        bits: int,
        request: SearchRequest,
        field: str = CODE,
    ) -> None:
        """Store the server and the request, which is for this vector field of this many bits."""
        self._server, self._settings, self._bits, self._request = server, settings, bits, request
        self._field = field
        self._codes = [code.tobytes() for code in request.packed]

    def nearest(self, where: str) -> list[list[Candidate]]:
        """The k nearest of each query among the items of a filter, sorted, and possibly more."""
        k, numbers = self._request.k, range(len(self._codes))
        limit = min(PAGE, k + max(16, k // 2))
        found = dict(zip(numbers, self._call(numbers, limit, where), strict=True))
        # Queries with possibly missing ties, by the k-th distance, which is right nevertheless.
        incomplete: dict[int, list[int]] = {}
        for number, hits in found.items():
            if len(hits) == limit and _complete(hits) < k:
                distance = hits[k - 1][0] if k <= limit else self._request.radius
                incomplete.setdefault(distance, []).append(number)
        for distance, tied in incomplete.items():
            answers = self._call(tied, PAGE, where, high=distance)
            for number, hits in zip(tied, answers, strict=True):
                found[number] = hits if len(hits) < PAGE else self._page_by_page(number, where)
        return [sorted(found[number]) for number in numbers]

    def _page_by_page(self, number: int, where: str) -> list[Candidate]:
        """The k nearest of one query, page after page."""
        found: list[Candidate] = []
        low = 0
        while len(found) < self._request.k and low <= self._request.radius:
            (hits,) = self._call([number], PAGE, where, low)
            if len(hits) < PAGE:
                return found + sorted(hits)
            complete = _complete(hits)
            if complete == 0:  # more than a page at one distance
                found += self._by_id(number, hits, where)
                low = hits[0][0] + 1
            else:
                found += sorted(hits[:complete])
                low = hits[-1][0]
        return found

    def _by_id(self, number: int, hits: list[Candidate], where: str) -> list[Candidate]:
        """Items at the distance of a full page of ties, in the order of ids: at least k, or all."""
        found: list[Candidate] = []
        distance = hits[0][0]
        while len(found) < self._request.k and hits:
            after, last = all_of(where, id_after(found[-1][1]) if found else ""), None
            while len(hits) == PAGE:  # halve the range of ids until it fits into a page
                last = sorted(hits)[PAGE // 2 - 1][1]
                narrow = all_of(after, id_up_to(last))
                (hits,) = self._call([number], PAGE, narrow, distance, distance)
            found += sorted(hits)
            if last is None:
                return found
            rest = all_of(where, id_after(last))
            (hits,) = self._call([number], PAGE, rest, distance, distance)
        return found

    def _call(
        self,
        numbers: Sequence[int],
        limit: int,
        where: str,
        low: int = 0,
        high: int | None = None,
    ) -> list[list[Candidate]]:
        """Query the server: hits at distances from `low` to `high`."""
        high = self._request.radius if high is None else high
        params: dict[str, Any] = {}
        if low > 0 or high < self._bits:  # the server returns range_filter <= distance < radius
            params = {"radius": high + 1, "range_filter": low}
        if self._settings.index_type == "BIN_IVF_FLAT":
            lists = self._settings.lists
            params["nprobe"] = min(self._request.probes or lists, lists)
        options = {
            "search_params": {"metric_type": "HAMMING", "params": params},
            "consistency_level": self._settings.consistency,
        }
        together, answers = max(1, _ROWS_PER_CALL // limit), []
        for start in range(0, len(numbers), together):
            data = [self._codes[number] for number in numbers[start : start + together]]
            answers += self._server.call(
                "search",
                data=data,
                anns_field=self._field,
                limit=limit,
                filter=where,
                **options,
            )
        return [
            [(round(hit["distance"]), decode_id(hit["id"])) for hit in answer] for answer in answers
        ]


def _complete(hits: list[Candidate]) -> int:
    """The number of hits of a full page that are nearer than the last: none can be missing."""
    return sum(distance < hits[-1][0] for distance, _ in hits)
