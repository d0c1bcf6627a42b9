"""Every length from one model: shortened models, and indexes of the first bits."""

from __future__ import annotations

import numpy as np
import pytest
from toys import make_toy, tiny_hasher

from hadahash import Index
from hadahash.errors import UsageError
from hadahash.photos import PhotoIndex, load_model_of, shorten_for


@pytest.fixture(scope="module")
def trained():
    """A model of 32 class bits and 16 content bits, and the images it was trained on."""
    pixels, labels = make_toy(32, seed=1)
    settings = {"codebook": "nested", "prefixes": "powers", "epochs": 1}
    hasher = tiny_hasher("hcdh-plus", bits=32, content_bits=16, **settings).fit(pixels, labels)
    return hasher.model_, pixels


def test_a_shortened_model_gives_the_first_bits(trained):
    model, pixels = trained
    short, whole = model.prefix(8), model.encode(pixels)
    assert short.bits == 8 and model.bits == 32 and model.prefix(32).bits == 32
    codes = short.encode(pixels)
    assert codes.bits == 8 and codes.content_bits == whole.content_bits == 16
    assert np.array_equal(codes.packed, whole.prefix(8).packed)
    assert np.array_equal(codes.content, whole.content)
    queries = short.queries(pixels)
    assert queries.values.shape == (len(pixels), 8)
    assert np.array_equal(queries.codes().packed, codes.packed)
    np.testing.assert_array_equal(queries.values, model.queries(pixels).values[:, :8])
    assert np.array_equal(short.codewords(), model.codewords()[:, :8])
    assert np.array_equal(short.ranking.codewords, short.codewords())
    assert short.id != model.id and short.prefix(4).id == model.prefix(4).id


def test_a_shortened_model_is_checked(trained, tmp_path):
    model, _ = trained
    for bits in (0, 33):
        with pytest.raises(UsageError, match=rf"^bits must be >= 1 and <= 32, got {bits}\.$"):
            model.prefix(bits)
    with pytest.raises(UsageError, match="shortened to 8 bits cannot be saved"):
        model.prefix(8).save(tmp_path)


def test_an_index_of_the_first_bits_finds_its_model(trained, tmp_path):
    model, _ = trained
    model.save(tmp_path / "run")
    short = shorten_for(model, tmp_path / "none", 16)
    assert short.bits == 16 and shorten_for(model, tmp_path / "none", None) is model
    PhotoIndex.create(tmp_path / "index", short, tmp_path / "run", tmp_path, engine="exact")
    opened = Index.open(tmp_path / "index")
    assert opened.bits == 16
    found = load_model_of(opened, tmp_path / "index", device="cpu")
    assert found.bits == 16 and found.id == short.id
    assert shorten_for(model, tmp_path / "index", None).bits == 16
