"""Changes of a folder with known states: an index, a file of codes, a model."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from index_states import after, build, perform, random_step, read_state
from small_collection import CORPUS

from hadahash import errors, files
from hadahash.codes import Codes
from hadahash.index import Index

MAIN = os.getpid()

if os.environ.get("HADAHASH_TORTURE_NO_FLUSH"):  # a mistake that must be found
    files.flush = lambda path: None


class IndexJob:
    """Four random changes of an index."""

    sweeps = True

    def __init__(self, rng: np.random.Generator) -> None:
        self.engine = str(rng.choice(["exact", "routed"]))
        self.states: list[Any] = [dict.fromkeys(range(0, 60, 2), 1)]
        self.steps = []
        for version in range(2, 6):
            self.steps.append(random_step(rng, self.states[-1], version, range(60)))
            self.states.append(after(self.states[-1], self.steps[-1]))

    def prepare(self, folder: Path) -> None:
        build(self.states[0], self.engine).save(folder / "i")

    def change(self, folder: Path, number: int) -> None:
        perform(Index.open(folder / "i"), self.steps[number], folder / "i")

    def read(self, folder: Path) -> Any:
        return read_state(folder / "i")


class NewIndexJob(IndexJob):
    """An index in a folder that does not exist yet."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.states = [None, self.states[0]]

    def prepare(self, folder: Path) -> None:
        folder.mkdir()

    def change(self, folder: Path, number: int) -> None:
        build(self.states[1], self.engine).save(folder / "a" / "i")

    def read(self, folder: Path) -> Any:
        place = folder / "a" / "i"
        return read_state(place) if (place / "index.json").exists() else None


class CodesJob:
    """A file of codes that is replaced."""

    sweeps = False

    def __init__(self, rng: np.random.Generator) -> None:
        self.name = str(rng.choice(["x.npz", "y.npz"]))
        self.states: list[Any] = [rng.integers(0, 256, (n, 4)).tolist() for n in (30, 9, 80)]

    def _save(self, folder: Path, number: int) -> None:
        Codes(np.array(self.states[number], np.uint8), 32).save(folder / self.name)

    def prepare(self, folder: Path) -> None:
        self._save(folder, 0)

    def change(self, folder: Path, number: int) -> None:
        self._save(folder, number + 1)

    def read(self, folder: Path) -> Any:
        return Codes.load(folder / self.name).packed.tolist()


