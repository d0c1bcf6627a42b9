"""A run folder contains the old run, the new one, or an unfinished one that is marked as such."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from toys import make_toy, one_line, tensor_bytes, tiny_config, use_smallest_backbone, write_folder
from typer.testing import CliRunner

from hadahash.cli.train import train as train_command
from hadahash.config import Config
from hadahash.errors import StorageError, UsageError
from hadahash.model import HashModel
from hadahash.runs import DataSpec, RunDir, evaluate_run, read_evaluated_run, train_run
from hadahash.training import Checkpoint


@pytest.fixture(autouse=True)
def small(monkeypatch):
    use_smallest_backbone(monkeypatch)


def _config(**changes) -> Config:
    return tiny_config(**{"backbone": "smallest", "epochs": 2, "batch_size": 16} | changes)


def _contents(folder: Path) -> dict[str, str]:
    """The digests of all visible files below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    shown = [path for path in files if not any(p.startswith(".") for p in path.parts)]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in shown}


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("data") / "photos", *make_toy(48, seed=2))


@pytest.fixture(scope="module")
def evaluated(photos, tmp_path_factory) -> Path:
    """A run with seed 0, evaluated. Tests copy it."""
    with pytest.MonkeyPatch.context() as patch:
        use_smallest_backbone(patch)
        out = tmp_path_factory.mktemp("runs") / "run"
        train_run(_config(), DataSpec(str(photos)), out)
        evaluate_run(out)
    return out


@pytest.fixture
def run(evaluated, tmp_path) -> Path:
    return shutil.copytree(evaluated, tmp_path / "run")


class Stopped(BaseException):
    """Simulates a kill: nothing catches it."""


@pytest.fixture
def stop(monkeypatch):
    """Stop the next training run after its third step, with or without a checkpoint."""

    def plan(*, save: bool = True):
        original = Checkpoint.save_if_due

        def stopping(self, state):
            if save:
                self.save(state)
            if state.step == 3:
                monkeypatch.setattr(Checkpoint, "save_if_due", original)
                raise Stopped

        monkeypatch.setattr(Checkpoint, "save_if_due", stopping)

    return plan


# ------------------------------------------------------------------ a second training


def _cli(*arguments: object) -> str:
    app = typer.Typer()
    app.command()(train_command)
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_a_second_train_command_with_a_typo_changes_nothing(photos, run):
    before, score = _contents(run), evaluate_run(run).map
    with pytest.raises(UsageError, match="Unknown setting 'epoch'"):
        _cli(photos, "--out", run, "--set", "epoch=60", "--seed", 1, "--overwrite")
    with pytest.raises(UsageError, match="seed must be"):
        _cli(photos, "--out", run, "--seed", -1, "--overwrite")
    assert _contents(run) == before and evaluate_run(run).map == score


def test_a_finished_run_is_not_replaced_without_overwrite(photos, run):
    before = _contents(run)
    with pytest.raises(UsageError, match=r"contains a finished run.*--overwrite") as caught:
        train_run(_config(seed=1), DataSpec(str(photos)), run)
    one_line(caught.value)
    assert _contents(run) == before
    model = train_run(_config(seed=1), DataSpec(str(photos)), run, overwrite=True)
    record = RunDir(run).record()
    assert record["seed"] == 1 and record["model_id"] == model.id
    assert RunDir(run).state == "trained", "the evaluation of the old run is gone"


@pytest.mark.parametrize("save", [False, True])
def test_an_interrupted_second_training_run_leaves_the_first_run(photos, run, stop, save):
    before, score = _contents(run), evaluate_run(run).map
    stop(save=save)
    with pytest.raises(Stopped):
        train_run(_config(seed=1), DataSpec(str(photos)), run, overwrite=True)
    assert evaluate_run(run).map == score
    assert _contents(run) == before
    resumed = train_run(_config(seed=1), DataSpec(str(photos)), run, resume=True)
    whole = train_run(_config(seed=1), DataSpec(str(photos)), run.parent / "other")
    assert tensor_bytes(resumed) == tensor_bytes(whole)
    assert RunDir(run).record()["seed"] == 1 and RunDir(run).state == "trained"


