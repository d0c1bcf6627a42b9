"""RunDir: the folder of a run. No other module reads or writes its files by name.

    run.json                        settings, data, model id, split and digests; written last
    split.json                      which images are queries, training images and database
    model.json, model-*.safetensors the trained model
    log.jsonl                       losses per epoch
    skipped.csv                     training images that could not be read
    evaluation/                     report.json, codes and labels, once evaluated
    .training/                      files of a training run that has not finished

A training run is staged in `.training`, and its files are moved into place when it is complete.
They are first listed in a journal, so that an interrupted move is completed when the folder is
opened next. A folder always contains the old run, the new run, or a run that is marked as
unfinished, never a mixture. Files that do not belong to a run are never touched.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from .. import files
from ..codes import Skipped, write_skipped
from ..data.splits import Split
from ..errors import StorageError, UsageError
from ..model import HashModel
from ..model_files import CHECKPOINT, is_model_file, model_file_names

State = Literal["new", "training", "trained", "evaluated"]

_RECORD, _SPLIT, _LOG, _SKIPPED = "run.json", "split.json", "log.jsonl", "skipped.csv"
_STAGING, _REQUEST, _JOURNAL = ".training", "request.json", "publish.json"
_FILES = (_RECORD, _SPLIT, _LOG, _SKIPPED, CHECKPOINT)  # of a run, with those of its model
_DONE = ".trained"  # a staging folder whose files have been moved and that is being removed
_REQUIRED = ("method", "bits", "data", "queries", "database")  # of run.json, in every version
_EVALUATION, _REPORT = "evaluation", "report.json"
_CODES = ("query.npz", "database.npz", "labels.npz", "values.npy")
# Version 0.1 wrote report.json and codes/, and left checkpoint.safetensors at the top.
_EVALUATION_FILES = (
    *(f"{_EVALUATION}/{name}" for name in (_REPORT, *_CODES, _SKIPPED)),
    *(_REPORT, *(f"codes/{name}" for name in _CODES)),
)


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
        """State of the run in this folder."""
        try:
            if (self.path / _RECORD).exists() or self._is_publishing():
                return "evaluated" if self._report() is not None else "trained"
            unfinished = self.staging.exists() or (self.path / _SPLIT).exists()
        except OSError as error:
            raise files.storage_error("read", self.path, error) from error
        return "training" if unfinished else "new"

    @property
    def can_resume(self) -> bool:
        """Whether there is a staged training that has not finished."""
        return self.staging.exists() and not self._is_publishing()

    @property
    def _has_checkpoint(self) -> bool:
        return (self.staging / CHECKPOINT).exists()

    def locked(self) -> AbstractContextManager[None]:
        """Lock the folder for writing.

        Raises:
            UsageError: Another process is writing to it.
        """
        return files.locked(self.path)

    def check_free(self, *, resume: bool, overwrite: bool) -> None:
        """Raise an error if a new training run would mix with the contents of the folder.

        A training that failed before its first checkpoint leaves nothing to lose and is replaced.

        Args:
            resume: Whether to continue an unfinished training run.
            overwrite: Whether to replace an existing run.

        Raises:
            UsageError: The folder contains a run, and neither flag allows to continue or replace
                it.
        """
        if resume and overwrite:
            raise UsageError("Give either --resume or --overwrite, not both.")
        state = self.state
        if overwrite or (resume and state in ("trained", "evaluated")):
            return
        if resume and state == "new":
            text = "has no training run to resume. Check the folder, or train without --resume."
        elif state == "training" and not self.can_resume:
            text = (
                "contains an unfinished training run of version 0.1, which cannot be resumed. "
                "Start again with --overwrite."
            )
        elif state == "training" and not resume and self._has_checkpoint:
            text = (
                "contains an unfinished training run. "
                "Continue it with --resume, or start again with --overwrite."
            )
        elif state in ("trained", "evaluated"):
            text = "contains a finished run. Replace it with --overwrite, or choose another --out."
        else:
            return
        raise UsageError(f"{self.path} {text}")

    def begin(self, request: dict[str, Any], split: Split, *, resume: bool) -> Path:
        """Prepare the staging folder of a training run.

        Args:
            request: The requested configuration and data.
            split: The split of the data.
            resume: Whether to keep an earlier staging folder.

        Returns:
            The staging folder, for log and checkpoints.

        Raises:
            StorageError: The folder cannot be written.
        """
        self._complete()
        try:
            if not resume and self.staging.exists():
                shutil.rmtree(self.staging)
            files.make_folder(self.staging)
        except OSError as error:
            raise files.storage_error("write", self.staging, error) from error
        files.write_json(self.staging / _REQUEST, request)
        split.save(self.staging / _SPLIT)
        return self.staging

    def request(self) -> dict[str, Any] | None:
        """The request of the unfinished training run; None if it was not written yet."""
        path = self.staging / _REQUEST
        again = f"Start again: {self._train()} --overwrite"
        request: dict[str, Any] | None = None
        if path.exists():
            request = files.read_checked(path, {}, again)
        return request

    def publish(
        self, model: HashModel, record: dict[str, Any], skipped: tuple[Skipped, ...]
    ) -> None:
        """Move the files of a complete training run into place; they replace an existing run.

        Args:
            model: The trained model.
            record: The content of run.json.
            skipped: Training images that could not be read.

        Raises:
            StorageError: A file cannot be written; the staging folder is kept.
        """
        model.save(self.staging)
        write_skipped(self.staging / _SKIPPED, skipped)
        files.write_json(self.staging / _RECORD, record)
        names = [*model_file_names(self.staging), _SPLIT, _LOG, _SKIPPED]
        new = [name for name in names if (self.staging / name).exists()] + [_RECORD]
        old = {*model_file_names(self.path), _SKIPPED, _LOG, CHECKPOINT}
        journal = {"new": new, "remove": sorted(old - {*new})}
        files.write_json(self.staging / _JOURNAL, journal)
        self._complete()

    def _is_publishing(self) -> bool:
        return (self.staging / _JOURNAL).exists()

    def _complete(self) -> None:
        """Move the files that the journal lists into place; every step is idempotent.

        The weights come before model.json, so that a model can be loaded at any time. While
        run.json is in the staging folder, there is none in the run folder.
        """
        try:
            if self._is_publishing():
                journal = self._journal()
                if (self.staging / _RECORD).exists():
                    (self.path / _RECORD).unlink(missing_ok=True)
                    self._remove_evaluation()
                for name in journal["new"]:
                    if (self.staging / name).exists():
                        (self.staging / name).replace(self.path / name)
                for name in journal["remove"]:
                    (self.path / name).unlink(missing_ok=True)
                files.flush(self.path)
                shutil.rmtree(self.path / _DONE, ignore_errors=True)
                self.staging.replace(self.path / _DONE)
            shutil.rmtree(self.path / _DONE, ignore_errors=True)
        except OSError as error:
            raise files.storage_error("write", self.path, error) from error

    def _journal(self) -> dict[str, list[str]]:
        """The names of the files to move and to remove: plain names of files of a run."""
        path = self.staging / _JOURNAL
        remedy = "Remove this file, or train into another folder."
        journal: dict[str, list[str]] = files.read_checked(
            path, {"new": [str], "remove": [str]}, remedy
        )
        for name in (*journal["new"], *journal["remove"]):
            if name not in _FILES and not is_model_file(name):
                raise StorageError(f"{path} is damaged ({name!r} is no file of a run). {remedy}")
        return journal

    def _remove_evaluation(self) -> None:
        """Remove the files of an evaluation, and their folders if they are empty."""
        for name in _EVALUATION_FILES:
            with suppress(FileNotFoundError, NotADirectoryError):
                (self.path / name).unlink()
        for name in (_EVALUATION, "codes"):
            with suppress(OSError):
                (self.path / name).rmdir()

    def record(self) -> dict[str, Any]:
        """The content of run.json.

        Raises:
            StorageError: The folder has no finished run; the message describes its contents.
        """
        if self.state in ("new", "training"):
            raise StorageError(f"{self.path} {self._what_else()}")
        if self._is_publishing():
            with self.locked():
                self._complete()
        path = self.path / _RECORD
        again = f"Restore it, or start again: {self._train()} --overwrite"
        record: dict[str, Any] = files.read_checked(path, {}, again)
        missing = [key for key in _REQUIRED if key not in record]
        if missing:
            raise StorageError(f"{path} is damaged ('{missing[0]}' is missing). {again}")
        return record

    def _train(self) -> str:
        return f"hadahash train DATA --out {self.path}"

    def _what_else(self) -> str:
        train = self._train()
        if self.path.exists() and not self.path.is_dir():
            return f"is a file, not the folder of a run. Give a folder that was written by: {train}"
        if not self.path.exists():
            return f"does not exist. Check the name, or train a run: {train}"
        if self.state == "training" and not self.can_resume:
            return f"is an unfinished training run of version 0.1. Start again: {train} --overwrite"
        if self.state == "training":
            return (
                "is a run whose training has not finished (run.json is missing). "
                f"Continue it with the same command and --resume: {train} --resume"
            )
        if model_file_names(self.path):
            return (
                "contains a model without a run (run.json is missing), so the images to evaluate "
                f"on are not known. Encode images with hadahash encode {self.path} IMAGES, "
                "then: hadahash evaluate --queries Q --database D"
            )
        return f"is not the folder of a run (run.json is missing). Train one: {train}"

    def model(self, record: dict[str, Any], *, device: str = "auto") -> HashModel:
        """Load the model and check that it is the one that run.json names.

        Args:
            record: Content of run.json.
            device: "auto", "cpu" or "cuda".

        Returns:
            The model.

        Raises:
            StorageError: It is a different model, or its files are damaged.
        """
        model = HashModel.load(self.path, device=device)
        self.check_model(record, model)
        return model

    def check_model(self, record: dict[str, Any], model: HashModel) -> None:
        """Check that a model is the one that run.json names.

        Args:
            record: Content of run.json.
            model: The model.

        Raises:
            StorageError: It is a different model.
        """
        if not model.made(record.get("model_id")):
            raise StorageError(
                f"{self.path} mixes two runs: run.json names the model {record['model_id'][:12]}, "
                f"but the model is {model.id[:12]}. Train again with --overwrite."
            )

    def split(self, record: dict[str, Any]) -> Split:
        """Load the split and check that it is the one that run.json names.

        Args:
            record: Content of run.json.

        Returns:
            The split.

        Raises:
            StorageError: It is a different split, or damaged.
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
        """Yield an empty folder whose files replace the evaluation when the block succeeds.

        report.json is removed first and put in place last: without it, a run is not evaluated.

        Raises:
            StorageError: A file cannot be written.
        """
        staged, place = self.path / f".{_EVALUATION}", self.path / _EVALUATION
        try:
            if staged.is_symlink():  # the files of another folder are not moved
                staged.unlink()
            shutil.rmtree(staged, ignore_errors=True)
            files.make_folder(staged)
            yield staged
            self._remove_evaluation()
            files.make_folder(place)
            for path in sorted(staged.iterdir(), key=lambda path: path.name == _REPORT):
                path.replace(place / path.name)
            files.flush(place)
        except OSError as error:
            raise files.storage_error("write", place, error) from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def evaluation(self) -> Path:
        """The folder that holds query.npz, database.npz, labels.npz and values.npy.

        Raises:
            StorageError: The run has not been evaluated.
        """
        self.record()
        report = self._report()
        if report is None:
            raise StorageError(
                f"{self.path} has not been evaluated. Do it with: hadahash evaluate {self.path}"
            )
        return report.parent if report.parent != self.path else self.path / "codes"

    def report(self) -> dict[str, Any]:
        """The content of report.json.

        Raises:
            StorageError: The run has not been evaluated, or was with a different model or split.
        """
        self.evaluation()
        again = f"Evaluate again: hadahash evaluate {self.path}"
        report: dict[str, Any] = files.read_checked(self._report() or self.path, {}, again)
        record = self.record()
        for key in ("model_id", "split_sha256"):
            if key in record and report.get(key, record[key]) != record[key]:
                raise StorageError(
                    f"{self.path} was evaluated with a different {key.split('_')[0]}. {again}"
                )
        return report

    def _report(self) -> Path | None:
        """report.json of this version or, at the top, of version 0.1."""
        places = (self.path / _EVALUATION / _REPORT, self.path / _REPORT)
        return next((path for path in places if path.exists()), None)
