"""The bit, packing, distances, and the container of codes."""

from __future__ import annotations

import csv
import doctest
import errno
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hadahash import code_files, packing
from hadahash import codes as module
from hadahash.codes import (
    Codes,
    Skipped,
    as_codes,
    binarize,
    hamming,
    pack,
    unpack,
    words,
    write_skipped,
)
from hadahash.errors import (
    HadaHashError,
    MissingExtraError,
    NewerFileError,
    StorageError,
    UsageError,
)

LENGTHS = [1, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 255]
SUFFIXES = [".npz", ".parquet"]


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def random_codes(rng, n=20, bits=12, **options):
    return Codes(packed=pack(rng.standard_normal((n, bits))), bits=bits, **options)


def equal(a, b):
    same_ids = a.ids.tolist() == b.ids.tolist() and a.ids.dtype.kind == b.ids.dtype.kind
    return (
        np.array_equal(a.packed, b.packed)
        and a.bits == b.bits
        and same_ids
        and a.skipped == b.skipped
    )


# ---- bits ----


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(LENGTHS), st.integers(0, 9), st.integers(0, 2**32))
def test_pack_and_unpack_are_inverse(bits, n, seed):
    signs = np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), (n, bits))
    packed = pack(signs)
    assert packed.shape == (n, -(-bits // 8)) and packed.dtype == np.uint8
    assert np.array_equal(unpack(packed, bits), signs) and unpack(packed, bits).dtype == np.int8
    assert np.array_equal(pack(unpack(packed, bits)), packed)


def test_zero_is_plus_one_and_nan_is_refused():
    assert unpack(pack([[0.0, -0.0, -1e-30, np.inf, -np.inf]]), 5).tolist() == [[1, 1, -1, 1, -1]]
    assert binarize(np.array([0, -1, 3], np.int8)).tolist() == [True, False, True]
    for kind in (np.float16, np.float32, np.float64):
        with pytest.raises(UsageError, match="NaN"):
            pack(np.array([[1, np.nan]], kind))


def test_pack_is_numpy_packbits_with_zero_padding(rng):
    values = rng.standard_normal((6, 13))
    packed = pack(values)
    assert np.array_equal(packed, np.packbits(values >= 0, axis=1))
    assert not (packed[:, -1] & 0b111).any()


@pytest.mark.parametrize("shape", [(), (3,), (2, 2, 2)])
def test_only_matrices_are_packed(shape):
    with pytest.raises(UsageError, match="shape"):
        pack(np.zeros(shape))


@pytest.mark.parametrize("bits", LENGTHS)
def test_hamming_equals_the_definition_and_the_dot_product(rng, bits):
    a, b = rng.choice([-1, 1], (300, bits)), rng.choice([-1, 1], (280, bits))
    distances = hamming(pack(a), pack(b))
    assert distances.shape == (300, 280) and distances.dtype == np.int32
    assert np.array_equal(distances, (a[:, None] != b[None]).sum(axis=2))
    assert np.array_equal(distances, (bits - a @ b.T) / 2)


@pytest.mark.parametrize("bits", LENGTHS)
def test_words_are_the_bytes_and_zeros(rng, bits):
    packed = pack(rng.standard_normal((5, bits)))
    wide = words(packed)
    assert wide.shape == (5, -(-bits // 64)) and wide.dtype == np.uint64
    as_bytes = wide.view(np.uint8)
    assert (
        np.array_equal(as_bytes[:, : packed.shape[1]], packed)
        and not as_bytes[:, packed.shape[1] :].any()
    )


def test_words_of_a_view(rng):
    packed = pack(rng.standard_normal((8, 64)))
    assert np.array_equal(words(packed[::2]), words(packed)[::2])


def test_hamming_refuses_different_lengths():
    with pytest.raises(UsageError, match="1 and 2 bytes"):
        hamming(pack(np.ones((1, 8))), pack(np.ones((1, 9))))


# ---- the container ----


def test_selection_and_joining(rng):
    codes = random_codes(rng, ids=[f"{i}.jpg" for i in range(20)], skipped=[("bad.jpg", "broken")])
    assert (
        len(codes) == 20
        and codes[3].ids.tolist() == ["3.jpg"]
        and codes[np.int64(3)].packed.shape == (1, 2)
    )
    assert codes[codes.ids > "5"].ids.tolist() == [i for i in codes.ids.tolist() if i > "5"]
    assert codes[2:4].skipped == () and codes.skipped == (Skipped("bad.jpg", "broken"),)
    joined = Codes.concatenate([codes[:7], codes[7:]])
    assert np.array_equal(joined.packed, codes.packed) and joined.ids.tolist() == codes.ids.tolist()
    assert len(Codes.concatenate([codes, codes]).skipped) == 2
    assert np.array_equal(codes.signs(), unpack(codes.packed, 12))
    with pytest.raises(UsageError, match="Cannot concatenate"):
        Codes.concatenate([codes, random_codes(rng, bits=13)])
    with pytest.raises(UsageError):
        Codes.concatenate([])


def test_ids_default_to_numbers(rng):
    assert random_codes(rng, n=3).ids.tolist() == [0, 1, 2]
    assert len(random_codes(rng, n=0, ids=[])) == 0


@pytest.mark.parametrize(
    "options, text",
    [
        ({"bits": 0}, "bits must be an integer >= 1, got 0"),
        ({"bits": 7}, "padding bits"),
        ({"bits": 9}, "must be uint8 (n, 2)"),
        ({"packed": np.full((2, 1), 255, np.int64)}, "got int64"),
        ({"packed": np.full(2, 255, np.uint8)}, "got uint8 (2,)"),
        ({"ids": ["a"]}, "2 codes need 2 ids"),
        ({"ids": [0.5, 1.5]}, "all strings or all integers"),
        ({"ids": [["a"], ["b"]]}, "2 codes need 2 ids"),
    ],
)
def test_malformed_codes_are_refused(options, text):
    with pytest.raises(UsageError) as error:
        Codes(**{"packed": np.full((2, 1), 255, np.uint8), "bits": 8, **options})
    assert text in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("bits", LENGTHS)
def test_saved_codes_come_back(tmp_path, rng, bits, suffix):
    names = ["ä b.jpg", "-x\n.jpg", "", "日本.png", "a" * 255]
    for codes in (
        random_codes(rng, n=5, bits=bits, ids=names, skipped=[("x.jpg", 'broken, "so"')]),
        random_codes(rng, n=4, bits=bits),
        random_codes(rng, n=0, bits=bits),
        random_codes(rng, n=0, bits=bits, ids=np.array([], str)),
        random_codes(rng, n=2, bits=bits, ids=np.array([2**62, -5])),
    ):
        path = tmp_path / f"codes{suffix}"
        codes.save(str(path))
        assert equal(Codes.load(path), codes)
    assert [file.name for file in tmp_path.iterdir()] == [f"codes{suffix}"]


def test_names_that_are_not_unicode(tmp_path, rng):
    codes = random_codes(rng, n=1, ids=["\udcff.jpg"])
    codes.save(tmp_path / "x.npz")
    assert equal(Codes.load(tmp_path / "x.npz"), codes)
    with pytest.raises(UsageError, match=r"Save as \.npz"):
        codes.save(tmp_path / "x.parquet")


def test_other_file_extensions_are_refused(tmp_path, rng):
    with pytest.raises(UsageError, match="parquet"):
        random_codes(rng).save(tmp_path / "codes.pkl")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_damaged_file_is_named(tmp_path, rng, suffix):
    path = tmp_path / f"codes{suffix}"
    codes = random_codes(rng, n=300, ids=[f"{i}" for i in range(300)])
    codes.save(path)
    whole = path.read_bytes()
    for cut in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(StorageError, match=path.name):
            Codes.load(path)
    for content in (b"", b"text", b"PK\x03\x04" + bytes(50), b"PAR1" + bytes(50)):
        path.write_bytes(content)
        with pytest.raises(StorageError) as error:
            Codes.load(path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_flipped_bytes_never_raise_another_error(tmp_path, rng, suffix):
    path = tmp_path / f"codes{suffix}"
    random_codes(rng, n=30, ids=[f"{i}" for i in range(30)]).save(path)
    whole = path.read_bytes()
    for _ in range(300):
        broken = bytearray(whole)
        broken[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(broken)
        try:
            assert isinstance(Codes.load(path), Codes)
        except HadaHashError as error:
            assert "\n" not in str(error)


def test_a_missing_file_a_folder_and_no_permission(tmp_path):
    for suffix in SUFFIXES:
        with pytest.raises(StorageError, match="Cannot read"):
            Codes.load(tmp_path / f"none{suffix}")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(StorageError, match="Cannot read"):
        Codes.load(tmp_path / "folder.npz")


def test_pickled_arrays_are_refused(tmp_path):
    header = np.array(json.dumps({"format": 1, "bits": 8, "skipped": []}))
    np.savez(
        tmp_path / "x.npz",
        packed=np.zeros((1, 1), np.uint8),
        ids=np.array([{"a": 1}], object),
        header=header,
    )
    with pytest.raises(StorageError, match=r"x\.npz"):
        Codes.load(tmp_path / "x.npz")


def test_a_wrong_header_is_refused(tmp_path):
    for header in (
        "[]",
        "{}",
        '{"format": 1, "bits": 9, "skipped": []}',
        '{"format": "x", "bits": 8, "skipped": []}',
        "{",
    ):
        np.savez(
            tmp_path / "x.npz",
            packed=np.zeros((1, 1), np.uint8),
            ids=np.array([0]),
            header=np.array(header),
        )
        with pytest.raises(HadaHashError):
            Codes.load(tmp_path / "x.npz")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_a_later_version_is_reported(tmp_path, rng, suffix, monkeypatch):
    path = tmp_path / f"codes{suffix}"
    with monkeypatch.context() as patch:
        patch.setattr(code_files, "_FORMAT", 4)
        random_codes(rng, content=np.zeros((20, 1), np.uint8), content_bits=8).save(path)
    with pytest.raises(NewerFileError, match="pip install -U") as error:
        Codes.load(path)
    assert error.value.exit_code == 3


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_the_old_file(tmp_path, suffix):
    """RLIMIT_FSIZE ends the write in the middle, as a full disk does.

    It cannot be undone, so it is set in another process.
    """
    path = tmp_path / f"codes{suffix}"
    Codes(packed=pack([[1, -1]]), bits=2).save(path)
    program = """
import resource, signal, sys
import numpy as np
from hadahash.codes import Codes
from hadahash.errors import StorageError
codes = Codes(packed=np.random.default_rng(0).integers(0, 256, (50_000, 8), np.uint8), bits=64)
if sys.argv[1].endswith(".parquet"):
    import pyarrow.parquet
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    codes.save(sys.argv[1])
except StorageError as error:
    sys.exit(0 if "\\n" not in str(error) and sys.argv[1] in str(error) else 5)
sys.exit(4)
"""
    assert subprocess.run([sys.executable, "-c", program, str(path)]).returncode == 0
    assert equal(Codes.load(path), Codes(packed=pack([[1, -1]]), bits=2))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_full_disk_is_reported_with_a_remedy(tmp_path, rng, monkeypatch):
    def full(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageError, match="The disk is full: free some space"):
        random_codes(rng).save(tmp_path / "codes.npz")
    assert not list(tmp_path.iterdir())


def test_parquet_without_pyarrow_names_the_extra(tmp_path, rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for action in (
        lambda: random_codes(rng).save(tmp_path / "x.parquet"),
        lambda: Codes.load(tmp_path / "x.parquet"),
    ):
        with pytest.raises(MissingExtraError, match=r"hadahash\[parquet\]"):
            action()


def test_a_foreign_parquet_file_is_refused(tmp_path):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"id": [1]}), tmp_path / "x.parquet")
    with pytest.raises(StorageError, match="is not a code file"):
        Codes.load(tmp_path / "x.parquet")


def test_skipped_images_are_listed(tmp_path, rng):
    rows = [("a,b.jpg", "broken"), ("c\n.jpg", 'says "no"'), ("\udcff.jpg", "unreadable")]
    write_skipped(tmp_path / "skipped.csv", [Skipped(*row) for row in rows])
    with (tmp_path / "skipped.csv").open(
        newline="", encoding="utf-8", errors="surrogateescape"
    ) as file:
        assert [tuple(row) for row in csv.reader(file)] == [("path", "reason"), *rows]


def test_examples_in_the_docstrings():
    outcomes = [doctest.testmod(each) for each in (module, packing)]
    assert sum(each.attempted for each in outcomes) > 6
    assert not any(each.failed for each in outcomes)


# ---- bits, signs and values of a caller ----


BITS = np.random.default_rng(0).integers(0, 2, (6, 21))
EXPECTED = np.packbits(BITS, axis=1)


@pytest.mark.parametrize(
    "kind", [bool, np.uint8, np.int8, np.int64, np.float32, torch.bool, torch.int32, torch.bfloat16]
)
def test_bits_of_every_type_are_packed_as_they_are(kind):
    bits = torch.from_numpy(BITS).to(kind) if isinstance(kind, torch.dtype) else BITS.astype(kind)
    codes = Codes.from_bits(bits, ids=list("abcdef"))
    assert np.array_equal(codes.packed, EXPECTED) and codes.bits == 21
    assert codes.ids.tolist() == list("abcdef")
    for take in (Codes.from_signs, Codes.from_values):
        with pytest.raises(UsageError, match="from_bits"):
            take(bits)
    for take in (pack, binarize):
        with pytest.raises(UsageError, match="from_bits"):
            take(bits.float().numpy() if isinstance(bits, torch.Tensor) else bits)
    if kind is np.uint8:
        with pytest.raises(UsageError, match=r"could be bits or packed bytes.*from_bits"):
            as_codes(bits)
    else:
        assert np.array_equal(as_codes(bits).packed, EXPECTED)


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.float64, torch.int8, torch.float16])
def test_signs_of_every_type_are_packed(kind):
    signs = 2 * BITS - 1
    signs = torch.from_numpy(signs).to(kind) if isinstance(kind, torch.dtype) else signs
    for codes in (Codes.from_signs(signs), Codes.from_values(signs), as_codes(signs)):
        assert np.array_equal(codes.packed, EXPECTED) and codes.bits == 21
    with pytest.raises(UsageError, match="from_signs"):
        Codes.from_bits(signs)


def test_values_are_binarized_and_nothing_else_takes_them():
    values = torch.randn(4, 9, requires_grad=True)
    codes = Codes.from_values(values)
    assert np.array_equal(codes.signs() > 0, values.detach().numpy() >= 0)
    for take in (Codes.from_signs, Codes.from_bits, as_codes):
        with pytest.raises(UsageError, match="from_"):
            take(values)
    assert Codes.from_values(np.zeros((2, 3))).signs().min() == 1, "zero is a value too"


def test_as_codes_takes_codes_and_packed_bytes():
    codes = Codes(np.array([[3, 255]], np.uint8), 16)
    assert as_codes(codes) is codes
    assert as_codes(codes.packed).bits == 16
    for wrong in (np.zeros((2, 2, 2)), np.array(["a"]), [[1, 2, 3]], 5, "codes", None):
        with pytest.raises(UsageError) as error:
            as_codes(wrong)
        assert "\n" not in str(error.value)


def test_hamming_takes_packed_codes_only():
    signs = np.array([[1, -1, 1, 1]], np.int8)
    for wrong in (signs, BITS.astype(bool), EXPECTED[0], EXPECTED.tolist()):
        with pytest.raises(UsageError, match="must be uint8"):
            hamming(wrong, wrong)


def test_a_prefix_keeps_the_first_bits(rng):
    codes = random_codes(rng, n=5, bits=21, ids=list("abcde"))
    for bits in range(1, 22):
        part = codes.prefix(bits)
        assert np.array_equal(part.signs(), codes.signs()[:, :bits]) and part.bits == bits
        assert part.ids.tolist() == codes.ids.tolist()
    for bits in (0, 22, 2.5, True):
        with pytest.raises(UsageError, match="bits must be"):
            codes.prefix(bits)


@pytest.mark.parametrize("bits", [16.0, True, "16", None, -3, np.bool_(True)])
def test_a_code_length_must_be_an_integer(bits):
    with pytest.raises(UsageError, match="bits must be an integer >= 1"):
        Codes(np.zeros((1, 2), np.uint8), bits)


def test_numpy_code_lengths_and_ids_are_saved(tmp_path):
    codes = Codes(np.zeros((2, 8), np.uint8), np.int64(64), np.array([7, 9], np.uint16))
    assert type(codes.bits) is int
    codes.save(tmp_path / "x.npz")
    assert equal(Codes.load(tmp_path / "x.npz"), codes)


@pytest.mark.parametrize(
    "ids", [[1, "a"], [True, False], [None, "a"], np.array([2**63, 0], np.uint64)]
)
def test_mixed_and_impossible_ids_are_refused(ids):
    with pytest.raises(UsageError, match=r"[Ii]ds must be"):
        Codes(np.zeros((2, 1), np.uint8), 8, ids)


def test_one_long_name_does_not_make_all_ids_long(tmp_path):
    codes = Codes(np.zeros((2000, 1), np.uint8), 8, [*map(str, range(1999)), "n" * 100_000])
    codes.save(tmp_path / "x.npz")
    assert (tmp_path / "x.npz").stat().st_size < 200_000
    assert equal(Codes.load(tmp_path / "x.npz"), codes)


# ---- hostile files ----


def _npz(path, **changes):
    """A code file with some members replaced by raw bytes."""
    Codes(np.zeros((2, 1), np.uint8), 8, ["a", "b"]).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (members | changes).items():
            archive.writestr(name, content)


def _npy(header: str) -> bytes:
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "changes",
    [
        {"packed.npy": _npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2**70)}")},
        {
            "packed.npy": _npy(
                f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({2**70}, 1)}}\n"
            )
        },
        {"packed.npy": _npy(f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({2**45}, 1)}}")},
        {"packed.npy": _npy("{'descr': '|u1', ")},
        {"packed.npy": _npy("   {\n  'a'")},
        {"packed.npy": b""},
        {"packed.npy": b"rubbish"},
        {"header.npy": b""},
        {"id_ends.npy": b""},
        {"header.npy": _npy("{'descr': '|O', 'fortran_order': False, 'shape': ()}") + b"cos\n"},
    ],
)
def test_crafted_members_are_damage(tmp_path, changes):
    _npz(tmp_path / "x.npz", **changes)
    with pytest.raises(StorageError, match=r"x\.npz") as error:
        Codes.load(tmp_path / "x.npz")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "header",
    [
        {"bits": 8.0},
        {"bits": True},
        {"bits": "8"},
        {"skipped": [["a"]]},
        {"skipped": 5},
        {"format": None},
    ],
)
def test_a_header_of_wrong_types_is_damage(tmp_path, header):
    content = {"format": 2, "bits": 8, "skipped": []} | header
    np.savez(
        tmp_path / "x.npz",
        packed=np.zeros((1, 1), np.uint8),
        ids=np.array([0]),
        header=np.array(json.dumps(content)),
    )
    with pytest.raises(StorageError, match=r"x\.npz"):
        Codes.load(tmp_path / "x.npz")