def test_two_training_runs_cannot_write_to_one_folder(photos, tmp_path):
    with RunDir(tmp_path / "run").locked():
        with pytest.raises(UsageError, match="Another process is writing") as caught:
            train_run(_config(), DataSpec(str(photos)), tmp_path / "run")
        one_line(caught.value)
    train_run(_config(), DataSpec(str(photos)), tmp_path / "run")


def test_a_training_run_that_started_earlier_and_writes_later_is_refused(
    photos, tmp_path, monkeypatch
):
    """The other run starts and finishes while this one opens its data."""
    spec, opened = DataSpec(str(photos)), DataSpec.open

    def slow(*arguments, **options):
        monkeypatch.setattr(DataSpec, "open", opened)
        train_run(_config(seed=5), spec, tmp_path / "run")
        return opened(*arguments, **options)

    monkeypatch.setattr(DataSpec, "open", slow)
    with pytest.raises(UsageError, match="contains a finished run"):
        train_run(_config(seed=0), spec, tmp_path / "run")
    record = RunDir(tmp_path / "run").record()
    assert record["seed"] == 5
    RunDir(tmp_path / "run").split(record)


# ------------------------------------------------------------------ resuming


def test_resuming_without_an_unfinished_run_is_refused(photos, tmp_path):
    with pytest.raises(UsageError, match="has no training run to resume") as caught:
        train_run(_config(), DataSpec(str(photos)), tmp_path / "mistyped", resume=True)
    one_line(caught.value)
    assert not (tmp_path / "mistyped").exists()
    with pytest.raises(UsageError, match="either --resume or --overwrite"):
        train_run(_config(), DataSpec(str(photos)), tmp_path / "run", resume=True, overwrite=True)


def test_resuming_a_finished_run_does_nothing(photos, run, monkeypatch):
    before, lines = _contents(run), []
    monkeypatch.setattr("hadahash.runs.training.fit_model", None)
    model = train_run(_config(), DataSpec(str(photos)), run, resume=True, info=lines.append)
    assert _contents(run) == before and model.id == RunDir(run).record()["model_id"]
    assert lines == [f"{run} is trained already; nothing to do."]
    with pytest.raises(UsageError, match="seed: 0 before, 1 now"):
        train_run(_config(seed=1), DataSpec(str(photos)), run, resume=True)


def test_an_unfinished_training_run_is_not_lost_without_resume(photos, tmp_path, stop):
    stop()
    with pytest.raises(Stopped):
        train_run(_config(), DataSpec(str(photos)), tmp_path / "run")
    checkpoint = tmp_path / "run" / ".training" / "checkpoint.safetensors"
    before = checkpoint.read_bytes()
    with pytest.raises(UsageError, match=r"unfinished training.*--resume") as caught:
        train_run(_config(), DataSpec(str(photos)), tmp_path / "run")
    one_line(caught.value)
    assert checkpoint.read_bytes() == before
    for read in (evaluate_run, read_evaluated_run):
        with pytest.raises(StorageError, match=r"training has not finished.*--resume"):
            read(tmp_path / "run")
    train_run(_config(), DataSpec(str(photos)), tmp_path / "run", overwrite=True)
    assert RunDir(tmp_path / "run").state == "trained"


