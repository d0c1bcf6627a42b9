"""Random operations compared with a dictionary: 240 sequences of up to 50 steps."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from brute_force import LOCAL_ENGINES, BruteForce, as_lists
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from hadahash import files
from hadahash.codes import Codes, pack
from hadahash.index import Index
from hadahash.index._contract_ranked import check_ranked
from hadahash.ranking import Ranking

IDS = st.lists(st.integers(-20, 40), min_size=0, max_size=12, unique=True)


@pytest.fixture(autouse=True)
def without_flushing(monkeypatch):
    """Crashes are tested in test_index_crash.py."""
    monkeypatch.setattr(files, "flush", lambda path: None)


class IndexSteps(RuleBasedStateMachine):
    @initialize(
        engine=st.sampled_from(LOCAL_ENGINES),
        bits=st.sampled_from([8, 13, 32, 64, 72]),
        seed=st.integers(0, 2**16),
        text=st.booleans(),
        book=st.booleans(),
        content=st.sampled_from([0, 5, 40]),
    )
    def start(self, engine, bits, seed, text, book, content):
        self.rng, self.bits, self.text = np.random.default_rng(seed), bits, text
        self.content_bits, self.stored = content, {}  # id -> packed code and content bits
        codewords = self.rng.choice([-1, 1], (3, bits)) if book else None
        ranking = Ranking(codewords)
        self.index = Index.build(self.codes([]), engine=engine, ranking=ranking)
        self.brute = BruteForce(bits)
        self.folder = Path(tempfile.mkdtemp())

    def teardown(self):
        shutil.rmtree(getattr(self, "folder", Path("/nonexistent")), ignore_errors=True)

    def name(self, number):
        return f"é{number}" if self.text else number

    def codes(self, numbers):
        values = self.rng.choice([0, 255], (len(numbers), -(-self.bits // 8))).astype(np.uint8)
        values[:, -1] &= np.uint8(0xFF << (-self.bits % 8) & 0xFF)
        ids = [self.name(number) for number in numbers]
        ids = np.array(ids) if ids else np.zeros(0, str if self.text else int)
        if not self.content_bits:
            return Codes(values, self.bits, ids)
        content = pack(self.rng.choice([-1, 1], (len(numbers), self.content_bits)))
        return Codes(values, self.bits, ids, (), content, self.content_bits)

    def put(self, codes, *labels):
        self.brute.put(codes, *labels)
        if self.content_bits:
            rows = zip(codes.packed, codes.content, strict=True)
            self.stored |= dict(zip(codes.ids.tolist(), rows, strict=True))

    def expected(self):
        """All codes with content bits, in the order of ids."""
        ids = sorted(self.brute.items)
        packed, content = (np.array([self.stored[each][part] for each in ids]) for part in (0, 1))
        return Codes(packed, self.bits, ids, (), content, self.content_bits)

    @rule(numbers=IDS, label=st.integers(0, 3))
    def add(self, numbers, label):
        new = self.codes(
            [number for number in numbers if self.name(number) not in self.brute.items]
        )
        self.index.add(new, np.full(len(new), label))
        self.put(new, [label] * len(new))

    @rule(numbers=IDS)
    def update(self, numbers):
        new = self.codes(numbers)
        self.index.update(new)
        self.put(new)

    @rule(numbers=IDS)
    def remove(self, numbers):
        there = [self.name(number) for number in numbers if self.name(number) in self.brute.items]
        self.index.remove(there)
        for each in there:
            del self.brute.items[each]

    @rule(
        k=st.integers(0, 50),
        radius=st.none() | st.integers(0, 20),
        label=st.none() | st.integers(0, 3),
    )
    def search(self, k, radius, label):
        queries = self.codes([0, 1])
        options = {} if label is None else {"labels": [label]}
        hits = self.index.search(queries, k, radius=radius, **options)
        assert hits.exact and as_lists(hits) == self.brute.search(
            queries, k, radius=radius, **options
        )

    @rule(numbers=IDS)
    def search_among(self, numbers):
        queries, ids = self.codes([0]), [self.name(number) for number in numbers]
        assert as_lists(self.index.search(queries, 5, ids=ids)) == self.brute.search(
            queries, 5, ids=ids
        )

    @precondition(lambda self: self.content_bits and self.brute.items)
    @rule(
        k=st.integers(0, 20),
        rank=st.sampled_from(["class", "photo"]),
        radius=st.none() | st.integers(0, 40),
    )
    def search_ranked(self, k, rank, radius):
        check_ranked(self.index, self.expected(), self.codes([0, 1]), k, rank=rank, radius=radius)

    @precondition(lambda self: self.content_bits and self.brute.items)
    @rule()
    def read_content(self):
        assert np.array_equal(self.index.codes().content, self.expected().content)

    @rule()
    def save(self):
        self.index.save(self.folder / "index")

    @rule()
    def save_and_open(self):
        self.index.save(self.folder / "index")
        self.index = Index.open(self.folder / "index")

    @invariant()
    def same_ids(self):
        if hasattr(self, "brute"):
            assert len(self.index) == len(self.brute.items)
            assert self.index.ids.tolist() == sorted(self.brute.items)


TestIndexSteps = IndexSteps.TestCase
TestIndexSteps.settings = settings(
    max_examples=240,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
