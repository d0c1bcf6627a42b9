"""What the codes of evaluated runs look like: how many images are nearest to their own class, and how finely they differ.

    python bench/codes.py runs/cifar10 --data cifar10 --data-root DATA

Each run's database codes are compared with the majority code of each class: the share of images nearest to that of their own
class, the share that equal it, their mean distance to it, and the least distance between two classes' majority codes.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadahash import files
from hadahash.codes import Codes, binarize
from hadahash.data import open_dataset


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--data-root")
    parser.add_argument("--out", type=Path, default=Path("bench/results/codes.json"))
    options = parser.parse_args()
    dataset = open_dataset(options.data, options.data_root)
    labels = dict(zip(dataset.ids, dataset.labels.array, strict=True))
    result = {"command": shlex.join(["python", "bench/codes.py", *sys.argv[1:]]), "runs": {}}
    for path in sorted(options.runs.glob("*/codes/database.npz")):
        codes = Codes.load(path)
        result["runs"][path.parent.parent.name] = figures(
            codes, np.array([labels[name] for name in codes.ids])
        )
    files.write_json(options.out, result)
    for name, row in result["runs"].items():
        print(f"{name:<44}" + "  ".join(f"{key} {value:.4g}" for key, value in row.items()))


def figures(codes: Codes, labels: NDArray[np.int64]) -> dict[str, float]:
    signs = codes.signs().astype(np.int64)
    means = np.array([signs[labels == label].mean(0) for label in np.unique(labels)])
    majority = np.where(binarize(means), 1, -1)
    distances = (codes.bits - signs @ majority.T) // 2
    own = distances[np.arange(len(labels)), labels]
    between = ((codes.bits - majority @ majority.T) // 2)[np.triu_indices(len(majority), 1)]
    return {
        "nearest_to_own_class": float((distances.argmin(1) == labels).mean()),
        "equal_to_own_class": float((own == 0).mean()),
        "mean_distance_to_own_class": float(own.mean()),
        "least_distance_between_classes": int(between.min()),
    }


if __name__ == "__main__":
    main()
