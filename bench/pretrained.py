"""Make the projection that the package ships: ITQ to 128 bits on features of EfficientNet-Lite0.

    python bench/lite0_features.py --data DIR --out FEATURES --train 2000
    python bench/pretrained.py --features FEATURES

It is fitted on as many training images of CIFAR-10, Tiny ImageNet (100 classes) and VOC 2012 each,
mixed. The file holds mean and directions in float16, and says how it was made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from lite0_features import DATA_SETS

from hadahash import environment
from hadahash.methods.itq import rotated_directions
from hadahash.networks.weights import lite_weights
from hadahash.pretrained import FILES

BITS, ITERATIONS, SEED = 128, 50, 0
BACKBONE = "efficientnet_lite0"


def main() -> None:
    """Fit the projection and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=FILES["lite0"])
    options = parser.parse_args()
    parts = {name: train_features(options.features / f"{name}.npz") for name in DATA_SETS}
    features = torch.from_numpy(np.concatenate(list(parts.values())))
    generator = torch.Generator().manual_seed(SEED)
    mean, directions = rotated_directions(features, BITS, ITERATIONS, generator)
    about = {
        "backbone": BACKBONE,
        "backbone_sha256": weights_digest(),
        "bits": BITS,
        "iterations": ITERATIONS,
        "seed": SEED,
        "train_images": len(features),
        "data": {name: facts(part) for name, part in parts.items()},
        "command": shlex.join(["python", "bench/pretrained.py", *sys.argv[1:]]),
        "revision": environment.source_revision(),
        "versions": environment.versions(),
    }
    tensors = {"mean": mean.half(), "directions": directions.half().contiguous()}
    metadata = {"provenance": json.dumps(about, sort_keys=True)}
    safetensors.torch.save_file(tensors, options.out, metadata=metadata)
    print(json.dumps(about, indent=2))
    print(f"{options.out}: {options.out.stat().st_size:,} bytes")


def train_features(path: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The features of the training images of one data set."""
    with np.load(path) as arrays:
        found: np.ndarray[Any, np.dtype[np.float32]] = arrays["features"][arrays["train"]]
        return found


def facts(features: np.ndarray[Any, np.dtype[np.float32]]) -> dict[str, Any]:
    """Number and digest of the features of one data set."""
    digest = hashlib.sha256(np.ascontiguousarray(features).tobytes()).hexdigest()
    return {"images": len(features), "features_sha256": digest}


def weights_digest() -> str:
    """sha256 of the weights of the backbone."""
    digest = hashlib.sha256()
    for name, tensor in sorted(lite_weights(BACKBONE).items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