class ParquetJob(CodesJob):
    """A .parquet file of codes that is replaced."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.name = "x.parquet"


class PhotosJob:
    """An index of photos with its catalog: photos are added, removed, and added."""

    sweeps = False

    def __init__(self, rng: np.random.Generator) -> None:
        names = rng.permutation(sorted(_small_photos())).tolist()
        self.states: list[Any] = [sorted(names[:count]) for count in (6, 10, 8, 12)]
        self.source = Path(tempfile.mkdtemp()) / "photos"

    def _build(self, folder: Path, number: int) -> None:
        from hadahash.photos import BuildOptions, build_or_update

        shutil.rmtree(self.source, ignore_errors=True)
        for name in self.states[number]:
            (self.source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CORPUS / "photos" / name, self.source / name)
        options = BuildOptions(device="cpu")
        build_or_update(self.source, folder / "i", run=CORPUS / "run", options=options)

    def prepare(self, folder: Path) -> None:
        folder.mkdir()
        self._build(folder, 0)

    def change(self, folder: Path, number: int) -> None:
        self._build(folder, number + 1)

    def read(self, folder: Path) -> Any:
        """The items, each with the code of its photo."""
        index, expected = Index.open(folder / "i"), _small_photos()
        index.verify()
        codes = index.codes()
        for each, packed in zip(codes.ids.tolist(), codes.packed, strict=True):
            assert packed.tobytes() == expected[each], "a code of another photo"
        return sorted(codes.ids.tolist())


@cache
def _small_photos() -> dict[str, bytes]:
    """The photos of the corpus and their codes."""
    import pytest
    import torch
    import toys

    from hadahash.model import HashModel

    torch.set_num_threads(1)
    toys.use_smallest_backbone(pytest.MonkeyPatch())
    codes = HashModel.load(CORPUS / "run", device="cpu").encode(CORPUS / "photos")
    return dict(zip(codes.ids.tolist(), (row.tobytes() for row in codes.packed), strict=True))


class JsonJob:
    """A JSON file that is replaced."""

    sweeps = False

    def __init__(self, rng: np.random.Generator) -> None:
        self.states: list[Any] = [{"n": n, "x": "y" * 10_000 * n} for n in range(1, 4)]

    def prepare(self, folder: Path) -> None:
        files.write_json(folder / "a.json", self.states[0])

    def change(self, folder: Path, number: int) -> None:
        files.write_json(folder / "a.json", self.states[number + 1])

    def read(self, folder: Path) -> Any:
        return files.read_json(folder / "a.json")


@cache
def _models() -> tuple[Any, ...]:
    import torch
    from toys import make_toy, tiny_hasher

    torch.set_num_threads(1)
    images, labels = make_toy(32, seed=0)
    return tuple(tiny_hasher(epochs=1, seed=seed).fit(images, labels).model_ for seed in (0, 1, 2))


class ModelJob:
    """A saved model that is replaced by others."""

    sweeps = False

    def __init__(self, rng: np.random.Generator) -> None:
        self.states: list[Any] = [model.id for model in _models()]

    def prepare(self, folder: Path) -> None:
        _models()[0].save(folder / "run")

    def change(self, folder: Path, number: int) -> None:
        _models()[number + 1].save(folder / "run")

    def read(self, folder: Path) -> Any:
        from hadahash.model import HashModel

        return HashModel.load(folder / "run").id


class RunJob:
    """A finished run that is trained again with other seeds, and continued after a kill."""

    sweeps = False

    def __init__(self, rng: np.random.Generator) -> None:
        self.states: list[Any] = list(_run_ids())

    def prepare(self, folder: Path) -> None:
        in_a_child(_train, folder / "run", 0)

    def change(self, folder: Path, number: int) -> None:
        in_a_child(_train, folder / "run", number + 1)

    def read(self, folder: Path) -> Any:
        from hadahash.model import HashModel
        from hadahash.runs import RunDir

        run = RunDir(folder / "run")
        record = run.record()
        run.split(record)
        model = HashModel.load(folder / "run")
        assert model.id == record["model_id"], "record and model do not belong together"
        return model.id


def in_a_child(function: Callable[..., str], *arguments: Any) -> str:
    """Call a function that trains in a forked process: threads of torch do not survive a fork."""
    if os.getpid() != MAIN:
        return function(*arguments)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            answer = ["ok", function(*arguments)]
        except BaseException as error:
            answer = [type(error).__name__, str(error)]
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        kind, text = json.load(pipe)
    os.waitpid(child, 0)
    if kind != "ok":
        raise getattr(errors, kind, RuntimeError)(text)
    return str(text)


@cache
def _photos() -> Path:
    import pytest
    import toys

    toys.use_smallest_backbone(pytest.MonkeyPatch())
    return toys.write_folder(Path(tempfile.mkdtemp()) / "photos", *toys.make_toy(48, seed=2))


@cache
def _run_ids() -> tuple[str, ...]:
    """Ids of the models, which are digests of their weights, when nothing goes wrong."""
    base = Path(tempfile.mkdtemp())
    _photos()
    return tuple(in_a_child(_train, base / str(seed), seed) for seed in range(3))


def _train(out: Path, seed: int) -> str:
    from toys import tiny_config

    from hadahash.errors import UsageError
    from hadahash.runs import DataSpec, train_run

    data = DataSpec(str(_photos()))
    config = tiny_config(
        backbone="smallest", epochs=2, batch_size=16, seed=seed, checkpoint_seconds=0
    )
    try:
        return train_run(config, data, out, resume=True).id
    except UsageError:
        return train_run(config, data, out, overwrite=True).id


JOBS = {
    "run": RunJob,
    "index": IndexJob,
    "new-index": NewIndexJob,
    "codes": CodesJob,
    "parquet": ParquetJob,
    "photos": PhotosJob,
    "json": JsonJob,
    "model": ModelJob,
}
