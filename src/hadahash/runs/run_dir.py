"""RunDir: the folder of a run, and the only code that knows its files.

    run.json                        settings, data, model id, split and digests; written last
    split.json                      which images are queries, training images and database
    model.json, model-*.safetensors the trained model
    log.jsonl                       losses per epoch
    skipped.csv                     images that could not be read
    evaluation/                     report.json, codes and labels, once evaluated
    .training/                      everything of a training that has not finished

A training is staged in `.training` and moved into place when it is complete; `run.json` is moved
last. If that is interrupted, the next one to open the folder completes it. So a folder always holds
the old run, the new run, or a run that is marked as unfinished, never a mixture.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from .. import files
from ..codes import Skipped, write_skipped
from ..data.splits import Split
from ..errors import StorageError, UsageError
from ..model import HashModel
from ..model_files import model_file_names

State = Literal["new", "training", "trained", "evaluated"]

_RECORD, _SPLIT, _LOG, _SKIPPED = "run.json", "split.json", "log.jsonl", "skipped.csv"
_STAGING, _READY, _REQUEST = ".training", "ready.json", "request.json"
_EVALUATION = "evaluation"
# What version 0.1 wrote when it evaluated a run.
_EVALUATION_V1 = ("report.json", *(f"codes/{n}" for n in ("query.npz", "database.npz")))
_EVALUATION_V1 += ("codes/labels.npz", "codes/values.npy")


class RunDir:
    """The folder of a run.

    Args:
        path: The folder; it need not exist yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.staging = self.path / _STAGING

    @property
    def state(self) -> State:
        """How far the run has come."""
        try:
            if (self.path / _RECORD).exists() or (self.staging / _READY).exists():
                return "evaluated" if self._report() is not None else "trained"
            unfinished = self.staging.exists() or (self.path / _SPLIT).exists()
        except OSError as error:
            raise files.storage_error("read", self.path, error) from error
        return "training" if unfinished else "new"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for writing.

        Raises:
            UsageError: Another process is writing to it.
        """
        try:
            files.make_folder(self.path)
            handle = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR, 0o666)
        except OSError as error:
            raise files.storage_error("write", self.path, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"Another process is writing to {self.path}. Wait for it, or choose another --out."
            ) from None
        else:
            yield
        finally:
            os.close(handle)

    def check_free(self, *, resume: bool, overwrite: bool) -> None:
        """Refuse to mix a new training with what is in the folder.

        Args:
            resume: Whether to continue an unfinished training.
            overwrite: Whether to replace what is there.

        Raises:
            UsageError: The folder holds a run and neither flag allows what would happen to it.
        """
        if resume and overwrite:
            raise UsageError("Give either --resume or --overwrite, not both.")
        state = self.state
        if overwrite or (state == "new" and not resume):
            return
        if state == "new":
            raise UsageError(
                f"{self.path} has no training to resume. "
                "Check the folder, or train without --resume."
            )
        if state == "training" and not resume:
            raise UsageError(
                f"{self.path} holds an unfinished training. "
                "Continue it with --resume, or start again with --overwrite."
            )
        if state == "training" and not (self.staging / _REQUEST).exists():
            raise UsageError(
                f"{self.path} holds an unfinished training of version 0.1, which cannot be "
                "resumed. Start again with --overwrite."
            )
        if state in ("trained", "evaluated") and not resume:
            raise UsageError(
                f"{self.path} holds a finished run. "
                "Replace it with --overwrite, or choose another --out."
            )

    def begin(self, request: dict[str, Any], split: Split, *, resume: bool) -> Path:
        """Prepare the staging folder of a training.

        Args:
            request: What was asked for; a resumed training must ask for the same.
            split: The split of the data.
            resume: Whether to keep an earlier staging folder.

        Returns:
            The staging folder, for log and checkpoints.
        """
        try:
            if not resume and self.staging.exists():
                shutil.rmtree(self.staging)
            files.make_folder(self.staging)
        except OSError as error:
            raise files.storage_error("write", self.staging, error) from error
        files.write_json(self.staging / _REQUEST, request)
        split.save(self.staging / _SPLIT)
        return self.staging

    def publish(
        self, model: HashModel, record: dict[str, Any], skipped: tuple[Skipped, ...]
    ) -> None:
        """Put a complete training in place of whatever the folder held before.

        Args:
            model: The trained model.
            record: The content of run.json.
            skipped: Training images that could not be read.

        Raises:
            StorageError: A file cannot be written; the training stays in the staging folder.
        """
        model.save(self.staging)
        write_skipped(self.staging / _SKIPPED, skipped)
        files.write_json(self.staging / _RECORD, record)
        names = [*model_file_names(self.staging), _SPLIT, _LOG, _SKIPPED]
        present = [name for name in names if (self.staging / name).exists()]
        files.write_json(self.staging / _READY, [*present, _RECORD])
        self.complete()

    def complete(self) -> None:
        """Complete a publication that was interrupted; nothing to do otherwise."""
        ready = self.staging / _READY
        if not ready.exists():
            return
        names = [str(name) for name in files.read_json(ready)]
        try:
            (self.path / _RECORD).unlink(missing_ok=True)
            self._remove_evaluation()
            self._remove_old(set(names))
            for name in names:
                if (self.staging / name).exists():
                    (self.staging / name).replace(self.path / name)
            shutil.rmtree(self.staging)
        except OSError as error:
            raise files.storage_error("write", self.path, error) from error

    def _remove_old(self, new: set[str]) -> None:
        """Remove the files of an earlier run that the new one does not replace."""
        for name in {*model_file_names(self.path), _SKIPPED, _LOG} - new:
            (self.path / name).unlink(missing_ok=True)
        (self.path / "checkpoint.safetensors").unlink(missing_ok=True)  # of version 0.1

    def _remove_evaluation(self) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self.path / _EVALUATION)
        for name in _EVALUATION_V1:
            with suppress(FileNotFoundError, NotADirectoryError):
                (self.path / name).unlink()

    def record(self) -> dict[str, Any]:
        """The content of run.json.

        Raises:
            StorageError: The folder holds no finished run; the message says what it holds instead.
        """
        self.complete()
        if self.state in ("new", "training"):
            raise StorageError(f"{self.path} {self._what_else()}")
        record = files.read_json(self.path / _RECORD)
        if not isinstance(record, dict):
            raise StorageError(f"{self.path / _RECORD} is damaged (not an object). Train again.")
        return record

    def _what_else(self) -> str:
        train = f"hadahash train DATA --out {self.path}"
        if self.path.is_file():
            return "is a file, not the folder of a run. Give the folder given to train as --out."
        if not self.path.exists():
            return f"does not exist. Check the name, or train a run: {train}"
        if self.state == "training":
            return (
                "is a run whose training has not finished (run.json is missing). "
                f"Continue it with the same command and --resume: {train} --resume"
            )
        if model_file_names(self.path):
            return (
                "holds a model without a run (run.json is missing), so the images to evaluate on "
                f"are not known. Encode images with hadahash encode {self.path} IMAGES, "
                "then: hadahash evaluate --queries Q --database D"
            )
        return f"is not the folder of a run (run.json is missing). Train one: {train}"

    def request(self) -> dict[str, Any]:
        """What the unfinished training was asked for."""
        request: dict[str, Any] = files.read_json(self.staging / _REQUEST)
        return request

    def model(self, record: dict[str, Any], *, device: str = "auto") -> HashModel:
        """Load the model and check that it is the one that run.json names.

        Raises:
            StorageError: It is another model.
        """
        model = HashModel.load(self.path, device=device)
        if not model.made(record.get("model_id")):
            raise StorageError(
                f"{self.path} mixes two runs: run.json names the model {record['model_id'][:12]}, "
                f"but model.json is {model.id[:12]}. Train again with --overwrite."
            )
        return model

    def split(self, record: dict[str, Any]) -> Split:
        """Load the split and check that it is the one that run.json names.

        Raises:
            StorageError: It is another split.
        """
        split = Split.load(self.path / _SPLIT)
        if record.get("split_sha256", split.sha256) != split.sha256:
            raise StorageError(
                f"{self.path} mixes two runs: split.json is not the split that the model was "
                "trained with. Train again with --overwrite."
            )
        return split

    @contextmanager
    def new_evaluation(self) -> Iterator[Path]:
        """Yield an empty folder that becomes `evaluation/` when the block succeeds."""
        staged = self.path / f".{_EVALUATION}"
        try:
            if staged.exists():
                shutil.rmtree(staged)
            files.make_folder(staged)
            yield staged
            self._remove_evaluation()
            staged.replace(self.path / _EVALUATION)
        except OSError as error:
            raise files.storage_error("write", staged, error) from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def evaluation(self) -> Path:
        """The folder that holds query.npz, database.npz, labels.npz and values.npy.

        Raises:
            StorageError: The run has not been evaluated.
        """
        report = self._report()
        if report is None:
            self.record()
            raise StorageError(
                f"{self.path} has not been evaluated. Do it with: hadahash evaluate {self.path}"
            )
        return report.parent if report.parent != self.path else self.path / "codes"

    def report(self) -> dict[str, Any]:
        """The content of report.json.

        Raises:
            StorageError: The run has not been evaluated, or with another model or split.
        """
        self.evaluation()
        report: dict[str, Any] = files.read_json(self._report() or self.path)
        record = self.record()
        for key in ("model_id", "split_sha256"):
            if report.get(key, record.get(key)) != record.get(key):
                raise StorageError(
                    f"{self.path} was evaluated with another {key.split('_')[0]} than it has now. "
                    f"Evaluate it again: hadahash evaluate {self.path}"
                )
        return report

    def _report(self) -> Path | None:
        """report.json of this version or, at the top, of version 0.1."""
        places = (self.path / _EVALUATION / "report.json", self.path / "report.json")
        return next((path for path in places if path.exists()), None)
