"""The compiled code, the numpy implementation and a plain loop give the same counts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from instruction_sets import every_instruction_set

from hadahash import native
from hadahash.codes import pack, unpack, words
from hadahash.errors import UsageError

ROOT = Path(__file__).parents[2]
LENGTHS = [1, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 255, 512, 700]

compiled = pytest.mark.skipif(not native.available(), reason="the compiled library is not built")


def codes_of(rng, n, bits):
    return words(pack(rng.choice([-1, 1], (n, bits))))


def label_sets(rng, n, classes):
    return words(np.packbits(rng.random((n, classes)) < 2 / classes, axis=1))


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.fixture
def in_numpy(monkeypatch):
    """Call a function with the compiled library disabled."""

    def call(function, *arguments, **options):
        with monkeypatch.context() as patch:
            patch.setenv("HADAHASH_NATIVE", "0")
            assert not native.available() and native.describe() == "numpy"
            return function(*arguments, **options)

    return call


@pytest.mark.parametrize("bits", [1, 8, 65, 255])
def test_counts_equal_a_plain_loop(rng, bits, in_numpy):
    values = rng.choice([-1, 1], (60, bits))
    queries, database = values[:9], values[9:]
    expected = np.zeros((9, bits + 1), int)
    for q, query in enumerate(queries):
        for item in database:
            expected[q, (query != item).sum()] += 1
    for call in (lambda f, *a, **o: f(*a, **o), in_numpy):
        counts = call(
            native.count_distances, words(pack(queries)), words(pack(database)), bits=bits
        )
        assert counts.dtype == np.int64 and np.array_equal(counts, expected)


@compiled
@every_instruction_set
@pytest.mark.parametrize("bits", LENGTHS)
def test_every_cpu_level_equals_numpy(rng, bits, level, in_numpy):
    queries, database = codes_of(rng, 70, bits), codes_of(rng, 2055, bits)
    first = rng.integers(-60, 2100, 70)
    ranges = np.stack([first, first + rng.integers(0, 500, 70)], axis=1)
    for options in ({}, {"ranges": ranges}):
        expected = in_numpy(native.count_distances, queries, database, bits=bits, **options)
        counts = native.count_distances(queries, database, bits=bits, level=level, **options)
        assert np.array_equal(counts, expected)
    assert np.array_equal(expected.sum(axis=1), np.diff(ranges.clip(0, 2055), axis=1)[:, 0])


@compiled
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("classes", [1, 20, 64, 81, 200])
@pytest.mark.parametrize("bits", [1, 12, 64, 96, 255, 512])
def test_shared_counts_equal_numpy(rng, bits, classes, threads, in_numpy):
    sides = (
        codes_of(rng, 130, bits),
        label_sets(rng, 130, classes),
        codes_of(rng, 501, bits),
        label_sets(rng, 501, classes),
    )
    expected = in_numpy(native.count_shared, *sides, bits=bits, threads=threads)
    counts = native.count_shared(*sides, bits=bits, threads=threads)
    assert all(np.array_equal(a, b) for a, b in zip(counts, expected, strict=True))
    assert (
        (counts[0].sum(axis=1) == 501).all() and (counts[1] <= counts[0]).all() and counts[1].any()
    )


@compiled
@every_instruction_set
def test_shared_counts_at_every_cpu_level(rng, level, in_numpy):
    sides = (
        codes_of(rng, 3, 64),
        label_sets(rng, 3, 130),
        codes_of(rng, 4100, 64),
        label_sets(rng, 4100, 130),
    )
    expected = in_numpy(native.count_shared, *sides, bits=64)
    counts = native.count_shared(*sides, bits=64, level=level)
    assert all(np.array_equal(a, b) for a, b in zip(counts, expected, strict=True))


def test_shared_means_at_least_one_common_class(rng):
    codes = codes_of(rng, 40, 16)
    labels = rng.random((40, 70)) < 0.03
    sets = words(np.packbits(labels, axis=1))
    relevant = native.count_shared(codes[:5], sets[:5], codes, sets, bits=16)[1].sum(axis=1)
    assert np.array_equal(relevant, [(labels[q] & labels).any(axis=1).sum() for q in range(5)])


def test_equal_codes_in_more_than_one_tile():
    database = np.zeros((70_000, 1), np.uint64)
    counts = native.count_distances(np.array([[0], [7]], np.uint64), database, bits=64)
    assert counts[0, 0] == counts[1, 3] == 70_000 and counts.sum() == 140_000


def test_more_bits_than_the_compiled_code_supports(rng):
    values = rng.choice([-1, 1], (4, 33_000))
    counts = native.count_distances(words(pack(values[:1])), words(pack(values)), bits=33_000)
    assert np.flatnonzero(counts[0]).tolist() == sorted(
        {int((values[0] != value).sum()) for value in values}
    )
    label = np.ones((1, 1), np.uint64)
    total, shared = native.count_shared(
        words(pack(values[:1])), label, words(pack(-values[:1])), label, bits=33_000
    )
    assert total[0, 33_000] == shared[0, 33_000] == 1 and total.sum() == shared.sum() == 1


@pytest.mark.parametrize("queries, codes", [(0, 5), (5, 0), (0, 0)])
def test_no_queries_or_no_codes(rng, queries, codes):
    counts = native.count_distances(codes_of(rng, queries, 8), codes_of(rng, codes, 8), bits=8)
    assert counts.shape == (queries, 9) and counts.sum() == 0


def test_arrays_that_do_not_fit_are_refused(rng):
    codes, sets = codes_of(rng, 6, 64), label_sets(rng, 6, 20)
    wrong = [
        (codes, codes_of(rng, 6, 128)),
        (codes.astype(np.int64), codes),
        (codes.ravel(), codes),
        (codes_of(rng, 6, 128)[:, :1], codes),
    ]
    for queries, database in wrong:
        with pytest.raises(UsageError):
            native.count_distances(queries, database, bits=64)
    with pytest.raises(UsageError, match="do not match 65 bits"):
        native.count_distances(codes, codes, bits=65)
    for labels in (sets[:5], label_sets(rng, 6, 65)):
        with pytest.raises(UsageError, match="Label sets"):
            native.count_shared(codes, sets, codes, labels, bits=64)


def test_an_invalid_library_is_ignored(tmp_path):
    assert native._load(tmp_path) is None
    (tmp_path / "_hamming.abi3.so").write_bytes(b"not a library")
    native._load.cache_clear()
    assert native._load(tmp_path) is None


@pytest.mark.skipif(
    shutil.which("cc") is None or sys.platform == "win32", reason="needs a C compiler"
)
def test_a_library_of_another_version_is_ignored(tmp_path):
    (tmp_path / "old.c").write_text("int hadahash_interface(void) { return 0; }")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", tmp_path / "_hamming.abi3.so", tmp_path / "old.c"],
        check=True,
    )
    assert native._load(tmp_path) is None


@pytest.mark.skipif(
    shutil.which("cc") is None or sys.platform == "win32", reason="needs a C compiler"
)
@pytest.mark.parametrize("compiler", ["cc -DHADAHASH_PORTABLE", "false", "no-such-compiler"])
def test_the_installation_succeeds_without_a_compiler(tmp_path, compiler):
    shutil.copy(ROOT / "setup.py", tmp_path)
    shutil.copytree(
        ROOT / "src/hadahash/native",
        tmp_path / "src/hadahash/native",
        ignore=shutil.ignore_patterns("*.so"),
    )
    (tmp_path / "setup.cfg").write_text(
        "[metadata]\nname = x\n[options]\npackages = hadahash.native\npackage_dir =\n  = src\n"
    )
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env={"CC": compiler, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    built = native._load(tmp_path / "src/hadahash/native")
    assert (built is not None) == compiler.startswith("cc")


def test_describe_and_cores():
    assert native.describe().split()[0] in ("compiled", "numpy")
    assert native.usable_cores() >= 1


@compiled
@every_instruction_set
def test_an_environment_variable_selects_the_instruction_set(rng, level, monkeypatch):
    queries, database = codes_of(rng, 3, 64), codes_of(rng, 300, 64)
    expected = native.count_distances(queries, database, bits=64)
    monkeypatch.setenv("HADAHASH_NATIVE", native.levels()[level])
    assert native.describe() == f"compiled ({native.levels()[level]})"
    assert native.used_level(-1) == level and native.used_level(0) == 0
    assert np.array_equal(native.count_distances(queries, database, bits=64), expected)


@compiled
def test_an_instruction_set_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setenv("HADAHASH_NATIVE", "mmx")
    with pytest.raises(UsageError, match=r"HADAHASH_NATIVE must be 0, 1 or one of .*, got mmx"):
        native.describe()
    for name in ("", "1"):
        monkeypatch.setenv("HADAHASH_NATIVE", name)
        assert native.describe() == f"compiled ({native.levels()[-1]})"


def test_numpy_has_no_instruction_sets(in_numpy):
    assert in_numpy(native.levels) == ()


def test_unpacked_codes_agree_with_words(rng):
    packed = pack(rng.choice([-1, 1], (5, 77)))
    signs = unpack(packed, 77)
    counts = native.count_distances(words(packed), words(packed), bits=77)
    expected = [sorted(((77 - signs.astype(int) @ row) // 2).tolist()) for row in signs.astype(int)]
    assert [np.repeat(np.arange(78), row).tolist() for row in counts] == expected


def test_misaligned_arrays_are_counted(rng):
    """A foreign buffer may start at an address that is not a multiple of 8."""
    packed = pack(rng.choice([-1, 1], (40, 64)))
    shifted = np.frombuffer(b"x" + packed.tobytes(), np.uint8, offset=1).view(np.uint64)
    codes = shifted.reshape(40, 1)
    assert not codes.flags.aligned
    counts = native.count_distances(codes[:5], codes, bits=64)
    assert np.array_equal(counts, native.count_distances(words(packed)[:5], words(packed), bits=64))
