"""Change the model of an index that is in use: encode again beside it, switch, roll back.

The next revision is prepared in the folder of the index while the current one is searched and
changed. It takes over what was added, changed and removed in the meantime, and then becomes the
current one in one step (`hadahash.index.revisions`). The previous revision is kept, and rolling
back is an upgrade to it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, UsageError
from ..files import locked
from ..index import Index, revisions
from ..index.items import Ids
from ..index.revisions import NEXT, PREVIOUS
from . import late
from .catalog import Catalog
from .kept import KEPT, clean, discard, dropped, elsewhere, keep, kept_catalog
from .models import load_model_of, no_codes
from .ready import MODEL
from .staging import ROOT, STAGE, Staging, originals_of
from .sync import Progress

if TYPE_CHECKING:
    from ..model import HashModel

_ROUNDS = 50  # attempts to catch up with an index that is changed all the time

Bar = Callable[[str, int], AbstractContextManager[Progress]]
Info = Callable[[str], object]


def _no_bar(title: str, total: int) -> AbstractContextManager[Progress]:
    return nullcontext(lambda count: None)


@dataclass(frozen=True)
class UpgradeOptions:
    """Options of an upgrade.

    Attributes:
        bits: Keep only the first bits of the new codes; None: all.
        drop_missing: Leave out items that cannot be encoded again, instead of refusing.
        embeddings: File of the embeddings, for an index of embeddings.
        engine: Engine of the new revision; None: as before.
        settings: Options of a new engine.
        device: "auto", "cpu" or "cuda".
    """

    bits: int | None = None
    drop_missing: bool = False
    embeddings: Path | None = None
    engine: str | None = None
    settings: dict[str, Any] | None = None
    device: str = "auto"


@dataclass(frozen=True)
class UpgradeSummary:
    """Result of an upgrade.

    Attributes:
        total: Items in the index.
        encoded: Items that were encoded.
        dropped: Items that were left out.
        bits: Length of the codes.
        model: Id of the model that made them.
        was: Id of the model before; None if it was not recorded.
    """

    total: int
    encoded: int
    dropped: int
    bits: int
    model: str
    was: str | None

    def __str__(self) -> str:
        dropped = f", {self.dropped:,} left out" if self.dropped else ""
        was = "" if self.was is None else f", before {self.was[:12]}"
        return (
            f"{self.total:,} items, {self.encoded:,} encoded{dropped}; {self.bits} bits of the "
            f"model {self.model[:12]}{was}"
        )


def upgrade(
    folder: str | Path,
    run: str | Path,
    *,
    options: UpgradeOptions | None = None,
    bar: Bar = _no_bar,
    info: Info = lambda text: None,
) -> UpgradeSummary:
    """Encode all items of an index with another model, then switch to the new codes.

    The index can be searched and changed all the time. After an interruption, the next call
    continues.

    Args:
        folder: The folder of the index.
        run: Folder of the run with the new model.
        options: The options.
        bar: Makes the progress bar of the encoding.
        info: Receives messages for the user.

    Returns:
        What was done.

    Raises:
        UsageError: The index has the codes of this model already, or keeps changing.
        DataError: Items cannot be encoded again. What was encoded is kept for the next call.
        StorageError: The index cannot be read or written; then it is unchanged.
    """
    from ..model import HashModel

    options, folder = options or UpgradeOptions(), Path(folder)
    finished = _finish(folder, options)
    live = Index.open(folder)
    model = HashModel.load(run, device=options.device)
    model = model if options.bits is None else model.prefix(options.bits)
    if live.meta.get("model") is not None and _made_by(model, live):
        if finished is not None:
            return _summary(folder, finished, previous_model(folder) or None)
        live.made_current()
        raise UsageError(f"{folder} already has the codes of {run}.")
    recorded = MODEL if Path(run).resolve() == (folder / MODEL).resolve() else run
    done = _Upgrade(folder, model, recorded, options, bar, info).apply()
    return replace(done, dropped=done.dropped + (len(finished.missing) if finished else 0))


def rollback(
    folder: str | Path,
    *,
    run: str | Path | None = None,
    options: UpgradeOptions | None = None,
    bar: Bar = _no_bar,
    info: Info = lambda text: None,
) -> UpgradeSummary:
    """Switch back to the codes before the last upgrade; a second rollback undoes the first.

    Items that were added since are encoded with the model of those codes, and items that were
    removed since are removed.

    Args:
        folder: The folder of the index.
        run: Folder of the run with the previous model; by default the one that was recorded.
        options: The options.
        bar: Makes the progress bar of the encoding.
        info: Receives messages for the user.

    Returns:
        What was done.

    Raises:
        UsageError: There is no previous revision, or its model is no longer there.
        DataError: Items that were added since cannot be encoded.
        StorageError: The index cannot be read or written; then it is unchanged.
    """
    options, folder = options or UpgradeOptions(), Path(folder)
    Index.open(folder)
    _finish(folder, replace(options, drop_missing=True))  # what is left out comes back
    if not revisions.exists(folder, PREVIOUS):
        raise UsageError(
            f"{folder} has no previous codes: it was not upgraded, or they were removed."
        )
    previous = revisions.open_revision(folder, PREVIOUS)
    model = load_model_of(previous, folder, run, device=options.device)
    recorded = run or previous.meta["run"]
    return _Upgrade(folder, model, recorded, options, bar, info).apply()


def previous_model(folder: str | Path) -> str | None:
    """Return the id of the model that `rollback` would go back to.

    Args:
        folder: The folder of the index.

    Returns:
        The id; "" if it was not recorded, None if there are no previous codes.
    """
    if not revisions.exists(Path(folder), PREVIOUS):
        return None
    return str(revisions.open_revision(folder, PREVIOUS).meta.get("model") or "")


def discard_old(folder: str | Path, options: UpgradeOptions | None = None) -> bool:
    """Remove what an upgrade left: the previous revision, and one that was not finished.

    Args:
        folder: The folder of the index.
        options: The options, for an upgrade that was killed and is completed first.

    Returns:
        Whether there was something to remove.

    Raises:
        UsageError: An upgrade is running.
        DataError: Items of an upgrade that was killed cannot be encoded.
    """
    folder = Path(folder)
    live = Index.open(folder)
    _finish(folder, options or UpgradeOptions())
    with locked(folder / STAGE):
        names = [name for name in (NEXT, PREVIOUS) if (folder / name).exists()]
        for name in names:
            discard(folder, name)
        shutil.rmtree(folder / KEPT, ignore_errors=True)
        if live.meta.get("run") != MODEL:
            shutil.rmtree(folder / MODEL, ignore_errors=True)
        shutil.rmtree(folder / STAGE, ignore_errors=True)
    return bool(names)


def _finish(folder: Path, options: UpgradeOptions) -> Staging | None:
    """Complete an upgrade that was killed right after its switch; None if there was none."""
    return late.finish(
        folder,
        drop_missing=options.drop_missing,
        embeddings=options.embeddings,
        device=options.device,
    )


def _summary(folder: Path, stage: Staging, was: str | None) -> UpgradeSummary:
    index, dropped = Index.open(folder), len(stage.missing)
    return UpgradeSummary(len(index), stage.encoded, dropped, index.bits, stage.model.id, was)


class _Upgrade:
    """One upgrade, also of a rollback."""

    def __init__(
        self,
        folder: Path,
        model: HashModel,
        run: str | Path,
        options: UpgradeOptions,
        bar: Bar,
        info: Info,
    ) -> None:
        self._folder, self._model, self._run = folder, model, run
        self._options, self._bar, self._info = options, bar, info

    def apply(self) -> UpgradeSummary:
        with locked(self._folder / STAGE):
            live = Index.open(self._folder)
            if live.pin():
                live.save(self._folder)
            was = live.meta.get("model")
            originals = originals_of(self._folder, live, self._options.embeddings)
            stage = Staging(self._folder, self._open(live), self._model, originals)
            with self._bar("encoding", len(live)) as advance:
                stage.catch_up(live, live.ids, advance)
            self._remove_others(stage, live)
            self._switch(stage, live)
            shutil.rmtree(self._folder / STAGE, ignore_errors=True)
        return _summary(self._folder, stage, was)

    def _open(self, live: Index) -> Index:
        """The next revision: one that was begun, the previous one, or a new one."""
        folder = self._folder
        if revisions.exists(folder, NEXT):
            begun = revisions.open_revision(folder, NEXT)
            if _made_by(self._model, begun):
                self._info(f"Continuing an upgrade, {len(begun):,} items are encoded.")
                return begun
            discard(folder, NEXT)
        Catalog(folder / STAGE).path.unlink(missing_ok=True)
        if revisions.exists(folder, PREVIOUS):
            previous = revisions.open_revision(folder, PREVIOUS)
            if _made_by(self._model, previous):
                kept_catalog(folder).copy(folder / STAGE, root=ROOT)
                revisions.copy(folder, PREVIOUS, NEXT)
                return revisions.open_revision(folder, NEXT)
        return self._create(live)

    def _create(self, live: Index) -> Index:
        model, options = self._model, self._options
        index = Index.build(
            no_codes(model),
            engine=options.engine or live.engine,
            codewords=model.codewords(),
            model=model,
            **self._engine_settings(live),
        )
        run = self._run
        index.meta |= {
            "model": model.id,
            "run": MODEL if run == MODEL else str(Path(run).resolve()),
        }
        if "embeddings" in live.meta:
            index.meta["embeddings"] = model.runtime.width
        index.save(self._folder, name=NEXT)
        return index

    def _engine_settings(self, live: Index) -> dict[str, Any]:
        given = self._options.settings or {}
        if self._options.engine not in (None, live.engine):
            return given
        return live.next_options() | given

    def _remove_others(self, stage: Staging, live: Index, removed: Ids | None = None) -> None:
        """Remove what the current revision does not have, unless an upgrade had to leave it out."""
        ids = stage.index.ids if removed is None else removed
        if not len(ids):
            return
        gone = ids[~live.has(ids)] if live.id_type is not None else ids
        if self._rolls_back():
            left_out = set(dropped(self._folder))
            gone = gone[np.array([each not in left_out for each in gone.tolist()], bool)]
        stage.remove(gone)

    def _rolls_back(self) -> bool:
        if not revisions.exists(self._folder, PREVIOUS):
            return False
        return _made_by(self._model, revisions.open_revision(self._folder, PREVIOUS))

    def _switch(self, stage: Staging, live: Index) -> None:
        """Catch up with changes until there are none, then switch."""
        for _ in range(_ROUNDS):
            self._check_missing(stage)
            replaced = elsewhere(self._folder, PREVIOUS)
            keep(self._folder, live, stage)
            known = None if live.location is None else self._unchanged(stage, live)
            if known is not None:
                late.remember(self._folder, live, known)
            if revisions.switch(self._folder, revisions.opened_generation(live)):
                clean(self._folder)
                if known is not None:
                    self._take_late(stage, known)
                Catalog(self._folder).adopt(stage.catalog)
                Index.open(self._folder).made_current()
                for index in replaced:
                    index.drop()
                return
            newer = Index.open(self._folder)
            changed = revisions.changes(live, newer)
            stage.catch_up(newer, changed.touched)
            self._remove_others(stage, newer, changed.removed)
            live = newer
        raise UsageError(
            f"{self._folder} keeps changing. Pause what writes to it and run the upgrade again: "
            "what was encoded is kept."
        )

    def _unchanged(self, stage: Staging, live: Index) -> Ids:
        """Catch up with a collection on a server, which has no generation; returns its ids."""
        known = live.ids
        there = stage.index.has(known) if stage.index.id_type is not None else np.zeros(0, bool)
        stage.catch_up(live, known[~there] if len(there) else known)
        self._remove_others(stage, live)
        self._check_missing(stage)
        return known

    def _take_late(self, stage: Staging, known: Ids) -> None:
        missing = late.take_late(stage, late.compare(self._folder, known))
        late.settle(self._folder, missing)
        if missing and not self._options.drop_missing:
            self._info(
                f"{len(missing):,} items came too late and cannot be encoded. They are only in the "
                "codes before."
            )

    def _check_missing(self, stage: Staging) -> None:
        if stage.missing and not self._options.drop_missing:
            each, reason = next(iter(stage.missing.items()))
            raise DataError(
                f"{len(stage.missing):,} items of {self._folder} cannot be encoded again, such as "
                f"'{each}': {reason}. Nothing was switched. Restore the files, or remove the "
                "items, or leave them out with --drop-missing."
            )


def _made_by(model: HashModel, index: Index) -> bool:
    return index.bits == model.bits and model.made(index.meta.get("model"))
