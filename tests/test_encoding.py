"""Images to codes: aligned, streamed, in shards, and resumable in parts."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from toys import make_toy, one_line, tensor_bytes, tiny_hasher, write_folder

from hadahash import Codes, Hasher
from hadahash.codes import pack
from hadahash.data import ArrayImages
from hadahash.data.sources import ImageSource, as_images
from hadahash.encoding import Encoder, encode_to_file, parse_shard, shard_rows
from hadahash.errors import CorruptImage, StorageError, UsageError
from hadahash.model import HashModel
from hadahash.shared_features import SharedFeatures

NEAR_ZERO = 1e-4  # where another order of additions may turn a sign


@dataclass
class Counting:
    """Toy images that count how often each is read; some of them are broken."""

    pixels: np.ndarray
    bad: frozenset[int] = frozenset()
    numbers: np.ndarray | None = None
    read: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self):
        return len(self.pixels) if self.numbers is None else len(self.numbers)

    def __getitem__(self, index):
        number = index if self.numbers is None else int(self.numbers[index])
        with self.lock:
            self.read.append(number)
        if number in self.bad:
            raise CorruptImage(f"{number}.png", f"broken {number}")
        return self.pixels[number]

    def take(self, indices):
        numbers = np.arange(len(self)) if self.numbers is None else self.numbers
        return Counting(self.pixels, self.bad, numbers[indices], self.read, self.lock)


def _ids(count: int) -> np.ndarray:
    return np.array([f"image-{i}" for i in range(count)])


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    return make_toy(70, seed=5)[0]


@pytest.fixture(scope="module")
def model(fitted: Hasher) -> HashModel:
    return fitted.model_


@pytest.fixture
def encoder(model: HashModel) -> Encoder:
    return model.encoder(batch_size=16)


def _source(images, count: int = 70) -> ImageSource:
    return ImageSource(images, _ids(count))


def test_codes_are_the_signs_of_the_values_in_order(model, pixels):
    codes = model.encode(pixels)
    with torch.inference_mode():
        values = torch.cat(
            [
                model.network(torch.from_numpy(p.transpose(2, 0, 1).copy())[None].float())
                for p in pixels
            ]
        )
    sure = values.abs().numpy() > NEAR_ZERO
    assert (
        np.array_equal((codes.signs() > 0)[sure], (values.numpy() >= 0)[sure])
        and sure.mean() > 0.99
    )
    assert codes.ids.tolist() == list(range(70)) and codes.bits == 16 and codes.skipped == ()
    np.testing.assert_allclose(model.values(pixels).values, values, rtol=0, atol=1e-4)


def test_the_size_of_the_batch_does_not_matter(model, pixels):
    one, many = (model.values(pixels, batch_size=size).values for size in (1, 32))
    np.testing.assert_allclose(one, many, rtol=0, atol=NEAR_ZERO)
    sure = np.abs(one) > NEAR_ZERO
    codes = [model.encode(pixels, batch_size=size).signs() for size in (1, 32)]
    assert np.array_equal(codes[0][sure], codes[1][sure])


def test_bad_images_are_skipped_and_the_others_keep_their_ids(model, encoder, pixels):
    bad = frozenset({0, 3, *range(16, 32), 40, 69})  # the second batch is bad as a whole
    codes = encoder.encode(_source(Counting(pixels, bad)))
    good = [i for i in range(70) if i not in bad]
    assert codes.ids.tolist() == [f"image-{i}" for i in good]
    assert codes.skipped == tuple((f"image-{i}", f"broken {i}") for i in sorted(bad))
    for row in (0, 10, len(good) - 1):
        alone = model.values(pixels[good[row]][None]).values[0]
        sure = np.abs(alone) > NEAR_ZERO
        assert np.array_equal((codes.signs()[row] > 0)[sure], (alone >= 0)[sure])


def test_a_few_bad_files_do_not_stop_a_large_folder(model, tmp_path):
    """2,000 files, 2 of them bad: each code is that of the file that its id names."""
    pixels, labels = make_toy(2000, seed=5)
    folder = write_folder(tmp_path / "photos", pixels, labels)
    broken = ["blue/004.png", "red/1414.png"]
    (folder / broken[0]).write_bytes(b"")
    (folder / broken[1]).write_bytes((folder / broken[1]).read_bytes()[:200])
    codes = model.encode(folder)
    assert [name.path for name in codes.skipped] == broken and all(
        name.reason for name in codes.skipped
    )
    assert len(codes) == 1998 and not set(broken) & set(codes.ids)
    values = model.values(pixels).values
    for name, signs in zip(codes.ids, codes.signs(), strict=True):
        own = values[int(Path(name).stem)]
        sure = np.abs(own) > NEAR_ZERO
        assert np.array_equal((signs > 0)[sure], (own >= 0)[sure])


def test_no_image_and_only_bad_images(model, encoder, pixels):
    for codes in (model.encode([]), encoder.encode(_source(Counting(pixels[:0]), 0))):
        assert len(codes) == 0 and codes.packed.shape == (0, 2) and codes.bits == 16
    assert model.values([]).values.shape == (0, 16)
    codes = encoder.encode(_source(Counting(pixels[:5], frozenset(range(5))), 5))
    assert len(codes) == 0 and len(codes.skipped) == 5


def test_encoding_is_streamed(encoder, pixels):
    images, ahead = Counting(np.repeat(pixels, 6, axis=0)), []
    done = 0

    def advance(count):
        nonlocal done
        done += count
        ahead.append(len(images.read) - done)

    encoder.encode(_source(images, 420), advance)
    assert done == 420 and sorted(images.read) == list(range(420)), "each image is read once"
    assert max(ahead) <= 2 * 16


def test_encoding_changes_nothing_in_the_network(fitted, pixels):
    fitted.model_.network.train()  # as a careless caller may leave it
    before = tensor_bytes(fitted)
    first = fitted.encode(pixels)
    assert tensor_bytes(fitted) == before and not fitted.model_.network.training
    assert np.array_equal(first.packed, fitted.encode(pixels).packed)


def test_mirror_averages_the_image_and_its_mirror_image(model, pixels):
    mirroring = Encoder(model.network, replace(model.preprocess, mirror=True))
    plain, mirrored = (
        model.encoder().features(ArrayImages(p)).values for p in (pixels, pixels[:, :, ::-1].copy())
    )
    both = (plain + mirrored) / 2
    np.testing.assert_allclose(
        mirroring.features(ArrayImages(pixels)).values, both, rtol=0, atol=NEAR_ZERO
    )
    assert not np.allclose(both, plain, atol=NEAR_ZERO)
    with torch.no_grad():  # what a cache of features would give
        torch.testing.assert_close(
            torch.from_numpy(mirroring.values(ArrayImages(pixels)).values),
            model.network.values(torch.from_numpy(both)),
        )


# ------------------------------------------------------------------ shards


@pytest.mark.parametrize(("text", "shard"), [("1/1", (1, 1)), ("2/4", (2, 4)), (" 4/4", (4, 4))])
def test_shards_are_read(text, shard):
    assert parse_shard(text) == shard


@pytest.mark.parametrize("text", ["", "1", "0/4", "5/4", "-1/4", "a/b", "1/2/3", "1/0", "1.5/2"])
def test_impossible_shards_are_refused(text):
    with pytest.raises(UsageError, match=r"^--shard") as caught:
        parse_shard(text)
    one_line(caught.value)


def test_more_shards_than_images_need_no_memory():
    assert shard_rows(3, (3, 10**30)).tolist() == [2]
    assert shard_rows(3, (10**30, 10**30)).tolist() == []


@pytest.mark.parametrize(("count", "shards"), [(10, 3), (10, 1), (2, 5), (0, 2), (1000, 7)])
def test_shards_joined_are_the_whole_in_order(count, shards):
    parts = [shard_rows(count, (i + 1, shards)) for i in range(shards)]
    assert np.concatenate(parts).tolist() == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_codes_of_joined_shards_are_the_codes_of_the_whole(model, pixels, tmp_path):
    images = Counting(pixels, frozenset({7, 50}))
    source = ImageSource(images, _ids(70))
    parts = [model.encode_to_file(source, tmp_path / f"{i}.npz", shard=(i, 3)) for i in (1, 2, 3)]
    whole, joined = model.encode(source), Codes.concatenate(parts)
    assert np.array_equal(joined.ids, whole.ids) and joined.skipped == whole.skipped
    assert _nearly_equal(model, joined, whole, pixels)
    loaded = Codes.concatenate([Codes.load(tmp_path / f"{i}.npz") for i in (1, 2, 3)])
    assert np.array_equal(loaded.packed, joined.packed) and np.array_equal(loaded.ids, joined.ids)


def _nearly_equal(model, a, b, pixels):
    values = model.values(pixels[[int(name.split("-")[1]) for name in a.ids]]).values
    sure = np.abs(values) > NEAR_ZERO
    return np.array_equal(a.signs()[sure], b.signs()[sure])


# ------------------------------------------------------------------ long jobs


class Killed(BaseException):
    """Simulates a kill: nothing catches it."""


def _interrupted(encoder, source, out, *, after, **options):
    done = 0

    def advance(count):
        nonlocal done
        done += count
        if done >= after:
            raise Killed

    with pytest.raises(Killed):
        encode_to_file(encoder, source, out, part=10, progress=advance, **options)


def test_an_interrupted_job_does_no_finished_part_again(encoder, pixels, tmp_path):
    images, out = Counting(pixels, frozenset({3, 25})), tmp_path / "codes.npz"
    _interrupted(encoder, _source(images), out, after=35, model_id="m")
    assert not out.exists() and len(list((tmp_path / "codes.npz.parts").glob("*.npz"))) == 3
    source, counts = _source(images), []
    source.fingerprint()  # reads images of an unknown kind once
    images.read.clear()
    codes = encode_to_file(encoder, source, out, part=10, model_id="m", progress=counts.append)
    assert sorted(images.read) == list(range(30, 70)), "finished parts are not read again"
    assert sum(counts) == 70, "the progress counts them all the same"
    whole = encoder.encode(source)
    assert np.array_equal(codes.ids, whole.ids) and codes.skipped == whole.skipped
    assert Codes.load(out).ids.tolist() == whole.ids.tolist()
    assert list(tmp_path.iterdir()) == [out], "no parts are left behind"


@pytest.mark.parametrize("change", ["model", "ids", "shard", "part"])
def test_parts_of_another_job_are_not_used(encoder, pixels, tmp_path, change):
    images, out = Counting(pixels), tmp_path / "codes.npz"
    _interrupted(encoder, _source(images), out, after=35, model_id="m")
    ids = np.roll(_ids(70), 1) if change == "ids" else _ids(70)
    options = {
        "model": {"model_id": "other"},
        "shard": {"shard": (1, 2)},
        "part": {"part": 5},
        "ids": {},
    }[change]
    source = ImageSource(images, ids)
    source.fingerprint()
    images.read.clear()
    codes = encode_to_file(encoder, source, out, **{"model_id": "m", "part": 10} | options)
    expected = range(35) if change == "shard" else range(70)
    reads = 2 if change == "shard" else 1  # the fingerprint of a shard is computed anew
    assert sorted(images.read) == sorted([*expected] * reads)
    assert codes.ids.tolist() == ids[list(expected)].tolist()


def test_a_retrained_hasher_is_a_different_model(toy, tmp_path, pixels):
    hasher = tiny_hasher(epochs=1).fit(*toy)
    first = hasher.model_.id
    hasher.save(tmp_path / "model")
    assert hasher.model_.id == first, "saving changes nothing"
    hasher.set_params(epochs=2).fit(*toy)
    assert hasher.model_.id != first
    codes = hasher.model_.encode_to_file(pixels, tmp_path / "codes.npz")
    assert np.array_equal(codes.packed, hasher.encode(pixels).packed)


def test_a_job_that_is_done_again_encodes_again(encoder, pixels, tmp_path):
    images = Counting(pixels)
    source = _source(images)
    source.fingerprint()
    images.read.clear()
    for _ in range(2):
        encode_to_file(encoder, source, tmp_path / "codes.npz", model_id="m", part=10)
    assert len(images.read) == 140


@pytest.mark.parametrize("count", [0, 1])
def test_very_small_jobs(encoder, pixels, tmp_path, count):
    source = _source(ArrayImages(pixels[:count]), count)
    codes = encode_to_file(encoder, source, tmp_path / "codes.npz", model_id="m")
    assert len(codes) == len(Codes.load(tmp_path / "codes.npz")) == count
    assert codes.bits == 16


def test_codes_that_cannot_be_written_are_one_line_errors(fitted, pixels, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Cannot write") as caught:
        fitted.model_.encode_to_file(pixels, tmp_path / "file" / "codes.npz")
    one_line(caught.value)


# ------------------------------------------------------------------ shared features


def test_cached_features_give_the_same_codes_and_are_computed_once(toy, pixels):
    cache, counted = SharedFeatures(), Counting(pixels, frozenset({4}))
    hashers = [
        tiny_hasher(name, frozen=True, epochs=1, bits=8).fit(*toy, cache=cache)
        for name in ("hcdh", "lsh")
    ]
    source = ImageSource(counted, _ids(70))
    source.fingerprint()  # reads images of an unknown kind once
    counted.read.clear()
    for hasher in hashers:
        cached = hasher.encode(source, cache=cache)
        plain = hasher.encode(source)
        assert np.array_equal(cached.ids, plain.ids) and cached.skipped == plain.skipped
        assert np.mean(cached.signs() != plain.signs()) < 0.01
    assert len(counted.read) == 3 * 70, "once for both, and once for each without the cache"


def test_the_cache_tells_images_and_networks_apart(toy, pixels, tmp_path):
    cache = SharedFeatures()
    one = tiny_hasher("lsh", bits=32).fit(*toy, cache=cache)
    other = tiny_hasher("lsh", bits=32, seed=1).fit(*toy, cache=cache)
    first, second = pixels[:30], pixels[30:60]  # as many, so with the same numbers as ids
    folders = [
        write_folder(tmp_path / name, part, np.zeros(30, int))
        for name, part in (("a", first), ("b", second))
    ]
    for source in (first, second, *folders):
        for hasher in (one, other):
            assert np.array_equal(
                hasher.encode(source, cache=cache).packed, hasher.encode(source).packed
            )
    assert np.array_equal(
        pack(one.model_.values(first).values), one.encode(as_images(first)).packed
    )


# ------------------------------------------------------------------ jobs of other images


@pytest.mark.parametrize("kind", ["folder", "array"])
def test_an_interrupted_job_does_not_continue_with_other_images(model, pixels, tmp_path, kind):
    """File names of cameras repeat across folders, and ids of arrays always start at 0."""
    first, second = pixels[:30], pixels[30:60]
    sources = [first, second]
    if kind == "folder":
        sources = [
            write_folder(tmp_path / name, part, np.zeros(30, int))
            for name, part in (("a", first), ("b", second))
        ]
        assert as_images(sources[0]).ids.tolist() == as_images(sources[1]).ids.tolist()
    out, encoder = tmp_path / "codes.npz", model.encoder(batch_size=5)
    _interrupted(encoder, as_images(sources[0]), out, after=15, model_id=model.id)
    codes = encode_to_file(encoder, as_images(sources[1]), out, model_id=model.id, part=10)
    assert np.array_equal(codes.packed, encoder.encode(as_images(sources[1])).packed)
    assert not np.array_equal(codes.packed, encoder.encode(as_images(sources[0])).packed)


def test_a_file_that_was_replaced_in_the_meantime_is_encoded_again(model, pixels, tmp_path):
    folder = write_folder(tmp_path / "photos", pixels[:30], np.zeros(30, int))
    out, encoder = tmp_path / "codes.npz", model.encoder(batch_size=5)
    _interrupted(encoder, as_images(folder), out, after=15, model_id=model.id)
    first = folder / "blue" / "000.png"
    Image.fromarray(pixels[45]).save(first)
    codes = encode_to_file(encoder, as_images(folder), out, model_id=model.id, part=10)
    assert np.array_equal(codes.packed[0], model.encode(first).packed[0])


def test_a_damaged_job_file_starts_the_job_again(model, pixels, tmp_path):
    out, encoder = tmp_path / "codes.npz", model.encoder(batch_size=5)
    source = as_images(pixels[:30])
    _interrupted(encoder, source, out, after=15, model_id=model.id)
    (tmp_path / "codes.npz.parts" / "job.json").write_text("{")
    codes = encode_to_file(encoder, source, out, model_id=model.id, part=10)
    assert np.array_equal(codes.packed, encoder.encode(source).packed)


def test_a_damaged_part_is_encoded_again(model, pixels, tmp_path):
    out, encoder = tmp_path / "codes.npz", model.encoder(batch_size=5)
    source = as_images(pixels[:30])
    _interrupted(encoder, source, out, after=15, model_id=model.id)
    (tmp_path / "codes.npz.parts" / "000000.npz").write_bytes(b"PK")
    codes = encode_to_file(encoder, source, out, model_id=model.id, part=10)
    assert np.array_equal(codes.packed, encoder.encode(source).packed)


def test_a_folder_of_the_user_is_not_taken_for_parts(model, pixels, tmp_path):
    mine = tmp_path / "codes.npz.parts" / "000000.npz"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(UsageError, match="is no job of encode") as caught:
        model.encode_to_file(pixels[:4], tmp_path / "codes.npz")
    one_line(caught.value)
    assert mine.read_text() == "mine" and not (tmp_path / "codes.npz").exists()


@pytest.mark.parametrize("other_job", [False, True])
def test_files_of_the_user_among_the_parts_are_kept(model, pixels, tmp_path, other_job):
    folder = tmp_path / "codes.npz.parts"
    folder.mkdir()
    (folder / "job.json").write_text("{}")
    names = ["000000.npz", "part-000000000-000000008.parquet", ".job.json.0.part"]
    for name in ("notes.txt", *(names if other_job else ())):
        (folder / name).write_text(name)
    codes = model.encode_to_file(pixels[:4], tmp_path / "codes.npz")
    assert len(codes) == 4 and [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_a_copy_of_a_runtime_has_no_state_of_the_device(model, pixels):
    expected = model.encode(pixels)
    assert "backbones" in model.runtime.__dict__
    copied = pickle.loads(pickle.dumps(model.runtime))
    assert set(copied.__dict__) == {"network", "preprocess", "precision"}
    assert np.array_equal(
        Encoder(copied, model.preprocess).encode(as_images(pixels)).packed, expected.packed
    )


def test_read_only_pixels_are_encoded(model, pixels):
    expected, given = model.encode(pixels), pixels.copy()
    given.flags.writeable = False
    assert np.array_equal(model.encode(given).packed, expected.packed)
