"""The files of a saved model: model.json and model-<digest>.safetensors.

model.json has a checksum of itself and of the weights. Format 3. Format 2 has neither content bits
nor a ranking, and version 0.1 wrote hasher.json (format 1); both are still read. Where the model
was exported, onnx.json and the graphs that it names are beside them; see `hadahash.runtime.files`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import files
from ._version import __version__
from .config import Config
from .errors import HadaHashError, NewerFileError, StorageError
from .runtime.files import FACTS, graph_file_names, is_graph_file

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 3
MANIFEST = "model.json"
CHECKPOINT = "checkpoint.safetensors"  # of a training run that has not finished
_MANIFEST_V1 = "hasher.json"
_WEIGHTS = re.compile(r"model-[0-9a-f]{12}\.safetensors")


class DamagedModelError(StorageError):
    """A file of a saved model is damaged."""


class MissingPluginError(StorageError):
    """The file or module that defines the method of a saved model cannot be loaded."""


@dataclass(frozen=True)
class StoredModel:
    """The content of a saved model.

    Attributes:
        path: The manifest.
        manifest: Its content.
    """

    path: Path
    manifest: dict[str, Any]

    @property
    def weights(self) -> Path:
        """The file of the weights."""
        return self.path.parent / Path(self.manifest["weights_file"]).name

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The weights by name, verified (torch only)."""
        return _read_weights(self.weights, self.manifest["weights_sha256"], self.path)

    @property
    def format(self) -> int:
        """Version of the file format."""
        return int(self.manifest["format"])

    def light_config(self) -> Config:
        """The configuration, where the method itself is not available.

        Raises:
            DamagedModelError: It does not fit this version.
        """
        try:
            return Config.from_stored(self.manifest["config"])
        except (HadaHashError, KeyError, TypeError) as error:
            raise self.damaged(f"it does not match this version: {error}") from error

    def damaged(self, reason: str) -> DamagedModelError:
        """The error for content that cannot be used."""
        return _damaged(self.path, reason)


def write_model(folder: Path, manifest: dict[str, Any], weights: bytes) -> None:
    """Write the weights, then the manifest that names them.

    Weights and graphs of the model that was there before are removed; other files are not touched.

    Args:
        folder: The folder.
        manifest: Facts about the model, with `weights_sha256`.
        weights: Content of the safetensors file.

    Raises:
        StorageError: A file cannot be written.
    """
    old = _current_weights(folder)
    name = weights_name(manifest)
    files.write_bytes(folder / name, weights)
    write_manifest(folder, manifest)
    if old is not None and old.name != name:
        old.unlink(missing_ok=True)
        for graph in graph_file_names(folder):
            (folder / graph).unlink(missing_ok=True)
    (folder / _MANIFEST_V1).unlink(missing_ok=True)


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write model.json.

    Args:
        folder: The folder.
        manifest: Facts about the model, with `weights_sha256`.

    Raises:
        StorageError: The file cannot be written.
    """
    facts = {
        "format": FORMAT,
        "hadahash": __version__,
        **manifest,
        "weights_file": weights_name(manifest),
    }
    files.write_json(folder / MANIFEST, facts | {"sha256": _digest(facts)})


def weights_name(manifest: dict[str, Any]) -> str:
    """The name of the file of the weights."""
    return f"model-{manifest['weights_sha256'][:12]}.safetensors"


def model_file_names(folder: Path) -> list[str]:
    """The names of the files of the saved model in a folder: weights, graphs, then the manifest.

    In this order they can be moved one by one: at any time there is a model that can be loaded.
    """
    weights, manifest = _current_weights(folder), _find_manifest(folder)
    names = [path.name for path in (weights, manifest) if path is not None and path.exists()]
    return [*names[:-1], *graph_file_names(folder), *names[-1:]]


def is_model_file(name: str) -> bool:
    """Return whether a name is one that a file of a saved model can have, without a folder."""
    known = name in (MANIFEST, _MANIFEST_V1, FACTS)
    return known or _WEIGHTS.fullmatch(name) is not None or is_graph_file(name)


def read_model(folder: Path) -> StoredModel:
    """Read and verify the manifest of a saved model; the weights are read on first use.

    Raises:
        StorageError: There is no model, or a file cannot be read.
        DamagedModelError: A checksum does not match, or a file is malformed.
        NewerFileError: A later version wrote it.
    """
    path = _find_manifest(folder)
    if path is None:
        raise StorageError(
            f"{folder} has no trained model ({MANIFEST} is missing). "
            f"Train one with: hadahash train DATA --out {folder}"
        )
    manifest = files.read_json(path)
    try:
        if manifest["format"] > FORMAT:
            raise NewerFileError(
                f"{folder} was written by hadahash {manifest.get('hadahash')}. "
                "Update with: pip install -U hadahash"
            )
        if manifest["format"] >= 2 and _digest(_unsigned(manifest)) != manifest["sha256"]:
            raise _damaged(path, "its checksum does not match")
        _ = Path(manifest["weights_file"]).name, manifest["weights_sha256"]
    except (AttributeError, KeyError, TypeError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    return StoredModel(path, manifest)


def _read_weights(path: Path, digest: str, manifest: Path) -> dict[str, Tensor]:
    import safetensors.torch

    try:
        content = files.require_regular(path).read_bytes()
    except OSError as error:
        raise files.storage_error("read", path, error) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise _damaged(path, f"its checksum differs from {manifest.name}")
    try:
        return safetensors.torch.load(content)
    except safetensors.SafetensorError as error:
        raise _damaged(path, f"no readable tensors: {error}") from error


def _find_manifest(folder: Path) -> Path | None:
    for name in (MANIFEST, _MANIFEST_V1):
        try:
            if (folder / name).exists():
                return folder / name
        except OSError as error:
            raise files.storage_error("read", folder / name, error) from error
    return None


def _current_weights(folder: Path) -> Path | None:
    """The weights file that the manifest names, if its name has the expected form."""
    path = _find_manifest(folder)
    try:
        name = None if path is None else Path(files.read_json(path)["weights_file"]).name
    except (StorageError, KeyError, TypeError):
        return None
    return folder / name if name and _WEIGHTS.fullmatch(name) else None


def _unsigned(manifest: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in manifest.items() if key != "sha256"}


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path, reason: str) -> DamagedModelError:
    return DamagedModelError(f"{path} is damaged ({reason}). Restore it or train again.")
