"""Build an index of photos, or bring it up to date: the steps of `hadahash index build`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, UsageError
from ..index.storage.manifest import MANIFEST
from .catalog import CATALOG
from .meta import home_path, recorded_meta, scan_options
from .models import load_model_of, model_for, shorten_for
from .plan import SyncPlan, SyncSummary
from .ready import MODEL, fit_ready_model
from .scan import Scan, scan_source
from .sync import SKIPPED, PhotoIndex, Progress

if TYPE_CHECKING:
    from ..model import HashModel

Bar = Callable[[str, int | None], AbstractContextManager[Progress]]
Info = Callable[[str], object]


def _no_bar(title: str, total: int | None) -> AbstractContextManager[Progress]:
    return nullcontext(lambda count: None)


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build.

    Attributes:
        engine: A name of `list_engines()`; None: exact, or that of the existing index.
        bits: Keep only the first bits of the codes; None: all, or as the existing index.
        settings: Options of the engine of a new index.
        exclude: Patterns of files to leave out; None: those of the last build.
        follow_links: Whether symbolic links are followed; None: as in the last build.
        data_root: Folder of the files of a named data set.
        moved: Accept that the photos are elsewhere than at the last build.
        checksum: Compare the contents of files, not size and time.
        allow_deletions: Accept that most of the indexed files are missing.
        allow_empty: Accept that there are no photos.
        device: "auto", "cpu" or "cuda".
    """

    engine: str | None = None
    bits: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    exclude: list[str] | None = None
    follow_links: bool | None = None
    data_root: Path | None = None
    moved: bool = False
    checksum: bool = False
    allow_deletions: bool = False
    allow_empty: bool = False
    device: str = "auto"


