"""Pairs that imagededup finds, for bench/duplicates.py; runs where imagededup is installed.

    PYTHON bench/imagededup_pairs.py FOLDER OUT.json

Writes for each of its methods the seconds of encoding and comparing, and all pairs up to a loose
threshold with their scores: distances of the hashes, cosine similarities of the network. The
network is EfficientNet-Lite0 instead of imagededup's MobileNet, so that both sides of the
benchmark see the same features; memory is kept as hadahash keeps it.
"""

import json
import sys
import time
from pathlib import Path

import imagededup
import numpy as np
import torch
from imagededup.methods import CNN, DHash, PHash
from imagededup.utils.models import CustomModel

from hadahash.data.memory import keep_freed_memory
from hadahash.networks.backbones import build_backbone

LOOSEST = {"PHash": 16, "DHash": 16, "CNN": 0.8}


def main() -> None:
    """Run all methods and write the result."""
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    result = {"version": imagededup.__version__, "methods": {}}
    keep_freed_memory()
    for name, method in {"PHash": PHash(), "DHash": DHash(), "CNN": network()}.items():
        started = time.perf_counter()
        encodings = method.encode_images(image_dir=folder)
        encoded = time.perf_counter()
        limit = "min_similarity_threshold" if name == "CNN" else "max_distance_threshold"
        found = method.find_duplicates(
            encoding_map=encodings, scores=True, **{limit: LOOSEST[name]}
        )
        compared = time.perf_counter()
        result["methods"][name] = {
            "encode_seconds": encoded - started,
            "compare_seconds": compared - encoded,
            "pairs": sorted(
                (first, second, float(score))
                for first, others in found.items()
                for second, score in others
                if first < second
            ),
        }
    out.write_text(json.dumps(result))


def network() -> CNN:
    """imagededup's CNN with the features of EfficientNet-Lite0."""
    backbone = build_backbone("efficientnet_lite0", weights="imagenet").eval()

    def transform(image):
        image = image.resize((backbone.size, backbone.size))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float()

    return CNN(model_config=CustomModel("efficientnet_lite0", backbone, transform))


if __name__ == "__main__":
    main()