@pytest.mark.parametrize("ends", [[1, 5], [2, 1], [-1, 2], [1]])
def test_ids_whose_ends_do_not_fit_are_damage(tmp_path, ends):
    header = json.dumps({"format": 2, "bits": 8, "skipped": []})
    np.savez(
        tmp_path / "x.npz",
        packed=np.zeros((2, 1), np.uint8),
        id_bytes=np.frombuffer(b"ab", np.uint8),
        id_ends=np.array(ends),
        header=np.array(header),
    )
    with pytest.raises(StorageError, match=r"x\.npz"):
        Codes.load(tmp_path / "x.npz")


def test_a_list_of_skipped_images_does_not_outlive_them(tmp_path):
    path = tmp_path / "skipped.csv"
    write_skipped(path, [Skipped("a.jpg", "broken")])
    write_skipped(path, [])
    assert not path.exists()
    write_skipped(path, [])


THREADS = """
import os, sys
import pyarrow.parquet
from hadahash.codes import Codes
from hadahash.data.table import read_table

def count():
    return len(os.listdir("/proc/self/task"))

before = count()
Codes.load(sys.argv[1])
read_table(sys.argv[2])
print(count() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_parquet_files_are_read_without_threads_of_arrow(tmp_path):
    """Processes that ended soon after these threads had started aborted, about one in ten."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    codes, table = tmp_path / "x.parquet", tmp_path / "table.parquet"
    Codes(np.zeros((50, 8), np.uint8), 64, np.array([f"{n}.jpg" for n in range(50)])).save(codes)
    columns = {"path": [f"{n}.jpg" for n in range(50)], "label": ["a", "b"] * 25}
    for name in columns["path"]:
        (tmp_path / name).write_bytes(b"")
    parquet.write_table(pa.table(columns), table)
    command = [sys.executable, "-c", THREADS, str(codes), str(table)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
