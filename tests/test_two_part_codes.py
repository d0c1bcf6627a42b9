"""Codes of two parts: class bits and content bits."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hadahash.codes import Codes, hamming, pack, pack_bits, unpack
from hadahash.errors import StorageError, UsageError

SUFFIXES = [".npz", ".parquet"]


def two_part(n=20, bits=12, content_bits=20, seed=3, **options):
    rng = np.random.default_rng(seed)
    packed, content = (
        pack(rng.standard_normal((n, bits))),
        pack(rng.standard_normal((n, content_bits))),
    )
    return Codes(packed, bits, content=content, content_bits=content_bits, **options)


def test_codes_without_content_have_none():
    codes = Codes(pack([[1, -1]]), 2)
    assert codes.content is None and codes.content_bits == 0
    with pytest.raises(UsageError, match="no content bits"):
        codes.content_codes()


def test_the_parts_are_codes_with_the_same_ids():
    codes = two_part(ids=[f"{i}.jpg" for i in range(20)], skipped=[("bad.jpg", "broken")])
    for part, packed, bits in (
        (codes.content_codes(), codes.content, 20),
        (codes.class_codes(), codes.packed, 12),
    ):
        assert np.array_equal(part.packed, packed) and part.bits == bits
        assert part.content is None and part.content_bits == 0
        assert part.ids.tolist() == codes.ids.tolist() and part.skipped == codes.skipped


def test_selection_joining_and_prefixes_keep_content():
    codes = two_part()
    for rows in (3, np.int64(3), slice(2, 9), [4, 4, 1], codes.ids > 7):
        chosen = codes[rows]
        expected = codes.content[[rows] if isinstance(rows, (int, np.integer)) else rows]
        assert np.array_equal(chosen.content, expected) and chosen.content_bits == 20
    joined = Codes.concatenate([codes[:7], codes[7:]])
    assert np.array_equal(joined.content, codes.content) and joined.content_bits == 20
    short = codes.prefix(5)
    assert short.bits == 5 and np.array_equal(short.content, codes.content)
    renamed = replace(codes, ids=np.arange(20) + 100)
    assert np.array_equal(renamed.content, codes.content) and renamed.ids[0] == 100


def test_different_contents_are_not_joined():
    with pytest.raises(UsageError, match=r"Cannot concatenate codes with \[0, 20\] content bits"):
        Codes.concatenate([two_part(), two_part().class_codes()])
    with pytest.raises(UsageError, match=r"\[16, 20\] content bits"):
        Codes.concatenate([two_part(), two_part(content_bits=16)])


@pytest.mark.parametrize("bits", [1, 7, 8, 12, 64, 65])
@pytest.mark.parametrize("content_bits", [0, 3, 8, 128])
@pytest.mark.parametrize("weight", [1, 2, 5])
def test_repeated_codes_have_the_weighted_distance(bits, content_bits, weight):
    a, b = (
        two_part(9, bits, content_bits or 8, seed=1),
        two_part(7, bits, content_bits or 8, seed=2),
    )
    if content_bits == 0:
        a, b = a.class_codes(), b.class_codes()
    expected = weight * hamming(a.packed, b.packed)
    if content_bits:
        expected = expected + hamming(a.content, b.content)
    left, right = a.repeated(weight), b.repeated(weight)
    assert left.bits == weight * bits + content_bits and left.content is None
    assert np.array_equal(hamming(left.packed, right.packed), expected)
    assert np.array_equal(left.signs()[:, :bits], a.signs())


@pytest.mark.parametrize("weight", [0, -1, 1.5, True, "2"])
def test_weights_must_be_whole(weight):
    with pytest.raises(UsageError, match="weight must be an integer >= 1"):
        two_part().repeated(weight)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"content_bits": 8}, "content_bits must be 0 without content, got 8"),
        ({"content": np.zeros((2, 1), np.uint8)}, "content_bits must be an integer >= 1, got 0"),
        ({"content": np.zeros((1, 1), np.uint8), "content_bits": 8}, "2 rows of content bits"),
        ({"content": np.zeros((2, 2), np.uint8), "content_bits": 8}, r"uint8 \(n, 1\)"),
        ({"content": np.zeros((2, 1)), "content_bits": 8}, r"uint8 \(n, 1\), got float64"),
        ({"content": np.ones((2, 1), np.uint8), "content_bits": 7}, "padding bits"),
    ],
)
def test_malformed_content_is_refused(options, text):
    with pytest.raises(UsageError, match=text):
        Codes(np.zeros((2, 1), np.uint8), 8, **options)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("content_bits", [1, 20, 128])
@pytest.mark.parametrize("n", [0, 5])
def test_files_keep_content(tmp_path, suffix, content_bits, n):
    codes = two_part(n, 12, content_bits, skipped=[("bad.jpg", "broken")])
    codes.save(tmp_path / f"x{suffix}")
    loaded = Codes.load(tmp_path / f"x{suffix}")
    assert np.array_equal(loaded.packed, codes.packed) and loaded.bits == 12
    assert np.array_equal(loaded.content, codes.content) and loaded.content_bits == content_bits
    assert loaded.ids.tolist() == codes.ids.tolist() and loaded.skipped == codes.skipped


def test_files_without_content_keep_the_earlier_format(tmp_path):
    two_part().class_codes().save(tmp_path / "old.npz")
    two_part().save(tmp_path / "new.npz")
    formats = []
    for name in ("old", "new"):
        with np.load(tmp_path / f"{name}.npz") as archive:
            formats.append(json.loads(str(archive["header"]))["format"])
    assert formats == [2, 3]


@pytest.mark.parametrize(
    ("content", "bits"), [(None, 20), ("short", 20), ("whole", 28), ("whole", "x"), ("whole", -4)]
)
def test_damaged_content_is_reported(tmp_path, content, bits):
    codes = two_part()
    header = {"format": 3, "bits": 12, "content_bits": bits, "skipped": []}
    arrays = {"packed": codes.packed, "ids": codes.ids, "header": np.array(json.dumps(header))}
    if content is not None:
        arrays["content"] = codes.content[: 4 if content == "short" else None]
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(StorageError, match="is damaged"):
        Codes.load(tmp_path / "x.npz")


def test_the_bits_of_an_example():
    codes = Codes(pack_bits(np.array([[True, False]])), 2, content=pack([[-1, 1]]), content_bits=2)
    assert unpack(codes.content, 2).tolist() == [[-1, 1]]
    assert codes.repeated(3).signs().tolist() == [[1, -1, 1, -1, 1, -1, -1, 1]]
