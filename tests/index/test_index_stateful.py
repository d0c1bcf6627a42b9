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
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hadahash import files
from hadahash.codes import Codes
from hadahash.index import Index

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
    )
    def start(self, engine, bits, seed, text, book):
        self.rng, self.bits, self.text = np.random.default_rng(seed), bits, text
        codewords = self.rng.choice([-1, 1], (3, bits)) if book else None
        self.index = Index.build(self.codes([]), engine=engine, codewords=codewords)
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
        return Codes(
            packed=values,
            bits=self.bits,
            ids=np.array(ids) if ids else np.zeros(0, str if self.text else int),
        )

    @rule(numbers=IDS, label=st.integers(0, 3))
    def add(self, numbers, label):
        new = self.codes(
            [number for number in numbers if self.name(number) not in self.brute.items]
        )
        self.index.add(new, np.full(len(new), label))
        self.brute.put(new, [label] * len(new))

    @rule(numbers=IDS)
    def update(self, numbers):
        new = self.codes(numbers)
        self.index.update(new)
        self.brute.put(new)

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
