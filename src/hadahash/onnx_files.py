"""Export a model for onnxruntime: into its own folder, into a new one, or as a single ONNX file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from . import files
from .errors import UsageError
from .loading import manifest_of
from .model import HashModel
from .model_files import FORMAT, read_model, write_manifest
from .ready_models import ready_folder
from .runtime.export import export_network
from .runtime.files import HEAD, NETWORK, GraphFacts


def export_onnx(model: HashModel, out: Path | None = None) -> tuple[Path, GraphFacts]:
    """Write a model as ONNX graphs.

    Args:
        model: A model that was loaded with torch, on the CPU.
        out: A folder, which then holds a model without weights; a file that ends in .onnx, for
            other programs; None: the folder that the model was loaded from.

    Returns:
        The folder or file, and the facts that were recorded.

    Raises:
        UsageError: There is no folder to write to.
        MissingExtraError: onnx is not installed.
        StorageError: A file cannot be written.
    """
    if out is not None and out.suffix == ".onnx":
        return out, _write_file(model, out)
    folder = model.folder if out is None else out
    if folder is None:
        raise UsageError("This model was not loaded from a folder. Give a folder to write to.")
    if out is not None:
        files.make_folder(folder)
        write_manifest(folder, manifest_of(model))
    elif read_model(folder).format < FORMAT:
        raise UsageError(
            f"{folder} was written by an older version. Give a folder to write to: "
            f"hadahash export {folder} OUT --onnx"
        )
    return folder, _export(model, folder)


def make_ready(out: Path | None = None) -> Path:
    """Export the ready-made model, so that photos can be indexed without torch.

    Args:
        out: The folder; None: where `hadahash.ready_models` looks for it.

    Returns:
        The folder.

    Raises:
        MissingExtraError: torch, onnx or the weights of the backbone are not installed.
    """
    folder = out or ready_folder()
    model = HashModel.pretrained("lite0", device="cpu")
    model.save(folder)
    _export(model, folder, codes=False)
    return folder


def load_for_export(folder: str | Path) -> HashModel:
    """Load a model as `export_onnx` needs it.

    Args:
        folder: The folder of a run or of a model.

    Returns:
        The model, with torch on the CPU.
    """
    return HashModel.load(folder, device="cpu", runtime="torch")


def _export(model: HashModel, folder: Path, *, codes: bool = True) -> GraphFacts:
    return export_network(
        model.network,
        folder,
        preprocess=model.preprocess,
        model_id=model.id,
        weights_sha256=model.weights_sha256,
        fixed_backbone=model.fixed_backbone,
        codes=codes,
    )


def _write_file(model: HashModel, out: Path) -> GraphFacts:
    """Write the graph from pixels to codes, or from embeddings to values, as one file."""
    with tempfile.TemporaryDirectory() as temporary:
        facts = _export(model, Path(temporary))
        graph = facts.graphs.get(NETWORK) or facts.graphs[HEAD]
        files.write_bytes(out, (Path(temporary) / graph.file).read_bytes())
    return facts