def test_a_training_that_failed_before_its_first_checkpoint_blocks_nothing(photos, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(UsageError, match="Unknown device 'abacus'"):
        train_run(_config(), DataSpec(str(photos)), out, device="abacus")
    assert RunDir(out).state == "training"
    train_run(_config(), DataSpec(str(photos)), out)
    assert RunDir(out).state == "trained" and not (out / ".training").exists()


@pytest.mark.parametrize("save", [False, True])
def test_a_resumed_training_run_must_have_the_same_settings_and_data(photos, tmp_path, stop, save):
    stop(save=save)
    with pytest.raises(Stopped):
        train_run(_config(), DataSpec(str(photos)), tmp_path / "run")
    for changes, text in (
        ({"seed": 1}, "seed: 0 before, 1 now"),
        ({"lr": 0.5}, "lr: 0.1 before, 0.5 now"),
        ({"bits": 8}, "bits: 16 before, 8 now"),
    ):
        with pytest.raises(UsageError, match=text) as caught:
            train_run(_config(**changes), DataSpec(str(photos)), tmp_path / "run", resume=True)
        one_line(caught.value)
    with pytest.raises(UsageError, match=r"validation: 0\.0 before, 0\.25 now"):
        spec = DataSpec(str(photos), validation=0.25)
        train_run(_config(), spec, tmp_path / "run", resume=True)
    train_run(_config(checkpoint_seconds=5), DataSpec(str(photos)), tmp_path / "run", resume=True)


def test_settings_are_compared_by_value_when_resuming(photos, tmp_path, stop):
    common = [photos, "--out", tmp_path / "run", "--backbone", "smallest", "--weights", "none"]
    common += ["--set", "size=32", "--set", "batch_size=16", "--set", "epochs=3", "--bits", 16]
    stop()
    with pytest.raises(Stopped):
        _cli(*common, "--frozen")
    _cli(*common, "--set", "frozen=yes", "--set", "lr=0.1000", "--set", "lam=1", "--resume")
    assert RunDir(tmp_path / "run").record()["settings"]["frozen"] is True


# ------------------------------------------------------------------ crashes


class Crash(BaseException):
    """Simulates kill -9: nothing catches it, and nothing is cleaned up."""


class Disk:
    """Counts the operations that change the disk, and stops all of them after the k-th."""

    def __init__(self, patch: pytest.MonkeyPatch, allowed: int) -> None:
        self.left, self.crashed = allowed, False
        for name in ("replace", "unlink", "rmdir", "mkdir"):
            patch.setattr(os, name, self._counted(getattr(os, name)))
        patch.setattr(Path, "write_bytes", self._half_written(Path.write_bytes))

    def _step(self) -> None:
        if self.left == 0:
            self.crashed = True
            raise Crash
        self.left -= 1

    def _counted(self, operation):
        def counted(*arguments, **options):
            self._step()
            return operation(*arguments, **options)

        return counted

    def _half_written(self, write):
        def written(path, content):
            if self.left == 0 and not self.crashed:
                write(path, content[: len(content) // 2])
            self._step()
            return write(path, content)

        return written


def _crash_everywhere(action, start: Path, folder: Path, check) -> int:
    """Repeat an action on a copy of a folder with a crash after 0, 1, 2 ... operations."""
    for allowed in range(200):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, allowed)
            with suppress(Crash):
                action(folder)
        check(folder, disk.crashed)
        if not disk.crashed:
            return allowed
    raise AssertionError("the action never finished")


def test_a_crash_anywhere_in_publishing_leaves_one_run(photos, run, tmp_path, monkeypatch):
    published = []

    def caught(self, *arguments):
        published.append(arguments)
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(RunDir, "publish", caught)
        spec = DataSpec(str(photos))
        train_run(_config(seed=1, method="hcdh-2", bits=24), spec, run, overwrite=True)
    old, (new, record, skipped) = HashModel.load(run, device="cpu"), published[0]
    seen = set()

    def check(folder: Path, crashed: bool) -> None:
        assert HashModel.load(folder, device="cpu").id in (old.id, new.id)
        opened = RunDir(folder)
        found = opened.record()
        assert (found["seed"], found["model_id"]) in ((0, old.id), (1, new.id))
        assert opened.model(found, device="cpu").id == found["model_id"]
        assert opened.split(found).seed == found["seed"]
        if found["seed"] == 0:
            assert opened.report()["model_id"] == old.id and opened.can_resume
        else:
            assert opened.state == "trained" and not opened.can_resume
            weights = [path.name for path in folder.glob("model-*")]
            assert weights == [f"model-{new.weights_sha256[:12]}.safetensors"]
        assert crashed or found["seed"] == 1
        seen.add(found["seed"])

    steps = _crash_everywhere(
        lambda folder: RunDir(folder).publish(new, record, skipped), run, tmp_path / "copy", check
    )
    assert steps > 15 and seen == {0, 1}


def test_a_crash_anywhere_in_evaluating_leaves_a_whole_report_or_none(run, tmp_path):
    before = read_evaluated_run(run).report
    model = HashModel.load(run, device="cpu")
    seen = set()

    def check(folder: Path, crashed: bool) -> None:
        try:
            report = read_evaluated_run(folder).report
        except StorageError as error:
            assert "has not been evaluated" in one_line(error) and crashed
            seen.add("no report")
        else:
            assert report["depth"] in (None, 5) and report["model_id"] == model.id
            assert (report == before) == (report["depth"] is None)
            seen.add(report["depth"])

    _crash_everywhere(
        lambda folder: evaluate_run(folder, depth=5, model=model), run, tmp_path / "copy", check
    )
    assert seen == {"no report", None, 5}


def test_a_failed_publication_can_be_repeated(photos, run, monkeypatch):
    spec = DataSpec(str(photos))

    def full(self, folder):
        raise StorageError("The disk is full.")

    with monkeypatch.context() as patch, pytest.raises(StorageError):
        patch.setattr(HashModel, "save", full)
        train_run(_config(seed=1, checkpoint_seconds=0), spec, run, overwrite=True)
    assert RunDir(run).record()["seed"] == 0
    train_run(_config(seed=1, checkpoint_seconds=0), spec, run, resume=True)
    assert RunDir(run).record()["seed"] == 1


# ------------------------------------------------------------------ a folder from someone else


def _small_run(folder: Path) -> Path:
    """A folder with the files that `record` needs."""
    folder.mkdir()
    facts = {"method": "hcdh", "bits": 16, "data": "x", "queries": 1, "database": 1}
    (folder / "run.json").write_text(json.dumps(facts))
    (folder / ".training").mkdir()
    return folder


@pytest.mark.parametrize("kind", ["new", "remove"])
@pytest.mark.parametrize(
    "name", ["{}/thesis.txt", "../thesis.txt", "..", "", "notes.txt", "run.json\n", "a/model.json"]
)
def test_a_journal_names_only_files_of_a_run(tmp_path, kind, name):
    """A journal of someone else removes and moves nothing else."""
    folder, thesis = _small_run(tmp_path / "run"), tmp_path / "thesis.txt"
    thesis.write_text("mine")
    for staged in ("thesis.txt", "notes.txt", "run.json", "model.json"):
        (folder / ".training" / staged).write_text("theirs")
    (folder / "notes.txt").write_text("mine")
    journal = {"new": ["model.json"], "remove": []}
    journal[kind] = [*journal[kind], name.format(tmp_path)]
    (folder / ".training" / "publish.json").write_text(json.dumps(journal))
    before = _all_files(tmp_path)
    with pytest.raises(StorageError, match="is no file of a run") as caught:
        RunDir(folder).record()
    one_line(caught.value)
    assert _all_files(tmp_path) == before


def _all_files(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path): path.read_bytes() for path in found}


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"new": [1], "remove": []}', '{"new": {}}'])
def test_a_journal_of_the_wrong_shape_is_damaged(tmp_path, text):
    folder = _small_run(tmp_path / "run")
    (folder / ".training" / "publish.json").write_text(text)
    with pytest.raises(StorageError, match=r"publish.json is damaged") as caught:
        RunDir(folder).record()
    one_line(caught.value)
    assert (folder / "run.json").exists()


