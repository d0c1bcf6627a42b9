"""Groups of nearly equal codes equal the connected components of all pairs."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np
import pytest

from hadahash.codes import Codes, hamming
from hadahash.errors import UsageError
from hadahash.index import Index, duplicate_keys, duplicate_parts, forest
from hadahash.index import duplicate_links as module
from hadahash.index.duplicates import duplicate_groups
from hadahash.native.tables import rows_of


def components(codes, radius):
    """Groups by depth-first search over all pairs."""
    near = hamming(codes.packed, codes.packed) <= radius
    group = np.full(len(codes), -1)
    for start in range(len(codes)):
        stack = [start] if group[start] < 0 else []
        while stack:
            row = stack.pop()
            group[row] = start
            stack += np.flatnonzero(near[row] & (group < 0)).tolist()
    members = [np.sort(codes.ids[group == number]).tolist() for number in np.unique(group)]
    return sorted((m for m in members if len(m) > 1), key=lambda m: (-len(m), m[0]))


@pytest.mark.parametrize("neighbors", [1, 2, 5, 64])
@pytest.mark.parametrize("radius", [0, 1, 4, 9, 64])
@pytest.mark.parametrize("flips", [0.02, 0.08, 0.5])
def test_groups_equal_components(make, monkeypatch, radius, flips, neighbors):
    monkeypatch.setattr(duplicate_parts, "choose_blocks", lambda *arguments: None)
    monkeypatch.setattr(module, "_NEIGHBORS_PER_QUERY", neighbors)
    monkeypatch.setattr(module, "_QUERIES_PER_STEP", 50)
    codes = make(400, flips=flips)
    assert duplicate_groups(Index.build(codes), radius) == components(codes, radius)


def test_progress_counts_every_item_once(make):
    codes, counts = make(3000, flips=0.03), []
    duplicate_groups(Index.build(codes), 3, progress=counts.append)
    assert sum(counts) == 3000 and len(counts) > 1


def test_dense_clusters_take_seconds(rng):
    """Every code has hundreds of neighbors: the pairs are far too many to list."""
    centroids = rng.integers(0, 256, (100, 8), dtype=np.uint8)
    flips = np.packbits(rng.random((30_000, 64), np.float32) < 0.05, axis=1)
    packed = centroids[rng.integers(0, 100, 30_000)] ^ flips
    index = Index.build(Codes(packed=packed, bits=64))
    start = time.perf_counter()
    groups = duplicate_groups(index, 6)
    assert time.perf_counter() - start < 20
    assert len(groups) >= 90 and sum(map(len, groups)) > 29_000


def test_an_invalid_radius_is_refused(make):
    for radius in (-1, 1.5, True):
        with pytest.raises(UsageError, match="radius must be an integer"):
            duplicate_groups(Index.build(make(3)), radius)


def test_a_radius_of_any_size_joins_all_items(make):
    index = Index.build(make(3))
    for radius in (index.bits, 10**30):
        assert duplicate_groups(index, radius) == [sorted(index.ids.tolist())]


def all_links(packed, radius):
    """A minimum spanning forest of all pairs."""
    distances = hamming(packed, packed)
    a, b = np.nonzero(np.triu(distances <= radius, 1))
    links = np.stack([a, b, distances[a, b]], axis=1).astype(np.int64)
    return forest.join(np.arange(len(packed)), links)


@pytest.mark.parametrize("bits", [16, 33, 64, 128, 200])
@pytest.mark.parametrize("flips", [0.01, 0.08, 0.5])
@pytest.mark.parametrize("blocks", [1, 2, 3, 10])
def test_keys_find_the_links_of_all_pairs(monkeypatch, bits, flips, blocks):
    def chosen(distances, size, radius, most):
        divided = duplicate_keys.divide(bits, radius, min(blocks, radius + 1))
        return duplicate_keys.Plan(divided, 1.0, 1.0)

    monkeypatch.setattr(duplicate_parts, "choose_blocks", chosen)
    monkeypatch.setattr(duplicate_parts, "_LINKS_PER_STEP", 500)
    rng = np.random.default_rng(bits)
    centers = rng.integers(0, 2, (5, bits))
    flipped = rng.random((250, bits)) < flips
    packed = np.unique(np.packbits(centers[rng.integers(0, 5, 250)] ^ flipped, axis=1), axis=0)
    for radius in (1, 2, 5, 9):
        found = duplicate_parts.links_by_parts(rows_of(packed), bits, radius, lambda done: None)
        expected = all_links(packed, radius)
        assert found.radius == radius
        assert sorted(found.links[:, 2].tolist()) == sorted(expected[:, 2].tolist())
        a, b, distances = found.links.T
        assert (np.bitwise_count(packed[a] ^ packed[b]).sum(1) == distances).all()


def test_dense_codes_are_left_to_the_search_for_neighbors(monkeypatch):
    monkeypatch.setattr(duplicate_parts, "most_work", lambda size: 10)
    packed = np.unique(np.random.default_rng(0).integers(0, 16, (300, 2), dtype=np.uint8), axis=0)
    links = module.spanning_links(rows_of(packed), 16, 3, np.ones(len(packed), int), print)
    expected = all_links(packed, 3)
    assert sorted(links[:, 2].tolist()) == sorted(expected[:, 2].tolist())


def default_codes(count, kind):
    """Content bits and looks, 192 bits; a hundredth are altered copies of others."""
    rng = np.random.default_rng(count)
    packed = rng.integers(0, 256, (count, 24), dtype=np.uint8)
    if kind == "clustered":  # photos of a class differ in 72 bits, others in 96
        centers = rng.integers(0, 256, (count // 1000, 24), dtype=np.uint8)
        flips = np.packbits(rng.random((count, 192), np.float32) < 0.25, axis=1)
        packed = centers[rng.integers(0, len(centers), count)] ^ flips
    copies = count // 100
    flips = np.packbits(rng.random((copies, 192), np.float32) < 0.06, axis=1)
    packed[:copies] = packed[copies : 2 * copies] ^ flips
    return packed


@pytest.fixture
def compared(monkeypatch):
    """The numbers of pairs that were compared, in each step."""
    counts, pairs, neighbors = [], duplicate_parts.near_pairs, module.nearest

    def counted_pairs(*arguments):
        for links, count in pairs(*arguments):
            counts.append(count)
            yield links, count

    def counted_neighbors(table, queries, **options):
        counts.append(len(table) * len(queries))
        return neighbors(table, queries, **options)

    monkeypatch.setattr(duplicate_parts, "near_pairs", counted_pairs)
    monkeypatch.setattr(module, "nearest", counted_neighbors)
    return counts


@pytest.mark.parametrize("kind", ["random", "clustered"])
def test_the_default_rule_does_not_compare_all_pairs(compared, kind):
    """At 30 of 192 bits, four times the codes are far fewer than 16 times the comparisons."""
    work = {}
    for count in (10_000, 40_000):
        compared.clear()
        packed, copies = default_codes(count, kind), count // 100
        groups = duplicate_groups(Index.build(Codes(packed=packed, bits=192)), 30)
        assert groups == [[row, row + copies] for row in range(copies)]
        work[count] = sum(compared)
    assert work[40_000] < 6 * work[10_000] and work[40_000] < 40_000**2 / 2 / 20


def test_few_pairs_of_random_codes_are_compared(compared):
    """Uniformly random codes, where no code can be excluded by its distance to a centroid."""
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (50_000, 16), dtype=np.uint8)
    packed[:100] = packed[100:200]
    packed[:100, 3] ^= 5
    groups = duplicate_groups(Index.build(Codes(packed=packed, bits=128)), 8)
    assert groups == [[row, row + 100] for row in range(100)]
    assert sum(compared) < 50_000**2 / 2 / 500


def test_connected_codes_are_not_compared_again(compared):
    """One dense group: small distances connect it, and larger ones find nothing to compare."""
    rng = np.random.default_rng(0)
    packed = np.unique(np.packbits(rng.random((20_000, 128)) < 0.008, axis=1), axis=0)
    found = duplicate_parts.links_by_parts(rows_of(packed), 128, 8, lambda done: None)
    assert found.radius == 8 and len(found.links) == len(packed) - 1
    later = compared[3:]  # the keys after those of the smallest distances
    assert len(later) > 8 and sum(later) < len(later) * len(packed) ** 2 / 2 / 40


@pytest.mark.parametrize("length", [1, 4, 7, 11])
@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
def test_a_codeword_avoids_fewer_bits_than_its_dimension(length, dimension):
    words = duplicate_keys.linear_code(length, dimension)
    assert len(words) == 2**dimension - 1 and (words >> np.uint64(length) == 0).all()
    for few in combinations(range(length), min(length, dimension - 1)):
        differing = np.uint64(sum(1 << place for place in few))
        assert ((words & differing) == 0).any()


def test_blocks_divide_the_bits_and_the_radius():
    for bits, radius, count in ((192, 30, 5), (128, 8, 9), (33, 5, 2), (1000, 3, 2)):
        blocks = duplicate_keys.divide(bits, radius, count)
        dimensions = [len(block.masks).bit_length() for block in blocks]
        assert len(blocks) == count and sum(dimensions) == radius + 1
        ends = [block.start + int(block.masks.max()).bit_length() for block in blocks]
        assert all(end <= each.start for end, each in zip(ends[:-1], blocks[1:], strict=True))
        assert ends[-1] <= bits


def test_the_estimate_is_near_the_number_of_compared_pairs(compared):
    """Bits in a random order: pairs at distance d share a key of w bits by chance."""
    packed = default_codes(20_000, "clustered")
    distances = hamming(packed[:1500], packed[:1500])
    fractions = np.bincount(distances[~np.eye(1500, dtype=bool)], minlength=193) / distances.size
    fractions[:31] = 0  # links cost more than comparisons
    plan = duplicate_keys.choose_blocks(fractions, len(packed), 30, 1e9)
    words = duplicate_parts._permuted(rows_of(packed), 192)
    stage = duplicate_parts._Stage(words, np.arange(len(packed)))
    for _ in stage.compare(plan.blocks, 30, np.inf):
        pass
    assert 0.7 * plan.comparing < sum(compared) < 1.4 * plan.comparing
