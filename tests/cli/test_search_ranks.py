"""`hadahash search`: rankings, weights and searches by id."""

from __future__ import annotations

import json

import numpy as np
import pytest
from toys import make_toy, tiny_hasher, write_folder

from hadahash import HashModel, Index
from hadahash.data.sources import as_images


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Photos, a model with content bits, and their index with the model's ranking."""
    root = tmp_path_factory.mktemp("ranked")
    photos = write_folder(root / "photos", *make_toy(24, seed=2))
    hasher = tiny_hasher(content_bits=16).fit(photos)
    hasher.save(root / "run")
    codes = hasher.encode(photos)
    names = codes.ids.tolist()
    labels = [name.split("/")[0] for name in names]
    paths = [str(photos / name) for name in names]
    index = Index.build(codes, labels, paths, ranking=hasher.model_.ranking)
    index.meta |= {"run": str(root / "run"), "model": hasher.model_.id}
    index.save(root / "photos.index")
    return root


def hits_of(run, built, *options):
    code, out, err = run("search", built / "photos.index", "--json", *options)
    assert code == 0, err
    return json.loads(out)


IMAGE, NAME = "photos/red/002.png", "red/002.png"


def test_the_default_is_photo(run, built):
    answer = hits_of(run, built, built / IMAGE, "-k", 24)
    hits = answer["hits"]
    assert answer["rank"] == "photo" and hits[0]["content_distance"] == 0
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert hits_of(run, built, built / IMAGE, "-k", 24, "--rank", "photo")["hits"] == hits


def test_ranks_and_weights(run, built):
    plain = hits_of(run, built, built / IMAGE, "--rank", "hamming")["hits"]
    assert all(hit["score"] is None for hit in plain)
    distances = [hit["distance"] for hit in plain]
    assert distances == sorted(distances)
    kind = hits_of(run, built, built / IMAGE, "--rank", "class")["hits"]
    assert all(0 <= hit["score"] <= 1 for hit in kind)
    same = hits_of(run, built, built / IMAGE, "--weight", 10_000, "-k", 24)["hits"]
    model_order = Index.open(built / "photos.index")
    near = [hit["content_distance"] for hit in same]
    assert near[0] == 0 and near[0] <= near[-1] and len(near) == len(model_order)


@pytest.mark.parametrize("rank", ["hamming", "class", "photo"])
def test_the_printed_similarity_falls_with_the_rank(run, built, rank):
    hits = hits_of(run, built, built / IMAGE, "-k", 24, "--rank", rank)["hits"]
    near = [hit["similarity"] for hit in hits]
    assert near == sorted(near, reverse=True)
    _, out, _ = run("search", built / "photos.index", built / IMAGE, "-k", 24, "--rank", rank)
    printed = [line.split()[1] for line in out.splitlines()[1:]]
    assert printed == [f"{100 * each:.0f}" for each in near]


def test_searching_by_id_needs_no_model(run, built, monkeypatch):
    monkeypatch.setattr("hadahash.photos.load_model_of", None)
    answer = hits_of(run, built, "--id", NAME, "-k", 24)
    index = Index.open(built / "photos.index")
    (expected,) = index.neighbors(index.codes([NAME]), 24, rank="photo")
    assert answer["id"] == NAME and [hit["id"] for hit in answer["hits"]] == [
        hit.id for hit in expected if hit.id != NAME
    ]


def test_the_sheet_says_how_results_are_ordered(run, built, tmp_path):
    page = tmp_path / "sheet.html"
    code, out, _ = run("search", built / "photos.index", "--id", NAME, "-k", 3, "--sheet", page)
    titles = ["rank", "alike", "bits", "content", "label", "id"]
    assert code == 0 and out.splitlines()[0].split() == titles
    text = page.read_text()
    assert "by kind and content" in text and " of 16 content bits" in text
    assert " % alike; " in text
    assert text.count("<figure") == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rank", "near"], "Unknown ranking 'near'"),
        (["--rank", "class", "--weight", "1"], "--weight is for --rank photo"),
        (["--weight", "-1"], "weight must be"),
        (["--id", NAME], "either an image file, --vector FILE or --id"),
    ],
)
def test_bad_options_are_refused_in_one_line(run, built, options, words):
    code, out, err = run("search", built / "photos.index", built / IMAGE, *options)
    assert (code, out) == (2, "") and words in err and err.count("\n") == 1


def test_an_unknown_id_is_named(run, built):
    code, _, err = run("search", built / "photos.index", "--id", "nobody")
    assert code == 2 and "'nobody'" in err and err.count("\n") == 1


def test_an_index_without_content_says_what_is_possible(run, built, tmp_path):
    index = Index.open(built / "photos.index")
    Index.build(index.codes().class_codes()).save(tmp_path / "old.index")
    code, _, err = run("search", tmp_path / "old.index", "--id", NAME, "--rank", "photo")
    assert code == 2 and "Use hamming, or build the index again" in err


def test_features_search_photos_without_the_model(run, built, tmp_path):
    model = HashModel.load(built / "run")
    index = Index.open(built / "photos.index")
    kept = Index.build(index.codes(), model=model)
    kept.save(tmp_path / "i")
    encoded = model.encoder().features(as_images(built / IMAGE).images)
    features = encoded.values if encoded.content is None else encoded.content
    np.save(tmp_path / "f.npy", features[0])
    code, out, err = run("search", tmp_path / "i", "--vector", tmp_path / "f.npy", "--json")
    assert code == 0, err
    hits = json.loads(out)["hits"]
    assert hits[0]["content_distance"] == 0 and hits[0]["same_photo"]
    refused = [
        (tmp_path / "i", ["--weight", 3], "compares the content alone"),
        (built / "photos.index", [], "keeps no projection to content bits"),
    ]
    for folder, more, message in refused:
        code, _, err = run("search", folder, "--vector", tmp_path / "f.npy", *more)
        assert code == 2 and message in err