@pytest.mark.parametrize("text", ["5", "[]", "null"])
def test_a_request_of_the_wrong_shape_is_damaged(tmp_path, text):
    folder = _small_run(tmp_path / "run")
    (folder / ".training" / "request.json").write_text(text)
    with pytest.raises(StorageError, match=r"request.json is damaged") as caught:
        RunDir(folder).request()
    one_line(caught.value)


def test_an_evaluation_does_not_move_the_files_of_a_linked_folder(tmp_path):
    folder, other = _small_run(tmp_path / "run"), tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    (folder / ".evaluation").symlink_to(other)
    with RunDir(folder).new_evaluation() as staged:
        (staged / "report.json").write_text("{}")
    assert [path.name for path in (folder / "evaluation").iterdir()] == ["report.json"]
    assert [path.name for path in other.iterdir()] == ["thesis.txt"]


# ------------------------------------------------------------------ what does not belong together


@pytest.mark.parametrize("names", [["split.json"], ["model.json", "model-*.safetensors"]])
def test_files_of_another_run_are_detected(photos, run, tmp_path, names):
    other = tmp_path / "other"
    train_run(_config(seed=1), DataSpec(str(photos)), other)
    for name in names:
        for path in other.glob(name):
            shutil.copy(path, run)
    with pytest.raises(StorageError, match="mixes two runs") as caught:
        evaluate_run(run)
    one_line(caught.value)


