"""Models without labels and without torch: the ready-made network, with a projection by ITQ.

The set-up exports the ready-made model once (`hadahash export lite0 --onnx`) into the folder of the
package or, where that cannot be written, into the cache of the user.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from .config import EMBEDDINGS, Config
from .data.base import ImageSource
from .data.embeddings import FIT_ROWS, Embeddings, sample_rows
from .data.preprocess import Preprocess, choose_preprocess
from .encoding import Encoder
from .environment import user_cache
from .errors import DataError, UsageError
from .lazy import is_installed
from .loading import load_model
from .model import HashModel
from .model_files import MANIFEST, read_model
from .native import usable_cores
from .projections import ITQSettings, fit_itq
from .ranking import Ranking
from .runtime.choice import requested, suits_onnx
from .runtime.files import GraphFacts, read_facts
from .runtime.onnx import LinearHead, OnnxNetwork, with_linear_head

BACKBONE = "efficientnet_lite0"
_SIZE = 224  # of its input in pixels
_PACKAGED = Path(__file__).parent / "pretrained" / "lite0.onnx"

Progress = Callable[[int], object]
Floats = NDArray[np.float32]


def without_torch() -> bool:
    """Whether torch is not to be used at all: it is missing, or onnxruntime was asked for."""
    name = requested()
    return name == "onnx" or (name is None and not is_installed("torch"))


def prefers_ready(device: str) -> bool:
    """Whether photos without labels are encoded without torch.

    Args:
        device: "auto", "cpu" or "cuda".

    Returns:
        True without torch, and where onnxruntime is faster and the ready-made model was exported.
    """
    return without_torch() or (suits_onnx(device) and is_ready())


def is_ready() -> bool:
    """Whether the ready-made model was exported."""
    return (ready_folder() / MANIFEST).exists()


def ready_folder() -> Path:
    """The folder of the ready-made model: that of the package, or one in the cache of the user."""
    cached = user_cache() / "models" / "lite0.onnx"
    packaged = (_PACKAGED / MANIFEST).exists() or os.access(_PACKAGED.parent, os.W_OK)
    return cached if (cached / MANIFEST).exists() or not packaged else _PACKAGED


def load_ready(device: str = "auto") -> HashModel:
    """Load the ready-made model without torch.

    Args:
        device: "auto", "cpu" or "cuda".

    Returns:
        The model.

    Raises:
        DataError: The set-up has not exported it.
    """
    folder = ready_folder()
    if not is_ready():
        raise DataError(
            f"The ready-made model is not in {folder}. Where torch is installed, run: "
            "hadahash export lite0 --onnx; then copy the folder that it names"
        )
    return load_model(folder, device, "onnx")


def fit_photos(
    source: ImageSource, *, bits: int, device: str = "auto", progress: Progress | None = None
) -> HashModel:
    """Fit ITQ on the features of photos, without labels and without torch.

    Args:
        source: The photos.
        bits: Code length.
        device: "auto", "cpu" or "cuda".
        progress: Called with the number of photos of each batch.

    Returns:
        The model.

    Raises:
        DataError: Fewer than two photos can be read.
    """
    ready = load_ready(device)
    config = _config(bits, backbone=BACKBONE, weights="imagenet")
    preprocess = choose_preprocess(source.images, _SIZE, config.input)
    found = Encoder(_network(ready, preprocess, device), preprocess).features(
        source.images, progress
    )
    if len(found.values) < 2:
        raise DataError(f"Codes need at least 2 readable photos, got {len(found.values)}.")
    tensors = safetensors.numpy.load_file(read_model(ready.network.folder).weights)
    facts = read_facts(ready.network.folder)
    return _fitted(found.values, tensors, config, preprocess, facts, ready.network.folder, device)


def fit_embeddings(source: ImageSource, *, bits: int, seed: int = 0) -> HashModel:
    """Fit ITQ on embeddings, without labels and without torch.

    Args:
        source: The embeddings.
        bits: Code length.
        seed: Seed of the rows that are fitted on, and of the rotation.

    Returns:
        The model.

    Raises:
        UsageError: There are fewer than two embeddings, or fewer features than bits.
    """
    images = source.images
    if not isinstance(images, Embeddings):
        raise UsageError("Give embeddings: floats (n, d), or a file of them, got images.")
    if len(images) < 2:
        raise UsageError(f"Fitting needs at least 2 embeddings, got n_samples = {len(images)}.")
    rows = sample_rows(len(images), FIT_ROWS, seed)
    sample = source.take(rows).images
    parts = [part.vectors for part in sample.batches(None)]  # type: ignore[attr-defined]
    vectors = np.concatenate(parts).astype(np.float32)
    if bits > vectors.shape[1]:
        raise UsageError(
            f"bits must be <= {vectors.shape[1]} for itq, the number of features, got {bits}. "
            "Use fewer bits."
        )
    config = replace(_config(bits, backbone=EMBEDDINGS, weights="none"), seed=seed)
    return _fitted(vectors, {}, config, Preprocess(), None, Path(), "cpu")


def _config(bits: int, *, backbone: str, weights: str) -> Config:
    return Config.from_flat(
        ITQSettings, {}, method="itq", bits=bits, backbone=backbone, weights=weights
    )


def _network(ready: HashModel, preprocess: Preprocess, device: str) -> OnnxNetwork:
    """The ready-made network with another preprocessing; its own projection is not used."""
    network: OnnxNetwork = ready.network
    return OnnxNetwork(network.folder, network.facts, preprocess, device, network.linear)


def _fitted(
    features: Floats,
    tensors: dict[str, Any],
    config: Config,
    preprocess: Preprocess,
    graphs: GraphFacts | None,
    folder: Path,
    device: str,
) -> HashModel:
    """The model that ITQ gives for features."""
    bits, settings = config.bits, config.method_settings
    start = np.random.default_rng(config.seed).normal(size=(bits, bits))
    fitted = fit_itq(features, bits, settings.itq_iterations, start)
    mean, directions = (np.ascontiguousarray(each, np.float32) for each in fitted)
    head = LinearHead(mean, directions, np.zeros(bits, np.float32))
    parts = {"method.mean": mean, "method.directions": directions, "threshold": head.threshold}
    weights = safetensors.numpy.save({**tensors, **parts})
    digest = hashlib.sha256(weights).hexdigest()
    facts = GraphFacts("", digest, config.backbone, features.shape[1], bits)
    if graphs is not None:
        facts = with_linear_head(graphs, model_id="", weights_sha256=digest, bits=bits)
    ran = config.resolve(
        method_settings=settings,
        trained=False,
        augmented=False,
        size=preprocess.train_size,
        encode_size=preprocess.size,
        side=preprocess.side,
        crop=preprocess.crop,
    )
    hardware = f"CPU {platform.machine()}, {usable_cores()} threads"
    info = {"train_images": len(features), "threshold": "zero", "hardware": hardware}
    network = OnnxNetwork(folder, facts, preprocess, device, head, weights)
    model = HashModel(network, preprocess, (), False, ran, info, ranking=Ranking(None))
    network.facts = replace(facts, model_id=model.id)
    return model
