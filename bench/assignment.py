"""Which class gets which codeword: HCDH on fixed features, with several codebooks of one length.

    python bench/assignment.py --data-root data/cifar10 --out results/assignment.json

Features of the training images of one split are computed once. A fifth of these images searches
the others, on which a head is trained; no query and no image of the database is used. Codebooks:
`paper`, `far` and `nested` as designed, and `far` and `nested` with similar classes on near
codewords (semantic) or on distant ones (opposite).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import common
import numpy as np
import torch
from numpy.typing import NDArray

import hadahash as hh
from hadahash.building import initial_backbone, make_config
from hadahash.codebooks import assign_codewords, class_similarity, codebook
from hadahash.codebooks.assignment import assignment_cost
from hadahash.data import find_dataset, make_split, open_dataset, validation_split
from hadahash.data.preprocess import choose_preprocess
from hadahash.encoding import Encoder
from hadahash.methods import METHODS, Task
from hadahash.networks.hash_network import HashNetwork
from hadahash.training import Log, TrainingSet, train

SETTINGS = {"lr": 1.0, "lam": 0.1, "epochs": 18, "ema": 0.99, "size": 128, "encode_size": 144}
SEED = 60  # of the split


def main(arguments: Sequence[str] | None = None) -> None:
    """Train a head for every codebook and seed, and write the mAP of each as JSON."""
    parser = common.make_parser("assignment", __doc__)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data-root", help="folder of the data set")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--bits", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=6)
    options = common.parse(parser, arguments)
    result = common.begin(options) | {"settings": SETTINGS, "runs": []}
    parts = _Parts(options.dataset, options.data_root, options.weights)
    for seed in range(options.seeds):
        for name, words in _codebooks(parts.similarity, options.bits, seed):
            found = {"codebook": name, "seed": seed, **parts.measure(words, seed)}
            print(found, flush=True)
            result["runs"].append(found)
    common.finish(result, options)


def _codebooks(
    similarity: NDArray[np.float64], bits: int, seed: int
) -> Iterator[tuple[str, NDArray[np.int8]]]:
    for design in ("paper", "far", "nested"):
        words = codebook(len(similarity), bits, design=design, seed=seed)
        yield design, words
        if design != "paper":  # all of its distances are equal
            yield f"{design}, semantic", words[assign_codewords(similarity, words)]
            yield f"{design}, opposite", words[assign_codewords(-similarity, words)]


class _Parts:
    """Features and labels of the images that are trained on, and of those that search."""

    def __init__(self, dataset: str, root: str | None, weights: str) -> None:
        data = open_dataset(dataset, root)
        split = make_split(data, find_dataset(dataset).protocol, seed=SEED)
        trained, held = validation_split(split.train, data.labels, fraction=0.2, seed=SEED)
        self.config = make_config("hcdh-far", weights=weights, settings=SETTINGS)
        self.backbone = initial_backbone(self.config)
        self.preprocess = choose_preprocess(data.images, self.backbone.size, self.config.input)
        own, others = data.take(trained), data.take(held)
        encoder = Encoder(
            HashNetwork(self.backbone, torch.nn.Identity(), 1).eval(), self.preprocess
        )
        self.features = torch.from_numpy(encoder.features(own.images).values)
        self.queries = torch.from_numpy(encoder.features(others.images).values)
        self.labels, self.query_labels = own.labels, others.labels
        targets = own.labels.targets(np.arange(len(own)))
        self.similarity = class_similarity(self.features.numpy(), targets.numpy())

    def measure(self, words: NDArray[np.int8], seed: int) -> dict[str, Any]:
        """Train a head on these codewords; mAP by Hamming distance, and the cost of the words."""
        classes, bits = words.shape
        task = Task(bits, classes, self.features.shape[1], self.labels.multilabel, seed=seed)
        torch.manual_seed(seed)
        method = METHODS.get("hcdh-far").create(task, self.config.method_settings)
        method.codebook.copy_(torch.from_numpy(words))
        network = HashNetwork(self.backbone, method, bits)
        augment, preprocess = self.config.augment, self.preprocess
        data = TrainingSet(self.features, self.labels)
        with Log(None, progress=False) as log:
            train(
                network,
                data,
                self.config.train,
                augmentation=augment,
                preprocess=preprocess,
                seed=seed,
                log=log,
            )
        with torch.no_grad():
            query, database = (network.values(own) >= 0 for own in (self.queries, self.features))
        labels = self.query_labels.array, self.labels.array
        report = hh.evaluate(query.numpy(), labels[0], database.numpy(), labels[1])
        distances = (bits - words.astype(int) @ words.T)[np.triu_indices(classes, 1)] // 2
        values, counts = np.unique(distances, return_counts=True)
        return {
            "map": round(report.map, 5),
            "cost": round(assignment_cost(self.similarity, words), 5),
            "distances": {int(d): int(n) for d, n in zip(values, counts, strict=True)},
        }


if __name__ == "__main__":
    main()