def test_a_report_of_another_run_is_detected(photos, run, tmp_path):
    other = tmp_path / "other"
    train_run(_config(seed=1), DataSpec(str(photos)), other)
    shutil.copytree(run / "evaluation", other / "evaluation")
    with pytest.raises(StorageError, match="evaluated with a different model"):
        read_evaluated_run(other)


def test_other_files_in_the_folder_survive(photos, run):
    foreign = ["model-00001-of-00002.safetensors", "codes/everything.npz", "evaluation/mine.npz"]
    foreign += ["notes.txt", "codes/my.npy"]
    for name in foreign:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text(name)
    evaluate_run(run)
    model = train_run(_config(seed=1), DataSpec(str(photos)), run, overwrite=True)
    evaluate_run(run)
    model.save(run)
    assert all((run / name).read_text() == name for name in foreign)
    assert len(list(run.glob("model-*"))) == 2, "the weights of the old run are gone"


def test_skipped_images_are_those_of_the_last_run(tmp_path):
    photos = write_folder(tmp_path / "photos", *make_toy(48, seed=2))
    good = {path: path.read_bytes() for path in sorted((photos / "blue").iterdir())[:4]}
    for path in good:
        path.write_bytes(b"broken")
    out, spec = tmp_path / "run", DataSpec(str(photos))
    train_run(_config(), spec, out)
    listed = (out / "skipped.csv").read_text()
    assert listed.count("blue/") >= 2
    for path, content in list(good.items())[:-1]:
        path.write_bytes(content)
    record = json.loads((out / "run.json").read_text())
    del record["files_sha256"]
    (out / "run.json").write_text(json.dumps(record))
    evaluate_run(out)
    assert (out / "skipped.csv").read_text() == listed, "evaluation has a list of its own"
    assert (out / "evaluation" / "skipped.csv").read_text().count("blue/") == 1
    for path, content in good.items():
        path.write_bytes(content)
    train_run(_config(), spec, out, overwrite=True)
    assert not (out / "skipped.csv").exists()
    evaluate_run(out)
    assert not (out / "evaluation" / "skipped.csv").exists()


# ------------------------------------------------------------------ damaged and hostile files


@pytest.mark.parametrize("name", ["run.json", "split.json", "evaluation/report.json"])
@pytest.mark.parametrize("content", ["", "[]", "{}", "5", "[" * 100_000, "pipe", "zero"])
def test_damaged_files_of_a_run_are_one_line_errors(run, name, content):
    path = run / name
    path.unlink()
    if content == "pipe":
        os.mkfifo(path)
    elif content == "zero":
        path.symlink_to("/dev/zero")
    else:
        path.write_text(content)
    reads = [evaluate_run] if name == "split.json" else [read_evaluated_run]
    reads += [evaluate_run] if name == "run.json" else []
    for read in reads:
        try:
            read(run)
        except StorageError as error:
            assert Path(name).name in one_line(error)
        else:
            assert name == "evaluation/report.json" and content == "{}"


@pytest.mark.parametrize("name", ["labels.npz", "values.npy", "query.npz"])
def test_damaged_codes_of_a_run_are_one_line_errors(run, name):
    path = run / "evaluation" / name
    whole = path.read_bytes()
    rng = random.Random(0)
    broken = [b"", whole[:10], whole[: len(whole) // 2]]
    for _ in range(60):
        place = rng.randrange(len(whole))
        broken.append(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
    refused = []
    for content in broken:
        path.write_bytes(content)
        try:
            read_evaluated_run(run)
        except StorageError as error:
            refused.append(content)
            one_line(error)
    assert refused[:3] == broken[:3]  # cut files are never read


def test_a_folder_name_that_is_too_long_is_a_one_line_error(photos, tmp_path):
    out = tmp_path / ("n" * 300)
    for use in (
        lambda: train_run(_config(), DataSpec(str(photos)), out),
        lambda: evaluate_run(out),
        lambda: read_evaluated_run(out),
    ):
        with pytest.raises(StorageError, match="too long") as caught:
            use()
        one_line(caught.value)


def test_a_run_that_cannot_be_written_is_refused_before_the_work(run, monkeypatch):
    monkeypatch.setattr(HashModel, "values", lambda *_, **__: pytest.fail("it was encoded"))
    with RunDir(run).locked(), pytest.raises(UsageError, match="Another process is writing"):
        evaluate_run(run)
