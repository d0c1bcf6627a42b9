"""What identifies a result: source revision, digests of the data and of the weights, effective settings."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..data import LabelledImages
from ..data.base import ArrayImages
from ..hasher import Hasher

_PACKAGE = Path(__file__).parents[1]


def source_revision(revision: str | None = None) -> dict[str, Any]:
    """Return the revision of the running source code.

    Args:
        revision: Commit of the source, for machines without git. A commit that ends in "-dirty" means that the
            source had uncommitted changes. If None, git is asked.

    Returns:
        A dict with `commit` (None if unknown), `clean` (None if unknown) and `source_sha256`, the digest of all
        Python files of the package.
    """
    if revision is None:
        commit, clean = _git_revision()
    else:
        commit, clean = revision.removesuffix("-dirty"), not revision.endswith("-dirty")
    return {"commit": commit, "clean": clean, "source_sha256": source_digest()}


@cache
def source_digest() -> str:
    """sha256 over the names and contents of all Python and C files of the package."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*")):
        if path.suffix in (".py", ".c", ".h", ".toml"):
            digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _git_revision() -> tuple[str | None, bool | None]:
    git = shutil.which("git")
    if git is None:
        return None, None

    def ask(*arguments: str) -> str:
        return subprocess.run(
            [str(git), "-C", str(_PACKAGE), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return ask("rev-parse", "HEAD"), not ask("status", "--porcelain", "--", str(_PACKAGE))
    except (OSError, subprocess.CalledProcessError):
        return None, None


def data_digests(data: LabelledImages) -> dict[str, str | None]:
    """Digests of the decoded pixels, the labels, the class names and the ids of a data set.

    The digest of the pixels is None if the images are not in memory.
    """
    pixels = data.images.pixels if isinstance(data.images, ArrayImages) else None
    return {
        "pixels_sha256": None if pixels is None else _digest(np.ascontiguousarray(pixels)),
        "labels_sha256": _digest(np.ascontiguousarray(data.labels, dtype="<i8")),
        "classes_sha256": hashlib.sha256("\n".join(data.classes).encode()).hexdigest(),
        "ids_sha256": hashlib.sha256("\n".join(map(str, data.ids)).encode()).hexdigest(),
    }


@cache
def weights_digest(weights: str, backbone: str) -> str | None:
    """sha256 of the weights that the backbone starts from; None without a weights file."""
    if weights == "none":
        return None
    if weights != "imagenet":
        return hashlib.sha256(Path(weights).read_bytes()).hexdigest()
    from ..networks import build_backbone

    digest = hashlib.sha256()
    for name, tensor in sorted(build_backbone(backbone).net.state_dict().items()):
        digest.update(name.encode() + np.ascontiguousarray(tensor.numpy()).tobytes())
    return f"state:{digest.hexdigest()}"


def effective_settings(hasher: Hasher) -> dict[str, Any]:
    """All settings as the training used them, e.g. lam = 0 for hcdh-h whatever was asked for."""
    from ..config import split
    from ..data.preprocess import AugmentSettings
    from ..hasher import ModelSettings
    from ..methods import METHODS
    from ..training import TrainSettings

    kinds = TrainSettings, AugmentSettings, ModelSettings, METHODS.get(hasher.method).Settings
    train, augment, model, _ = split(hasher.settings, *kinds)
    own = vars(hasher.network.method.settings)
    if hasher.method == "hcdh-c":  # learns from the classifier alone
        own = {key: None if key.startswith("codebook") else value for key, value in own.items()}
    return {**vars(train), **vars(augment), **vars(model), **own}


def _digest(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(array.data if array.size else b"").hexdigest()