@dataclass(frozen=True, eq=False)
class Build:
    """A build, planned by `Build.prepare`.

    Attributes:
        source: The photos.
        out: The folder of the index.
        run: The run whose model encodes; None: the index has a model of its own.
        options: The options.
        scan: What was found.
    """

    source: str | Path
    out: Path
    run: Path | None
    options: BuildOptions
    scan: Scan

    @staticmethod
    def prepare(
        source: str | Path,
        out: str | Path,
        *,
        run: str | Path | None = None,
        options: BuildOptions | None = None,
        bar: Bar = _no_bar,
    ) -> Build:
        """Find the photos; nothing is changed.

        Args:
            source: A folder, a table, or the name of a data set.
            out: The folder of the index.
            run: Folder of a run; None: no trained model is needed.
            options: The options.
            bar: Makes the progress bar of a folder that is searched.

        Returns:
            The build.

        Raises:
            DataError: There are no photos.
        """
        options, out = options or BuildOptions(), Path(out)
        rules = scan_options(
            recorded_meta(out),
            exclude=options.exclude,
            follow_links=options.follow_links,
            data_root=options.data_root,
            pictures=out.with_name(f"{out.name}.pictures"),
        )
        with bar("searching", None) as advance:
            scan = scan_source(source, rules, progress=advance)
        if not scan.photos and not out.exists() and not options.allow_empty:
            notice = f" {scan.notice}" if scan.notice else ""
            raise DataError(
                f"{source} contains no images.{notice} To build an empty index, pass --allow-empty."
            )
        return Build(source, out, None if run is None else Path(run), options, scan)

    @property
    def home(self) -> Path:
        """What the index records as the origin of its photos."""
        return self.scan.home or Path(self.source)

    def plan(self) -> SyncPlan:
        """Return what a build would do; nothing is changed and no model is loaded."""
        if not (self.out / MANIFEST).exists() or self._replaces_model():
            return SyncPlan(self.scan.photos, home=self.home)
        return self._plan(PhotoIndex.open(self.out))

    def apply(
        self, *, bar: Bar = _no_bar, progress: bool = False, info: Info = lambda text: None
    ) -> SyncSummary:
        """Build the index, or bring it up to date.

        Args:
            bar: Makes the progress bars of comparing and encoding.
            progress: Show a progress bar on stderr while a model is fitted.
            info: Receives messages for the user.

        Returns:
            What was done.

        Raises:
            DataError: Most indexed photos are missing.
            UsageError: The existing index has a different model, engine or photo folder.
            StorageError: The index cannot be written.
        """
        if self._replaces_model():
            return self._replace(bar, info)
        photos, model = self._open(progress, info)
        with bar("comparing", len(self.scan.photos)) as advance:
            plan = self._plan(photos, advance)
        plan.check_deletions(
            allow_empty=self.options.allow_empty, allow_deletions=self.options.allow_deletions
        )
        model = model_for(plan, model, device=self.options.device, info=info)
        with bar("encoding", len(plan.encode)) as advance:
            return photos.apply(plan, model, progress=advance)

    def _plan(self, photos: PhotoIndex, progress: Progress | None = None) -> SyncPlan:
        checksum = self.options.checksum
        return photos.plan(self.scan, whole=self.home, checksum=checksum, progress=progress)

    def _open(self, progress: bool, info: Info) -> tuple[PhotoIndex, HashModel]:
        options, own = self.options, self._needs_own_model()
        if own and options.bits is not None:
            raise UsageError(
                f"bits must not be set without a trained run, got {options.bits}. "
                "Give one: hadahash index build RUN PHOTOS --bits ..."
            )
        if own:
            model, run = self._fit(progress, info), MODEL
        else:
            model, run = self._load()
        photos = PhotoIndex.open_or_create(
            self.out,
            model,
            run,
            self.home,
            engine=options.engine,
            moved=options.moved,
            **options.settings,
        )
        if own:
            model.save(self.out / MODEL)
        return photos, model

    def _needs_own_model(self) -> bool:
        """Whether a model is to be fitted; an index that was begun without one is removed."""
        if self.run is not None:
            return False
        if recorded_meta(self.out).get("run") == MODEL and not (self.out / MODEL).exists():
            self._remove_begun()
        return not (self.out / MANIFEST).exists()

    def _remove_begun(self) -> None:
        if len(PhotoIndex.open(self.out).index):
            raise UsageError(
                f"The model of {self.out} is missing: {self.out / MODEL}. Restore it, or build "
                "another index."
            )
        for name in (CATALOG, SKIPPED, MANIFEST):  # files of the user are left
            (self.out / name).unlink(missing_ok=True)

    def _fit(self, progress: bool, info: Info) -> HashModel:
        device = self.options.device
        return fit_ready_model(self.scan, device=device, progress=progress, info=info)

    def _load(self) -> tuple[HashModel, str]:
        from ..model import HashModel

        device = self.options.device
        if self.run is not None:
            model, run = HashModel.load(self.run, device=device), str(self.run)
        else:
            index = PhotoIndex.open(self.out).index
            model, run = load_model_of(index, self.out, device=device), str(index.meta["run"])
        return shorten_for(model, self.out, self.options.bits), run

    def _replaces_model(self) -> bool:
        """Whether a trained model takes the place of the index's own, label-free one."""
        meta = recorded_meta(self.out)
        return self.run is not None and meta.get("run") == MODEL

    def _replace(self, bar: Bar, info: Info) -> SyncSummary:
        """Take over renamed and deleted files, upgrade to the trained model, then add new files."""
        from .upgrade import UpgradeOptions, upgrade

        photos, options = PhotoIndex.open(self.out), self.options
        if photos.home != home_path(self.home) and not options.moved:
            raise UsageError(f"{self.out} is an index of {photos.home}, got {self.source}.")
        with bar("comparing", len(self.scan.photos)) as advance:
            plan = self._plan(photos, advance)
        plan.check_deletions(
            allow_empty=options.allow_empty, allow_deletions=options.allow_deletions
        )
        old = load_model_of(photos.index, self.out, device=options.device)
        before = photos.apply(replace(plan, encode=[]), old)
        info(f"{self.out}: encoding again with the model of {self.run}.")
        chosen = UpgradeOptions(
            bits=options.bits,
            engine=options.engine,
            settings=options.settings,
            device=options.device,
        )
        done = upgrade(self.out, str(self.run), options=chosen, bar=bar, info=info)
        rest = replace(self, options=replace(options, engine=None, settings={}))
        summary = rest.apply(bar=bar, info=info)
        return replace(
            summary,
            encoded=summary.encoded + done.encoded,
            unchanged=0,
            removed=summary.removed + before.removed,
        )


def build_or_update(
    source: str | Path,
    out: str | Path | None = None,
    *,
    run: str | Path | None = None,
    options: BuildOptions | None = None,
    bar: Bar = _no_bar,
    progress: bool = False,
    info: Info = lambda text: None,
) -> Path:
    """Build an index of photos, with or without a trained model, or bring it up to date.

    Args:
        source: A folder, a table, or the name of a data set.
        out: The folder of the index; by default NAME.index beside the folder.
        run: Folder of a run (`hadahash train` or `Hasher.save`); None: no trained model is needed.
        options: The options.
        bar: Makes the progress bars of searching, comparing and encoding; called with a title and
            the number of photos, None while it is not known.
        progress: Show a progress bar on stderr while a model is fitted.
        info: Receives messages for the user.

    Returns:
        The folder of the index.

    Raises:
        DataError: There are no photos, or most indexed photos are missing.
        StorageError: The index cannot be written.
    """
    if out is None:
        place = home_path(source)
        name = f"{place.name}.index"
        out = place.with_name(name) if place.is_absolute() else Path(name)
    summary = Build.prepare(source, out, run=run, options=options, bar=bar).apply(
        bar=bar, progress=progress, info=info
    )
    info(f"{out}: {summary}")
    return Path(out)
