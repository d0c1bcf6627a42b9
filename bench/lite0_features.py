"""Features of the fixed EfficientNet-Lite0 for three data sets, kept as .npz files.

    python bench/lite0_features.py --data DIR --out FEATURES --size 144

DIR has the folders cifar10, tinyimagenet and voc2012. The images are all those of the project's
splits (seed 0), or as many as --queries, --train and --database name, drawn by seed 0 from each
part. Each file has the arrays features (n, 1280), labels (n,) or (n, C), and the rows of each part.
A file that exists is kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from hadahash.building import initial_backbone, make_config
from hadahash.data import LabelledImages, Split, make_split, open_dataset
from hadahash.data.embeddings import sample_rows
from hadahash.data.preprocess import choose_preprocess
from hadahash.encoding import Encoder
from hadahash.networks.hash_network import HashNetwork

# Data set, its folder, and the protocol of its split.
DATA_SETS = {
    "cifar10": ("cifar10", "cifar10"),
    "tinyimagenet100": ("tinyimagenet", "tinyimagenet100"),
    "voc2012": ("voc2012", "voc2012"),
}
PARTS = ("query", "train", "database")


def main() -> None:
    """Compute and store the features."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--queries", type=int)
    parser.add_argument("--train", type=int)
    parser.add_argument("--database", type=int)
    parser.add_argument("--size", type=int, help="input size in pixels; that of the network")
    parser.add_argument("--only", nargs="+", default=list(DATA_SETS), choices=DATA_SETS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    limits = dict(zip(PARTS, (options.queries, options.train, options.database), strict=True))
    for name in options.only:
        folder, protocol = DATA_SETS[name]
        path = options.out / f"{name}.npz"
        if not path.exists():
            data = open_dataset(name, options.data / folder, download=False)
            rows = draw(make_split(data, protocol, seed=0), limits)
            np.savez(path, **compute(data, rows, options.size))
            print(path, flush=True)


def draw(split: Split, limits: dict[str, int | None]) -> dict[str, NDArray[np.int64]]:
    """Rows of each part, drawn by seed 0."""
    found = {}
    for part, limit in limits.items():
        rows = np.sort(getattr(split, part))
        found[part] = rows if limit is None else rows[sample_rows(len(rows), limit, seed=0)]
    return found


def compute(
    data: LabelledImages, rows: dict[str, NDArray[np.int64]], size: int | None
) -> dict[str, Any]:
    """The arrays of a file: features and labels of all drawn images, and the rows of each part."""
    union = np.unique(np.concatenate(list(rows.values())))
    images = data.take(union)
    config = make_config("lsh", device="cpu", settings={"size": size})
    backbone = initial_backbone(config)
    preprocess = choose_preprocess(images.images, backbone.size, config.input)
    encoder = Encoder(HashNetwork(backbone, nn.Identity(), 1).eval(), preprocess, store=None)
    found = encoder.features(images.images)
    if found.failed:
        raise SystemExit(f"{len(found.failed)} images cannot be read: {found.failed[:3]}")
    places = {part: np.searchsorted(union, part_rows) for part, part_rows in rows.items()}
    return {"features": found.values, "labels": images.labels.array, **places}


if __name__ == "__main__":
    main()
