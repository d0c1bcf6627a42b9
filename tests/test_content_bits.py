"""Content bits: their projection, and models whose codes have two parts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toys import make_toy, one_line, tensor_bytes, tiny_config, tiny_hasher

from hadahash import Codes, Hasher
from hadahash.content import IMAGES_PER_BIT, content_bits_that_fit, fit_content
from hadahash.errors import UsageError
from hadahash.methods.base import Task
from hadahash.methods.itq import ITQ, ITQSettings, rotated_directions
from hadahash.model import HashModel
from hadahash.model_files import MANIFEST
from hadahash.networks.content import ContentProjection
from hadahash.shared_features import SharedFeatures


def _features(count: int, width: int = 48, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(width, width, generator=generator) * torch.linspace(2, 0.1, width)
    return torch.randn(count, width, generator=generator) @ mixing.T + 5


# ------------------------------------------------------------------ the projection


def test_the_projection_is_that_of_itq():
    features = _features(300)
    projection = fit_content(features, 16, seed=3)
    itq = ITQ(Task(16, 2, 48), ITQSettings())
    itq.fit(features, torch.zeros(300, 2), torch.Generator().manual_seed(3))
    z = projection.values(features)
    assert torch.equal(z >= 0, itq.values(features) >= 0)
    assert torch.allclose(z, itq.values(features) / itq.values(features).std(0, correction=0))


def test_values_are_centered_with_unit_variance():
    features = _features(400)
    z = fit_content(features, 24, seed=0).values(features)
    assert z.shape == (400, 24) and z.dtype == torch.float32
    assert torch.allclose(z.mean(0), torch.zeros(24), atol=1e-4)
    assert torch.allclose(z.std(0, correction=0), torch.ones(24), atol=1e-4)
    assert torch.allclose(z.double(), _slow_values(features, fit_content(features, 24)), atol=1e-4)


def _slow_values(features: torch.Tensor, projection: ContentProjection) -> torch.Tensor:
    rows = [
        [
            sum(
                float(x - m) * float(w)
                for x, m, w in zip(row, projection.mean, column, strict=True)
            )
            / float(spread)
            for column, spread in zip(projection.matrix.T, projection.scale, strict=True)
        ]
        for row in features[:3]
    ]
    rest = projection.values(features)[3:].double()
    return torch.cat([torch.tensor(rows, dtype=torch.float64), rest])


def test_equal_features_and_seeds_give_equal_projections():
    first, second, other = (fit_content(_features(200), 16, seed=seed) for seed in (1, 1, 2))
    assert first.fingerprint == second.fingerprint != other.fingerprint
    assert torch.equal(first.matrix, second.matrix)
    assert len(first.fingerprint) == 64


@pytest.mark.parametrize("part", ["mean", "matrix", "scale"])
def test_the_fingerprint_covers_the_projection(part):
    projection = fit_content(_features(100), 8)
    parts = {name: getattr(projection, name).clone() for name in ("mean", "matrix", "scale")}
    assert ContentProjection(**parts).fingerprint == projection.fingerprint
    parts[part].view(-1)[0] += 1
    assert ContentProjection(**parts).fingerprint != projection.fingerprint


@pytest.mark.parametrize("count", [2, 5, 31])
def test_too_few_images_give_a_random_rotation_and_say_so(count):
    said: list[str] = []
    projection = fit_content(_features(count), 16, seed=1, info=said.append)
    z = projection.values(_features(50, seed=9))
    assert torch.isfinite(z).all() and (z >= 0).float().mean(0).std() < 0.5
    assert said == [
        f"{count} images are too few to fit 16 content bits by ITQ, which takes "
        f"{16 * IMAGES_PER_BIT}: a random rotation of the principal directions is used."
    ]
    X = _features(count).double()
    _, directions = rotated_directions(X, 16, 0, torch.Generator().manual_seed(1))
    assert torch.equal(projection.matrix, directions.float())
    said.clear()
    fit_content(_features(32), 16, info=said.append)
    assert not said


def test_features_that_never_change_give_finite_values():
    features = _features(60)
    features[:, 8:] = 1.0
    z = fit_content(features, 16).values(features)
    assert torch.isfinite(z).all()
    assert torch.isfinite(fit_content(torch.ones(50, 16), 8).values(torch.ones(2, 16))).all()


@pytest.mark.parametrize(("bits", "count"), [(0, 50), (49, 50), (-8, 50), (8, 1)])
def test_a_projection_that_cannot_be_fitted_is_refused(bits, count):
    with pytest.raises(UsageError, match=r"must be >= 1 and <= 48|at least 2 images") as caught:
        fit_content(_features(count), bits)
    one_line(caught.value)


def test_content_bits_are_a_multiple_of_eight_that_the_features_allow():
    assert [content_bits_that_fit(128, width) for width in (7, 8, 100, 127, 128, 999)] == [
        *(0, 8, 96, 120, 128, 128)
    ]
    assert content_bits_that_fit(0, 100) == 0


# ------------------------------------------------------------------ models


@pytest.fixture(scope="module", params=["frozen", "tuned", "shallow"])
def two_part(request, toy) -> Hasher:
    """A small model with 64 content bits."""
    method = "sdh" if request.param == "shallow" else "hcdh"
    changes = {"frozen": True} if request.param == "frozen" else {}
    return tiny_hasher(method, content_bits=64, epochs=2, **changes).fit(*toy)


def test_codes_have_class_bits_and_content_bits(two_part, toy_queries):
    model, pixels = two_part.model_, toy_queries[0]
    codes, queries = model.encode(pixels), model.queries(pixels)
    assert (codes.bits, codes.content_bits, len(codes)) == (16, 64, 80)
    assert model.content_bits == queries.content_bits == 64 and queries.bits == 16
    again = queries.codes()
    assert np.array_equal(again.packed, codes.packed)
    assert np.array_equal(again.content, codes.content)
    assert np.array_equal(again.ids, codes.ids)
    assert queries.content.dtype == np.float32 and 0.5 < queries.content.std() < 2


def test_content_follows_from_the_original_features(two_part, toy, toy_queries):
    """A slow reference: the features of the backbone before training, projected."""
    model = two_part.model_
    frozen = tiny_hasher("lsh", bits=8).fit(*toy).model_
    features = torch.from_numpy(frozen.encoder().features(frozen_images(toy_queries[0])).values)
    content = model.network.content.projection
    z = (features - content.mean) @ content.matrix / content.scale
    assert np.allclose(model.queries(toy_queries[0]).content, z, atol=1e-3)
    trained_on = torch.from_numpy(frozen.encoder().features(frozen_images(toy[0])).values)
    fitted = fit_content(trained_on, 64, seed=0)
    assert torch.allclose(fitted.matrix, content.matrix, atol=1e-4)


def frozen_images(pixels):
    from hadahash.data.sources import as_images

    return as_images(pixels).images


def test_class_bits_are_those_of_a_model_without_content(two_part, toy, toy_queries):
    changes = {key: value for key, value in two_part.get_params().items() if key != "content_bits"}
    plain = Hasher(**changes, content_bits=0).fit(*toy)
    own = plain.encode(toy_queries[0])
    assert own.content is None and plain.model_.fingerprint is None
    assert np.array_equal(own.packed, two_part.encode(toy_queries[0]).packed)
    shared = {k: v for k, v in tensor_bytes(two_part).items() if not k.startswith("content.")}
    assert shared == tensor_bytes(plain) != tensor_bytes(two_part)
    assert plain.model_.id != two_part.model_.id


def test_saved_and_loaded_models_give_the_same_codes(two_part, toy_queries, tmp_path):
    model, pixels = two_part.model_, toy_queries[0]
    two_part.save(tmp_path)
    assert json.loads((tmp_path / MANIFEST).read_text())["format"] == 3
    loaded = HashModel.load(tmp_path, device="cpu")
    assert loaded.id == model.id and loaded.fingerprint == model.fingerprint
    assert loaded.ranking.to_dict() == model.ranking.to_dict()
    one, other = loaded.queries(pixels), model.queries(pixels)
    for name in ("values", "content", "probabilities"):
        expected, found = getattr(other, name), getattr(one, name)
        assert (found is None and expected is None) or np.array_equal(found, expected)
    assert Hasher.load(tmp_path, device="cpu").content_bits == 64


def test_the_original_backbone_is_stored_only_where_it_was_trained(two_part):
    stored = {key.split(".")[1] for key in tensor_bytes(two_part) if key.startswith("content.")}
    tuned = not two_part.model_.fixed_backbone
    assert stored == ({"projection", "backbone"} if tuned else {"projection"})


def test_long_jobs_and_shards_keep_content(two_part, toy_queries, tmp_path):
    model, pixels = two_part.model_, toy_queries[0]
    whole = model.encode(pixels)
    for number in (1, 2):
        model.encode_to_file(pixels, tmp_path / f"{number}.npz", shard=(number, 2), batch_size=64)
    joined = Codes.concatenate([Codes.load(tmp_path / f"{number}.npz") for number in (1, 2)])
    assert joined.content_bits == 64
    sure = np.abs(model.queries(pixels).content) > 1e-3
    assert np.array_equal(joined.content_codes().signs()[sure], whole.content_codes().signs()[sure])


def test_no_images_have_codes_of_two_parts(two_part):
    nothing = np.zeros((0, 32, 32, 3), np.uint8)
    codes, queries = two_part.model_.encode(nothing), two_part.model_.queries(nothing)
    assert codes.content.shape == (0, 8) and queries.content.shape == (0, 64)


def test_a_fixed_backbone_runs_once_per_image(toy, toy_queries, monkeypatch):
    model = tiny_hasher(content_bits=64, frozen=True, epochs=1).fit(*toy).model_
    seen, forward = [], type(model.network.backbone).forward

    def counted(self, pixels):
        seen.append(len(pixels))
        return forward(self, pixels)

    monkeypatch.setattr(type(model.network.backbone), "forward", counted)
    streamed = model.encode(toy_queries[0])
    assert sum(seen) == 80
    cache = SharedFeatures()
    cached = model.encode(toy_queries[0], cache=cache)
    model.queries(toy_queries[0], cache=cache)
    assert sum(seen) == 160
    assert np.array_equal(cached.content, streamed.content)


def test_fine_tuned_models_share_the_features_of_the_original_backbone(
    toy, toy_queries, monkeypatch
):
    first, second = (
        tiny_hasher(content_bits=64, epochs=1, seed=seed).fit(*toy).model_ for seed in (0, 1)
    )
    seen, forward = [], type(first.network.backbone).forward

    def counted(self, pixels):
        seen.append(len(pixels))
        return forward(self, pixels)

    monkeypatch.setattr(type(first.network.backbone), "forward", counted)

    def images_run(action):
        before = sum(seen)
        return action(), sum(seen) - before

    images, cache = toy_queries[0], SharedFeatures()
    plain, count = images_run(lambda: first.encode(images))
    assert count == 160, "the network, and the original backbone"
    cached, count = images_run(lambda: first.encode(images, cache=cache))
    assert count == 160 and np.array_equal(cached.content, plain.content)
    again, count = images_run(lambda: first.encode(images, cache=cache))
    assert count == 0 and np.array_equal(again.packed, cached.packed)
    queries, count = images_run(lambda: first.queries(images, cache=cache))
    assert count == 0 and np.array_equal(queries.codes().content, cached.content)
    original = second.network.content.backbone.load_state_dict
    original(first.network.content.backbone.state_dict())
    plain, _ = images_run(lambda: second.encode(images))
    other, count = images_run(lambda: second.encode(images, cache=cache))
    assert count == 80, "the original features are known"
    assert np.array_equal(other.packed, plain.packed)
    assert np.array_equal(other.content, plain.content)
    some, count = images_run(lambda: second.encode(images[:9], cache=cache))
    assert count == 18 and np.array_equal(some.content_codes().packed, plain.content[:9])


def test_models_without_an_original_backbone_keep_no_features(toy, toy_queries):
    model = tiny_hasher(content_bits=0, epochs=1).fit(*toy).model_
    cache = SharedFeatures()
    assert len(model.encode(toy_queries[0], cache=cache)) == len(toy_queries[0])
    assert not cache._last and not cache._original


def test_few_features_give_fewer_content_bits(toy, tmp_path):
    said: list[str] = []
    from hadahash.data.sources import as_labelled
    from hadahash.fitting import fit_model

    config = tiny_config(content_bits=512, frozen=True, epochs=1)
    model = fit_model(config, as_labelled(*toy), device="cpu", info=said.append).model
    assert model.config.content_bits == model.content_bits == 256  # test_efficientnet has 256
    assert "256 content bits instead of 512: the backbone has 256 features." in said
    model.save(tmp_path)
    assert HashModel.load(tmp_path, device="cpu").encode(toy[0][:2]).content_bits == 256


# ------------------------------------------------------------------ settings


def test_content_bits_are_128_for_methods_that_use_labels():
    assert Hasher("hcdh", weights="none").config.content_bits == 128
    assert Hasher("hcdh", weights="none", content_bits=0).config.content_bits == 0
    for method in ("itq", "lsh"):
        assert Hasher(method, weights="none").config.content_bits == 0
        with pytest.raises(UsageError, match="content_bits must be 0 for") as caught:
            Hasher(method, content_bits=64)
        one_line(caught.value)


@pytest.mark.parametrize("bits", [-8, 4, 12, 520, 1.5, True, "x"])
def test_other_numbers_of_content_bits_are_refused(bits):
    with pytest.raises(UsageError, match="content_bits must be") as caught:
        tiny_hasher(content_bits=bits)
    one_line(caught.value)


def test_a_configuration_without_content_has_the_identity_it_always_had():
    config = tiny_config()
    assert "content_bits" not in config.identity()
    assert replace(config, content_bits=64).identity() == config.identity() | {"content_bits": 64}


# ------------------------------------------------------------------ the ranking of a model


def test_the_ranking_is_fitted_on_the_training_images(two_part):
    model, ranking = two_part.model_, two_part.model_.ranking
    assert ranking.classes == model.classes and ranking.content_fingerprint == model.fingerprint
    words = model.codewords()
    if words is None:
        assert ranking.codewords is None
        return
    assert np.array_equal(ranking.codewords, words)
    assert 4 <= ranking.sharpness <= 16


def test_the_classifier_gives_the_probabilities_of_a_query(two_part, toy_queries):
    queries = two_part.model_.queries(toy_queries[0])
    if two_part.method == "sdh":
        assert queries.probabilities is None
        return
    assert queries.probabilities.shape == (80, 4)
    assert np.allclose(queries.probabilities.sum(1), 1, atol=1e-5)
    values = torch.from_numpy(queries.values)
    scores = two_part.model_.method.head.classifier(values)
    assert np.allclose(queries.probabilities, scores.softmax(1).detach(), atol=1e-5)


def test_a_multilabel_model_has_fitted_numbers_per_class(tmp_path):
    pixels, labels = make_toy(80, seed=0)
    several = np.eye(4, dtype=np.uint8)[labels]
    several[::3, 0] = 1
    model = tiny_hasher(content_bits=64, epochs=2).fit(pixels, several).model_
    assert model.ranking.multilabel and model.ranking.slope.shape == (4,)
    assert model.queries(pixels).probabilities is None, "sigmoids are not calibrated"
    model.save(tmp_path)
    assert HashModel.load(tmp_path, device="cpu").ranking.to_dict() == model.ranking.to_dict()


@pytest.mark.parametrize("multilabel", [False, True])
def test_a_model_of_format_2_has_default_numbers(multilabel, toy, tmp_path):
    pixels, labels = toy
    model = tiny_hasher(epochs=1).fit(pixels, np.eye(4)[labels] if multilabel else labels).model_
    _save_as_format_2(model, tmp_path)
    old = HashModel.load(tmp_path, device="cpu")
    assert old.id == model.id and old.content_bits == 0 and old.encode(pixels).content is None
    assert old.ranking.sharpness == 8 and old.ranking.multilabel is multilabel
    if multilabel:
        assert old.ranking.codewords is None
    else:
        assert np.array_equal(old.ranking.codewords, model.codewords())


def _save_as_format_2(model: HashModel, folder: Path) -> None:
    """Rewrite model.json as the version before content bits wrote it."""
    from hadahash.model_files import _digest

    model.save(folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["sha256"], manifest["ranking"], manifest["config"]["content_bits"]
    manifest["format"] = 2
    (folder / MANIFEST).write_text(json.dumps(manifest | {"sha256": _digest(manifest)}))


def test_values_of_queries_keep_every_bit(toy):
    """Sigmoids and tanh may round a tiny negative value to 0, which would be a different bit."""
    from hadahash.outputs import relaxed_values

    values = np.array([[-1e-30, 1e-30, -0.0, 0.0, -5.0, 3.0]], np.float32)
    for clamp in (True, False):
        relaxed = relaxed_values(values, 2 / (1 + np.exp(-values)) - 1, clamp=clamp)
        assert np.array_equal(relaxed >= 0, values >= 0) and np.abs(relaxed).max() <= 1
        unbounded = relaxed_values(values, values, clamp=clamp)
        assert np.array_equal(unbounded >= 0, values >= 0) and np.abs(unbounded).max() <= 1
    assert np.allclose(unbounded * 5, values), "without codewords the ratios are kept"


def test_the_projection_in_numpy_is_the_same():
    features = _features(200)
    projection = fit_content(features, 16, seed=1)
    arrays = projection.arrays()
    assert (arrays.bits, arrays.features) == (16, 48)
    assert arrays.fingerprint == projection.fingerprint
    z = projection.values(features).numpy()
    assert np.allclose(arrays.values(features.numpy()), z, atol=1e-4)
    again = type(arrays).from_bytes(arrays.to_bytes(), 16)
    assert again.fingerprint == arrays.fingerprint
    with pytest.raises(UsageError, match=r"features must be \(n, 48\), got"):
        arrays.values(np.zeros((2, 47)))
