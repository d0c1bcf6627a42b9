"""`hadahash index build --bits`: an index of the first bits of longer codes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from toys import make_toy, tiny_hasher, write_folder

from hadahash import HashModel, Index
from hadahash.photos import PhotoIndex, scan_folder, shorten_for
from hadahash.ranking import score


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    """A run with 24 class bits, photos, and an index of the first 8 bits."""
    root = tmp_path_factory.mktemp("longer")
    photos = write_folder(root / "photos", *make_toy(16, seed=4))
    hasher = tiny_hasher(bits=24, content_bits=16, codebook="nested").fit(photos)
    hasher.save(root / "run")
    short = shorten_for(hasher.model_, root / "short.index", 8)
    built = PhotoIndex.open_or_create(root / "short.index", short, root / "run", photos)
    built.apply(built.plan(scan_folder(photos), whole=photos.resolve()), short)
    return root


def test_an_index_keeps_the_first_bits_and_is_synced_with_them(run, saved, toy_folder, tmp_path):
    out = tmp_path / "photos.index"
    command = ("index", "build", saved, toy_folder, "--out", out, "--device", "cpu")
    code, _, _ = run(*command, "--bits", 8)
    assert code == 0 and Index.open(out).bits == 8
    code, text, _ = run(*command)
    assert code == 0 and "0 encoded, 48 unchanged" in text
    photo = next(toy_folder.rglob("*.png"))
    code, text, _ = run("search", out, photo)
    assert code == 0 and len(text.splitlines()) == 11
    code, _, error = run(*command, "--bits", 16)
    assert code == 2 and "contains 8-bit codes" in error and error.count("\n") == 1
    code, _, error = run(*command, "--bits", 17)
    assert code == 2 and "bits must be >= 1 and <= 16, got 17." in error


@pytest.mark.parametrize("rank", ["hamming", "class", "photo"])
def test_two_part_codes_of_a_longer_model_are_ranked_by_their_first_bits(run, longer, rank):
    """`search` equals the definition: values, codewords and codes shortened to 8 of 24 bits."""
    out, image = longer / "short.index", longer / "photos" / "red" / "002.png"
    index, model = Index.open(out), HashModel.load(longer / "run")
    assert (index.bits, index.content_bits, index.ranking.bits) == (8, 16, 8)
    codes = model.encode(longer / "photos").prefix(8)
    assert np.array_equal(index.codes().packed, codes.packed)
    code, text, error = run("search", out, image, "-k", 16, "--rank", rank, "--json")
    assert code == 0, error
    query = model.queries(image).prefix(8)
    scores = score(query, index.codes(), model.ranking.prefix(8), rank)[0]
    best = sorted(zip(-scores, index.ids.tolist(), strict=True))
    assert [hit["id"] for hit in json.loads(text)["hits"]] == [name for _, name in best]


def test_a_shortened_index_is_served_and_searched_for_duplicates(run, longer):
    pytest.importorskip("fastapi")
    from serving import ToyCollection, opened

    code, _, error = run("duplicates", longer / "short.index", "--threshold", 0, "--json")
    assert code == 0, error
    (longer / "photos.index").unlink(missing_ok=True)
    (longer / "photos.index").symlink_to("short.index")
    image = (longer / "photos" / "red" / "002.png").read_bytes()
    with opened(ToyCollection(longer), decode_workers=1) as client:
        answer = client.post("/v1/search", files={"image": ("x.png", image)}).json()
        assert answer["query"]["bits"] == 8 and answer["rank"] == "photo"
        assert answer["hits"][0]["content_distance"] == 0
        assert client.get("/v1/duplicates").status_code == 200
