"""All engines give the answers of an exhaustive search; transformed collections the same ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from brute_force import LOCAL_ENGINES, as_lists
from engine_cases import (
    Collection,
    collection,
    expected,
    masked,
    permuted_bits,
    random_options,
)

from hadahash.codes import Codes
from hadahash.index import Index
from hadahash.index._contract_ranked import check_ranked
from hadahash.index.engines import routed
from hadahash.queries import Queries


@pytest.fixture(autouse=True)
def route_all(monkeypatch):
    """Route also small tables."""
    for name, value in {
        "_MIN_ROUTED_BYTES": 0,
        "_MAX_COMPARED": np.inf,
        "_MIN_BLOCK_BYTES": 0,
        "_MIN_LEARNED_BYTES": 0,
    }.items():
        monkeypatch.setattr(routed, name, value)


def built(case: Collection, engine: str, rng: np.random.Generator) -> Index:
    """The collection in several parts, with items that are replaced and removed."""
    codes, labels = case.codes, case.labels
    ranking, content = case.ranking, codes.content_bits
    index = Index.build(codes[:0], engine=engine, ranking=ranking)
    assert index.content_bits == content
    ends = sorted({0, *rng.integers(0, len(codes) + 1, 3).tolist(), len(codes)})
    for start, end in pairwise(ends):
        index.update(codes[start:end], labels[start:end])
        index.update(codes[start:end][::2], labels[start:end][::2])
    for part in np.array_split(case.removed, 3):
        index.remove(part)
    return index


def check_hits(case, index, options, found):
    """Every query is one case."""
    hits = index.search(case.queries, **options)
    assert hits.exact and as_lists(hits) == found, (index.engine, options)
    return len(found)


def check_rankings(case, index, rng, tried):
    codes, labels = case.left()
    if not len(codes) or len(codes) > 400:
        return
    for rank in ("class", "photo"):
        if rank == "photo" and not codes.content_bits:
            continue
        weight = float(rng.choice([0, 0.05, 1, 50])) if rank == "photo" else None
        options = random_options(rng, codes)
        label_filter, k = options.pop("labels", None), options.pop("k")
        for query in (case.queries[:6], case.values[:6]):
            given = {"labels": labels, "label_filter": label_filter, "rank": rank, "weight": weight}
            check_ranked(index, codes, query, k, **given, **options)
            tried.count("survived", len(query))


def test_engines_equal_an_exhaustive_search(trials):
    tried = trials("engines", "exact and routed equal an exhaustive search (queries)")
    for trial in tried.numbers(25, 500):
        with trial:
            rng = trial.rng
            case = collection(rng)
            indexes = [built(case, engine, rng) for engine in LOCAL_ENGINES]
            codes, labels = case.left()
            for _ in range(10):
                options = random_options(rng, case.codes)
                found = expected(codes, labels, case.queries, options)
                tried.count("survived", check_hits(case, indexes[0], options, found))
                check_hits(case, indexes[1], options, found)
            for index in indexes:
                check_rankings(case, index, rng, tried)


def test_milvus_equals_an_exhaustive_search(trials):
    pytest.importorskip("milvus_lite")
    tried = trials("engines", "milvus-lite equals an exhaustive search (queries)")
    for trial in tried.numbers(1, 100):
        with trial:
            rng = trial.rng
            case = collection(rng, most=300, queries=6)
            index = built(case, "milvus", rng)
            try:
                codes, labels = case.left()
                for _ in range(4):
                    options = random_options(rng, case.codes)
                    found = expected(codes, labels, case.queries, options)
                    tried.count("survived", check_hits(case, index, options, found))
                check_rankings(case, index, rng, tried)
            finally:
                index.drop()


def pad_mask(rng, bits):
    mask = rng.integers(0, 256, -(-bits // 8), dtype=np.uint8)
    mask[-1] &= 0xFF << (-bits % 8) & 0xFF
    return mask


def transformed(rng, codes: Codes, queries: Codes, labels):
    """The same distances: every code XOR a mask; bits in another order; items in another order."""
    mask, order, items = (
        pad_mask(rng, codes.bits),
        rng.permutation(codes.bits),
        rng.permutation(len(codes)),
    )
    yield masked(codes, mask), masked(queries, mask), labels
    yield permuted_bits(codes, order), permuted_bits(queries, order), labels
    yield codes[items], queries, [labels[each] for each in items]


def test_transformed_collections_give_the_same_answers(trials):
    tried = trials("engines", "XOR masks, permuted bits and permuted items (queries)")
    for trial in tried.numbers(8, 150):
        with trial:
            rng = trial.rng
            case = collection(rng)
            codes, labels = case.left()
            plain = Index.build(codes, labels, engine="exact")
            for changed, queries, carried in transformed(rng, codes, case.queries, labels):
                options = random_options(rng, codes)
                true = plain.search(case.queries, **options)
                for engine in LOCAL_ENGINES:
                    hits = Index.build(changed, carried, engine=engine).search(queries, **options)
                    assert np.array_equal(hits.ids, true.ids), (engine, options)
                    assert np.array_equal(hits.distances, true.distances), (engine, options)
                    tried.count("survived", len(queries))


def test_thousands_of_removals(trials):
    tried = trials("engines", "after thousands of removals, one by one and together (queries)")
    for trial in tried.numbers(1, 10):
        with trial:
            rng = trial.rng
            signs = rng.choice([-1, 1], (5, 64))[rng.integers(0, 5, 6000)]
            signs = signs * rng.choice([1, -1], signs.shape, p=[0.97, 0.03])
            codes = Codes.from_signs(signs)
            indexes = [Index.build(codes, engine=engine) for engine in LOCAL_ENGINES]
            left = rng.permutation(6000)
            while len(left) > 800:
                gone, left = np.split(left, [int(rng.choice([1, 1, 1, 200]))])
                for index in indexes:
                    index.remove(gone)
                if rng.random() < 0.2:
                    kept = np.sort(left)
                    found = expected(codes[kept], [[]] * len(kept), codes[:5], {"k": 12})
                    for index in indexes:
                        assert as_lists(index.search(codes[:5], 12)) == found
                        tried.count("survived", 5)


def test_real_values_of_certain_queries_rank_as_codes(trials):
    """Queries of -1 and +1 equal their codes."""
    tried = trials("engines", "real-valued queries of -1 and +1 equal codes (queries)")
    for trial in tried.numbers(6, 150):
        with trial:
            case = collection(trial.rng, most=300)
            codes, labels = case.left()
            index = Index.build(codes, labels, ranking=case.ranking)
            certain = Queries.from_codes(case.queries)
            for rank in ("hamming", "class"):
                one, two = (index.search(each, 9, rank=rank) for each in (case.queries, certain))
                assert np.array_equal(one.ids, two.ids) and np.array_equal(one.scores, two.scores)
            tried.count("survived", 2 * len(certain))
