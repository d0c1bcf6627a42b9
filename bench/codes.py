"""How close the codes of evaluated runs are to their class: a description, not a speed.

    python bench/codes.py runs/cifar10

The database codes of each run are compared with the majority code of each class: the fraction of
images that are nearest to the majority code of their own class, the fraction that equal it, the
mean distance to it, and the smallest distance between the majority codes of two classes. No page
shows the result: it says of which codes the routed engine can skip most, which searches codes that
lie close to codewords (`bench/trained.py` measures its speed), and how far apart methods place the
classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import common
import numpy as np
from numpy.typing import NDArray

from hadahash.codes import Codes, binarize
from hadahash.runs import read_evaluated_run


def main(arguments: Sequence[str] | None = None) -> None:
    """Describe the codes and write the result as JSON."""
    parser = common.make_parser("codes", __doc__)
    parser.add_argument("runs", type=Path, help="folder of evaluated runs of one label per image")
    options = common.parse(parser, arguments)
    result = common.begin(options)
    result["runs"] = {}
    for path in sorted(options.runs.glob("*/run.json")):
        run = read_evaluated_run(path.parent)
        result["runs"][path.parent.name] = figures(run.database, run.database_labels)
    common.finish(result, options)


def figures(codes: Codes, labels: NDArray[np.int64]) -> dict[str, float]:
    """Distances of codes to the majority codes of the classes."""
    signs = codes.signs().astype(np.int64)
    present, own_class = np.unique(labels, return_inverse=True)
    means = np.array([signs[labels == label].mean(0) for label in present])
    majority = np.where(binarize(means), 1, -1)
    distances = (codes.bits - signs @ majority.T) // 2
    own = distances[np.arange(len(labels)), own_class]
    between = ((codes.bits - majority @ majority.T) // 2)[np.triu_indices(len(majority), 1)]
    return {
        "nearest_to_own_class": float((distances.argmin(1) == own_class).mean()),
        "equal_to_own_class": float((own == 0).mean()),
        "mean_distance_to_own_class": float(own.mean()),
        "least_distance_between_classes": int(between.min()),
    }


if __name__ == "__main__":
    main()
