"""Which stored figures are older than the code they measure."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from hadahash import files

# What each benchmark measures: files and folders under src/hadahash.
_CODES = ("codes.py", "packing.py", "native")
_GPU = tuple(f"data/{name}.py" for name in ("augment", "decode", "pixel_store", "views"))
_EMBEDDINGS = ("data/embeddings.py", "data/embedding_files.py", "encoding.py", "methods/itq.py")
_DECODING = tuple(
    f"data/{name}.py" for name in ("colors", "decode", "headers", "images", "preprocess", "squares")
)
_TRAINING = ("data", "fitting.py", "methods", "networks", "training")
_RUNTIME = tuple(f"runtime/{name}.py" for name in ("base", "onnx", "torch"))
_INDEX_PARTS = (
    *("api", "checks", "engine", "items", "label_counts", "local", "query", "segments"),
)
_SEARCH = (
    *("index/engines/exact.py", "index/engines/routed.py"),
    *(f"index/{name}.py" for name in _INDEX_PARTS),
)
MEASURED = {
    "allocator": ("building.py", "data/memory.py"),
    "codes": ("codebooks", "packing.py", *_TRAINING),
    "decode": (*_DECODING, "native/resize.c", "native/resize.py", "networks"),
    "duplicates": ("content.py", "data", "encoding.py", "index", "networks", *_CODES),
    "embeddings": ("preparing.py", *_EMBEDDINGS),
    "evaluation": ("evaluation", *_CODES),
    "gpu": (
        *(*_GPU, "encoding.py", "fitting.py", "methods", "networks", "runtime/torch.py"),
        "training",
    ),
    "gpu_variants": (*_GPU, "methods", "networks", "training"),
    "label_free": ("methods/lsh.py", "pretrained", *_EMBEDDINGS),
    "milvus": ("index", *_CODES),
    "overlap": ("data", "encoding.py", "model.py", "networks", "pace.py", "photos", *_RUNTIME),
    "ranking": ("queries.py", "ranking", *_CODES),
    "runtime": (
        *("encoding.py", "model.py", "networks", "onnx_files.py", "ready_models.py", "runtime"),
        *_DECODING,
    ),
    "scale": ("cli/bench_scale.py", "cli/scale_steps.py", "index", "photos", *_TRAINING, *_CODES),
    "search": (*_SEARCH, *_CODES),
    "serve": ("data", "encoding.py", "index", "model.py", "networks", "photos", "serve", *_CODES),
    "serve_blocked": ("index", "model.py", "photos", "runtime", "serve", *_CODES),
    "serve_million": ("data", "index", "model.py", "photos", "runtime", "serve", *_CODES),
    "start": (
        *("__main__.py", "cli", "demo.py", "encoding.py", "evaluation", "index", "model.py"),
        *("photos", "runs", "runtime", *_TRAINING, *_CODES),
    ),
    "trained": (*_SEARCH, *_CODES),
}

# Files beside src/ that a benchmark measures too.
OTHERS = {"runtime": ("pyproject.toml",)}


class HistoryError(Exception):
    """The git history that is needed to compare a revision is not there."""


def find_stale(root: Path) -> dict[str, str]:
    """Stored results whose code has changed since, or whose revision is unknown.

    Args:
        root: Folder of the project, with `bench/results/` and `src/hadahash/`.

    Returns:
        The reason for each stale file, by its path under `root`.

    Raises:
        HistoryError: A revision has to be compared, and there is no git or only a shallow clone.
    """
    found = {}
    for path in sorted((root / "bench" / "results").glob("*.json")):
        reason = why_stale(root, path.stem, files.read_json(path))
        if reason:
            found[path.relative_to(root).as_posix()] = reason
    return found


def why_stale(root: Path, name: str, result: dict[str, Any]) -> str | None:
    """The reason why a result is stale, None if it is not.

    Args:
        root: Folder of the project.
        name: Name of the benchmark.
        result: Its stored result.
    """
    revision = result.get("revision")
    if not revision:
        return "no revision was recorded"
    commit, changes, _ = revision.partition("+")
    if changes:
        return "measured on modified source code"
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        return "the revision is not a git commit"
    if _git(root, "rev-parse", "--verify", "--quiet", "HEAD") != 0:
        raise HistoryError(f"git cannot read the history of {root}.")
    if _git(root, "merge-base", "--is-ancestor", commit, "HEAD") != 0:
        if _shallow(root):
            raise HistoryError("The clone is shallow. Run: git fetch --unshallow")
        return "the revision is not part of the history"
    paths = [f"src/hadahash/{part}" for part in MEASURED[name]]
    paths += OTHERS.get(name, ())
    changed = _git(root, "diff", "--quiet", commit, "--", *paths) != 0
    return "the code it measures has changed since" if changed else None


def _git(root: Path, *arguments: str) -> int:
    return _run(root, *arguments).returncode


def _shallow(root: Path) -> bool:
    return _run(root, "rev-parse", "--is-shallow-repository").stdout.strip() == "true"


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    if not (root / ".git").exists():
        raise HistoryError(f"{root} is not a git checkout.")
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise HistoryError(f"git does not run: {error}") from error
