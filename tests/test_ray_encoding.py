"""Encoding on Ray: the codes of one process, whatever happens to the workers."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from storages import DeadlyImages, image_files, tar_bytes
from toys import one_line
from trials import Trials

from hadahash import Codes, HashModel, Index
from hadahash import ray_encoding as module
from hadahash.cli.encode_ray import Job, encode_job
from hadahash.data.sources import as_images
from hadahash.errors import UsageError
from hadahash.photos import BuildOptions, PhotoIndex, build_or_update
from hadahash.photos.received import Receiver
from hadahash.photos.scan import scan_source, source_of
from hadahash.ray_encoding import Piece, RayOptions, encode_on_ray

ray = pytest.importorskip("ray")
TESTS = str(Path(__file__).parent)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 8 images."""
    monkeypatch.setattr(module, "PIECE", 8)
    monkeypatch.setattr(module, "_SMALLER", (8, 4, 1))
    monkeypatch.setattr(module, "_RETRIES", 1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two workers, which find the modules of the tests."""
    path = os.environ["PYTHONPATH"]
    os.environ["PYTHONPATH"] = os.pathsep.join([path, TESTS])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
    os.environ["PYTHONPATH"] = path


def _joined(paths: list[Path]) -> Codes:
    return Codes.concatenate([Codes.load(path) for path in paths])


def _same(found: Codes, expected: Codes) -> None:
    assert found.ids.tolist() == expected.ids.tolist()
    assert np.array_equal(found.packed, expected.packed)
    assert found.skipped == expected.skipped


def test_missing_pieces() -> None:
    cut = module._missing
    assert cut(set(), 10, 4) == [Piece(0, 4), Piece(4, 8), Piece(8, 10)]
    assert cut({Piece(0, 10)}, 10, 4) == []
    assert cut({Piece(2, 4), Piece(4, 5)}, 8, 4) == [Piece(0, 2), Piece(5, 8)]
    assert cut({Piece(0, 4)}, 6, 1) == [Piece(4, 5), Piece(5, 6)]


@pytest.mark.usefixtures("small")
def test_finished_pieces_are_not_encoded_again(
    saved: Path, toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, source = HashModel.load(saved, device="cpu"), as_images(toy_folder)
    ran: list[Piece] = []

    def run(model: HashModel, source, pieces, options):  # a cluster of this process
        for piece in pieces:
            ran.append(piece)
            if len(ran) == 4:
                raise KeyboardInterrupt
            yield piece, model.encode(source.take(np.arange(*piece)))

    monkeypatch.setattr(module, "_run", run)
    monkeypatch.setattr(module, "_cluster", lambda options: _Nothing())
    with pytest.raises(KeyboardInterrupt):
        encode_on_ray(model, source, tmp_path / "parts")
    (tmp_path / "parts" / "part-000000000-000000008.npz").write_bytes(b"damaged")
    counted: list[int] = []
    paths = encode_on_ray(model, source, tmp_path / "parts", progress=counted.append)
    _same(_joined(paths), model.encode(source))
    assert sum(counted) == 48 and counted[0] == 16
    assert len(ran) == 4 + 4
    other = replace(source, ids=source.ids[::-1])
    encode_on_ray(model, other, tmp_path / "parts", overwrite=True)  # another job
    assert len(ran) == 4 + 4 + 6


def _earlier_job(folder: Path) -> dict[str, str]:
    """The files of another job, and one of the user."""
    folder.mkdir()
    for name in ("job.json", "part-000000000-000000512.parquet", "notes.txt"):
        (folder / name).write_text("{}")
    return _texts(folder)


def _texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_job_that_cannot_start_removes_nothing(
    saved: Path, toy_folder: Path, tmp_path: Path, overwrite: bool
) -> None:
    """Another job is refused; with --overwrite it is kept until Ray is reached."""
    model, source, folder = (
        HashModel.load(saved, device="cpu"),
        as_images(toy_folder),
        tmp_path / "c",
    )
    before, started = _earlier_job(folder), time.monotonic()
    problem = "Cannot reach Ray at 127.0.0.1:1: " if overwrite else "the parts of another job"
    with pytest.raises(UsageError, match=problem) as caught:
        encode_on_ray(
            model, source, folder, options=RayOptions(address="127.0.0.1:1"), overwrite=overwrite
        )
    one_line(caught.value)
    assert _texts(folder) == before
    assert time.monotonic() - started < 60  # Ray itself tries for minutes


@pytest.mark.usefixtures("small")
def test_overwriting_replaces_the_parts_only(
    saved: Path, toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    folder = tmp_path / "codes"
    _earlier_job(folder)
    monkeypatch.setattr(
        module,
        "_run",
        lambda model, source, pieces, options: (
            (piece, model.encode(source.take(np.arange(*piece)))) for piece in pieces
        ),
    )
    monkeypatch.setattr(module, "_cluster", lambda options: _Nothing())
    job = Job(saved, str(toy_folder), folder, [], RayOptions(), overwrite=True)
    encode_job(job, as_images(toy_folder))
    assert (folder / "notes.txt").read_text() == "{}"
    assert not (folder / "part-000000000-000000512.parquet").exists()
    assert len(_joined(sorted(folder.glob("*.parquet")))) == 48
    assert "codes also has 1 files of no job, such as notes.txt." in capsys.readouterr().err


@pytest.mark.parametrize("address", [None, "auto", "local", "ray-head"])
def test_only_an_address_with_a_port_is_tried(address: str | None) -> None:
    module._check_reachable(address)


@pytest.mark.parametrize("address", ["{}", "ray://{}"])
def test_an_address_that_answers_is_left_to_ray(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        module._check_reachable(address.format(where))
    with pytest.raises(UsageError, match="Check the address, or leave it out") as caught:
        module._check_reachable(address.format(where))
    one_line(caught.value)


def test_received_codes_need_no_encoding(saved: Path, toy_folder: Path, tmp_path: Path) -> None:
    (toy_folder / "red" / "bad.png").write_bytes(b"no image")
    model, scan = HashModel.load(saved, device="cpu"), scan_source(toy_folder)
    assert scan.home is not None
    index = PhotoIndex.open_or_create(tmp_path / "i", model, saved, scan.home)
    codes = model.encode(source_of(scan.photos))
    codes[:20].save(tmp_path / "0.npz")
    replace(codes[20:], skipped=codes.skipped).save(tmp_path / "1.npz")
    receiver = Receiver(index, scan)
    for _ in range(2):  # an interrupted call can be repeated
        assert receiver.receive([tmp_path / "0.npz", tmp_path / "1.npz"]) == 48
    assert Index.open(tmp_path / "i").get(["red/002.png"])[0].labels == ("red",)
    assert "red/bad.png" in (tmp_path / "i" / "skipped.csv").read_text()
    said: list[str] = []
    options = BuildOptions(device="cpu")
    build_or_update(toy_folder, tmp_path / "i", run=saved, options=options, info=said.append)
    assert "48 images: 0 encoded, 49 unchanged, 0 removed, 1 could not be read" in said[0]


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def test_one_process_and_ray_give_the_same_codes(
    saved: Path, toy_folder: Path, tmp_path: Path
) -> None:
    (toy_folder / "red" / "bad.png").write_bytes(b"no image")
    model, source = HashModel.load(saved, device="cpu"), as_images(toy_folder)
    options, handler = RayOptions(workers=1, device="cpu"), signal.getsignal(signal.SIGTERM)
    try:
        paths = encode_on_ray(model, source, tmp_path / "parts", options=options, suffix=".parquet")
    except UsageError as error:
        pytest.skip(f"Ray does not start here: {error}")
    assert not ray.is_initialized()
    assert signal.getsignal(signal.SIGTERM) is handler
    found = _joined(paths)
    _same(found, model.encode(source))
    assert [row.path for row in found.skipped] == ["red/bad.png"]


@pytest.mark.torture
@pytest.mark.usefixtures("small", "cluster")
def test_a_killed_worker_changes_nothing(saved: Path, toy_folder: Path, tmp_path: Path) -> None:
    model, source = HashModel.load(saved, device="cpu"), as_images(toy_folder)
    deadly = DeadlyImages(source.images.paths, 21, tmp_path / "died", once=True)
    paths = encode_on_ray(model, replace(source, images=deadly), tmp_path / "parts")
    assert (tmp_path / "died").exists()
    assert len(paths) == 6
    _same(_joined(paths), model.encode(source))


@pytest.mark.torture
@pytest.mark.usefixtures("small", "cluster")
def test_an_image_that_kills_every_worker_is_skipped(
    saved: Path, toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RETRIES", 0)
    monkeypatch.setattr(module, "_SMALLER", (8, 1))
    model, source = HashModel.load(saved, device="cpu"), as_images(toy_folder)
    deadly = DeadlyImages(source.images.paths, 21, tmp_path / "died", once=False)
    paths = encode_on_ray(model, replace(source, images=deadly), tmp_path / "parts")
    found, expected = _joined(paths), model.encode(source)
    keep = np.arange(48) != 21
    assert found.ids.tolist() == expected.ids[keep].tolist()
    assert np.array_equal(found.packed, expected.packed[keep])
    assert found.skipped == ((str(source.ids[21]), "the worker that read it died"),)


@pytest.mark.torture
@pytest.mark.usefixtures("small", "cluster")
@pytest.mark.parametrize("engine", ["index", "milvus"])
def test_ray_fills_an_index(
    engine: str, saved: Path, toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hadahash.cli.encode_ray import Job, encode_job

    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tar").write_bytes(tar_bytes(image_files(toy_folder) | {"red/b.png": b"no"}))
    out = Path("toy.index") if engine == "index" else Path("milvus:raytoy")
    job = Job(saved, str(tmp_path / "a.tar"), out, [], RayOptions(device="cpu"))
    encode_job(job)
    encode_job(job)  # again: nothing changes
    index = Index.open("toy.index" if engine == "index" else "raytoy.index")
    assert len(index) == 48 and index.engine == ("exact" if engine == "index" else "milvus")
    expected = HashModel.load(saved, device="cpu").encode(toy_folder)
    found = index.codes(expected.ids.tolist())
    assert np.array_equal(found.packed, expected.packed)
    assert index.get(["red/002.png"])[0].labels == ("red",)
    shutil.rmtree(tmp_path / "raytoy.index", ignore_errors=True)


@pytest.mark.torture
@pytest.mark.usefixtures("cluster")
def test_too_many_workers_are_refused(saved: Path, toy_folder: Path, tmp_path: Path) -> None:
    model = HashModel.load(saved, device="cpu")
    with pytest.raises(UsageError, match=r"workers must be >= 1 and <= 2 \(CPUs of Ray\), got 9"):
        encode_on_ray(model, as_images(toy_folder), tmp_path / "p", options=RayOptions(workers=9))


class _Killer(threading.Thread):
    """Kills up to two workers of this process's cluster at random moments."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self._pauses, self._rng = rng.uniform(0, 2, 2), rng
        self.ended, self.killed = threading.Event(), 0

    def run(self) -> None:
        for pause in self._pauses:
            if self.ended.wait(pause):
                return
            while not self.ended.wait(0.02) and not (found := self._workers()):
                pass
            if not self.ended.is_set():
                found[self._rng.integers(len(found))].kill()
                self.killed += 1

    def _workers(self) -> list[psutil.Process]:
        found = []
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                title = " ".join(process.cmdline())  # an agent of Ray would end the whole node
                found += [process] if title.startswith("ray::") and "MapWorker" in title else []
        return found


@pytest.mark.torture
@pytest.mark.usefixtures("small", "cluster")
def test_workers_that_are_killed_at_random_moments(
    trials: Callable[[str, str], Trials],
    saved: Path,
    toy_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_RETRIES", 3)
    tried, killed = trials("Ray", "kill -9 of workers at random moments: the same codes"), 0
    model, source = HashModel.load(saved, device="cpu"), as_images(toy_folder)
    expected = model.encode(source)
    for trial in tried.numbers(2, 20):
        with trial:
            killer = _Killer(trial.rng)
            killer.start()
            try:
                paths = encode_on_ray(model, source, tmp_path / f"parts-{trial.number}")
            finally:
                killer.ended.set()
                killer.join()
            _same(_joined(paths), expected)
            killed += killer.killed
    assert killed
