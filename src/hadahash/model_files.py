"""The files of a saved model: model.json and model-<digest>.safetensors.

model.json has a checksum of itself and of the weights. Format 3. Format 2 has neither content bits
nor a ranking, and version 0.1 wrote hasher.json (format 1); both are still read.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from . import files
from ._version import __version__
from .errors import NewerFileError, StorageError

FORMAT = 3
MANIFEST = "model.json"
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
        tensors: The weights by name.
    """

    path: Path
    manifest: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def format(self) -> int:
        """Version of the file format."""
        return int(self.manifest["format"])

    def damaged(self, reason: str) -> DamagedModelError:
        """The error for content that cannot be used."""
        return _damaged(self.path, reason)


def write_model(folder: Path, manifest: dict[str, Any], weights: bytes) -> None:
    """Write the weights, then the manifest that names them.

    The weights of the model that was there before are removed; other files are not touched.

    Args:
        folder: The folder.
        manifest: Facts about the model, with `weights_sha256`.
        weights: Content of the safetensors file.

    Raises:
        StorageError: A file cannot be written.
    """
    name = f"model-{manifest['weights_sha256'][:12]}.safetensors"
    old = _current_weights(folder)
    files.write_bytes(folder / name, weights)
    facts = {"format": FORMAT, "hadahash": __version__, **manifest, "weights_file": name}
    files.write_json(folder / MANIFEST, facts | {"sha256": _digest(facts)})
    if old is not None and old.name != name:
        old.unlink(missing_ok=True)
    (folder / _MANIFEST_V1).unlink(missing_ok=True)


def model_file_names(folder: Path) -> list[str]:
    """The names of the files of the saved model in a folder: the weights, then the manifest.

    In this order they can be moved one by one: at any time there is a model that can be loaded.
    """
    paths = (_current_weights(folder), _find_manifest(folder))
    return [path.name for path in paths if path is not None]


def read_model(folder: Path) -> StoredModel:
    """Read and verify a saved model.

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
        weights, digest = folder / Path(manifest["weights_file"]).name, manifest["weights_sha256"]
    except (AttributeError, KeyError, TypeError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    return StoredModel(path, manifest, _read_weights(weights, digest, path))


def _read_weights(path: Path, digest: str, manifest: Path) -> dict[str, Tensor]:
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
