"""Thumbnails on disk."""

from __future__ import annotations

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from serving import ToyCollection, opened
from storages import image_files, put_folder
from toys import make_toy, write_folder

from hadahash import Index
from hadahash.photos import BuildOptions, build_or_update, missing_photos
from hadahash.serve.core.collection import resolve_config
from hadahash.serve.core.decode_pool import DecodePool, EncodedImage
from hadahash.serve.core.thumbnail_files import ThumbnailFiles

RED = "red/002.png"
LARGE = 10_000_000


def tag(number: int) -> str:
    return f"{number:032x}"


def image(number: int, size: int = 100) -> EncodedImage:
    return EncodedImage(bytes([number]) * size, ("image/png", "image/jpeg")[number % 2])


def test_what_is_written_is_read(tmp_path):
    files = ThumbnailFiles(tmp_path / "a" / "b", LARGE)
    assert files.read(tag(1)) is None
    for number in (1, 2):
        files.write(tag(number), image(number))
    again = ThumbnailFiles(tmp_path / "a" / "b", LARGE)
    assert [again.read(tag(number)) for number in (1, 2)] == [image(1), image(2)]
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700, "for this user only"


def test_damaged_files_are_not_sent(tmp_path):
    files = ThumbnailFiles(tmp_path, LARGE)
    files.write(tag(1), image(1))
    (path,) = tmp_path.glob("*/*")
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert files.read(tag(1)) is None
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        found = files.read(tag(1))
        assert found is None or (place == 4 and found.content == image(1).content)
    files.write(tag(1), image(1))
    assert files.read(tag(1)) == image(1)


def test_the_folder_is_limited_in_size(tmp_path):
    limit = 20 * 4096
    files = ThumbnailFiles(tmp_path, limit)
    for number in range(100):
        files.write(tag(number), image(number))
        if number >= 10:
            assert files.read(tag(10)) is not None, "a thumbnail in use is kept"
            os.utime(tmp_path / tag(10)[:2] / tag(10), ns=(2**62, 2**62))
    kept = list(tmp_path.glob("*/*"))
    assert 10 <= len(kept) <= 20 and files.read(tag(99)) is not None
    other = ThumbnailFiles(tmp_path, limit)
    other.write(tag(200), image(1))
    assert other.size() == other._files._size == 4096 * len(list(tmp_path.glob("*/*"))), (
        "old files are counted"
    )


def test_a_disk_that_fails_is_reported_once(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    files = ThumbnailFiles(tmp_path / "file" / "below", LARGE)
    for number in range(3):
        files.write(tag(number), image(number))
        assert files.read(tag(number)) is None
    assert caplog.text.count("not kept on disk") == 1


def test_nothing_is_stored_without_a_limit(tmp_path):
    files = ThumbnailFiles(tmp_path / "none", 0)
    files.write(tag(1), image(1))
    assert files.read(tag(1)) is None and not (tmp_path / "none").exists()


@pytest.fixture
def rendered(monkeypatch) -> list[str]:
    """The files that were decoded for thumbnails and images."""
    seen, real = [], DecodePool.render_thumbnail

    async def counted(self, path, side, client=""):
        seen.append(path.name)
        return await real(self, path, side, client)

    monkeypatch.setattr(DecodePool, "render_thumbnail", counted)
    return seen


def test_a_thumbnail_is_made_once(toy_collection, tmp_path, rendered):
    folder = str(tmp_path / "thumbnails")
    answers = []
    for _ in range(2):  # the second service finds it on disk
        with opened(toy_collection, thumbnail_folder=folder) as client:
            answers += [client.get(f"/v1/thumbnails/{RED}").content for _ in range(2)]
    assert len(set(answers)) == 1 and rendered == ["002.png"]
    with opened(toy_collection, thumbnail_folder=folder, thumbnail_side=20) as client:
        assert client.get(f"/v1/thumbnails/{RED}").content != answers[0], "of another size"
        client.get(f"/v1/images/{RED}")
    assert len(rendered) == 3
    assert len(list((tmp_path / "thumbnails").glob("*/*"))) == 2, "large images are not stored"


def test_clients_that_want_the_same_thumbnail_wait_for_one(toy_collection, tmp_path, monkeypatch):
    started, calls, real = threading.Barrier(4), [], DecodePool.render_thumbnail

    async def slow(self, path, side, client=""):
        import asyncio

        calls.append(path)
        await asyncio.sleep(0.5)
        return await real(self, path, side, client)

    monkeypatch.setattr(DecodePool, "render_thumbnail", slow)
    with opened(toy_collection, thumbnail_folder=str(tmp_path)) as client:

        def get(_: int) -> int:
            started.wait(30)
            return client.get(f"/v1/thumbnails/{RED}").status_code

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(get, range(4))) == [200] * 4
    assert len(calls) == 1


def test_images_at_an_address_are_shown(saved, tmp_path):
    """Fetched from below the indexed address, and from nowhere else."""
    import fsspec

    files = image_files(write_folder(tmp_path / "toy", *make_toy(12, seed=2)))
    address = put_folder(f"memory://{tmp_path.name}/photos", files)
    put_folder(f"memory://{tmp_path.name}", {"secret.png": files[RED]})
    folder = tmp_path / "photos.index"
    build_or_update(address, folder, run=saved, options=BuildOptions(device="cpu"))
    index = Index.open(folder)
    assert missing_photos(index, folder) is None
    secret = [f"{address}/../secret.png", f"memory://{tmp_path.name}/secret.png", "/etc/hostname"]
    codes = index.codes([RED] * 3)
    index.add(replace(codes, ids=np.array(["s0", "s1", "s2"], object)), paths=secret)
    index.save(folder)
    with opened(_AtAddress(tmp_path), decode_workers=1) as client:
        hits = client.post("/v1/search", files={"image": files[RED]}, data={"k": 15}).json()["hits"]
        shown = {hit["id"]: hit["has_image"] for hit in hits}
        assert shown == dict.fromkeys(files, True) | dict.fromkeys(("s0", "s1", "s2"), False)
        for kind in ("thumbnails", "images"):
            answer = client.get(f"/v1/{kind}/{RED}")
            assert answer.status_code == 200 and answer.headers["content-type"] == "image/png"
            for each in ("s0", "s1", "s2"):
                assert client.get(f"/v1/{kind}/{each}").status_code == 404
        fsspec.filesystem("memory").rm(f"/{tmp_path.name}/photos/{RED}")
        gone = client.get(f"/v1/images/{RED}")
        assert gone.status_code == 404 and gone.json()["error"]["code"] == "no_image"


class _AtAddress(ToyCollection):
    @property
    def config(self):
        return resolve_config(self.root / "photos.index")
