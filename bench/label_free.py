"""Codes without labels: mAP and recall of neighbors, beside float features and faiss.

    python bench/lite0_features.py --data DIR --out FEATURES
    python bench/label_free.py --features FEATURES

Every way is fitted on the database itself, without labels, and searched with held-out queries.
Features: EfficientNet-Lite0, 1,280 floats. mAP is over the whole database; recall is the fraction
of the 10 nearest images by cosine of the float features that are among the first 10. Both are
expectations over ties. RaBitQ of faiss has one bit for each dimension, so the features are first
reduced to as many dimensions by PCA with a random rotation; it stores 8 bytes more for each image.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
import numpy as np
from lite0_features import DATA_SETS
from numpy.typing import NDArray

import hadahash as hh
from hadahash import files
from hadahash.evaluation import metrics
from hadahash.pretrained import load_pretrained

K = 10
Floats = NDArray[np.floating[Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    parser = common.make_parser("label_free", __doc__)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 128])
    options = common.parse(parser, arguments)
    import faiss

    result = common.begin(options, versions={"faiss": faiss.__version__})
    result["cases"] = []
    for name in DATA_SETS:
        data = dict(np.load(options.features / f"{name}.npz"))
        result["cases"].append({"data": name, **measure(data, options.bits), **stored(name)})
    common.finish(result, options)


def measure(data: dict[str, NDArray[Any]], lengths: Sequence[int]) -> dict[str, Any]:
    """All ways on one data set."""
    query, database = (data["features"][data[part]] for part in ("query", "database"))
    labels = [data["labels"][data[part]] for part in ("query", "database")]
    relevant = share_a_label(*labels)
    itself = data["query"][:, None] == data["database"][None, :]
    exact = np.where(itself, -np.inf, cosine(query, database))
    nearest = np.argsort(-exact, axis=1, kind="stable")[:, :K]
    rows = []
    for way, bits, scores in ways(query, database, lengths):
        scores = np.where(itself, -np.inf, scores)
        rows.append(
            {
                "way": way,
                "bits": bits,
                "map": mean_average_precision(scores, relevant & ~itself),
                "recall": expected_recall(scores, nearest),
            }
        )
    return {"queries": len(query), "database": len(database), "rows": rows}


def ways(query: Floats, database: Floats, lengths: Sequence[int]) -> Any:
    """Name, bits and scores (queries, database) of each way; higher is nearer."""
    yield "float features, cosine", 32 * query.shape[1], cosine(query, database)
    for bits in lengths:
        for method in ("lsh", "itq"):
            hasher = hh.Hasher(method, bits=bits, device="cpu").fit(database)
            yield from both(method, hasher.model_, query, database)
        yield "faiss RaBitQ", bits, rabitq(query, database, bits)
    yield from both("lite0 of the package", Projection(), query, database)


class Projection:
    """The projection that the package ships, on features that are known."""

    def __init__(self) -> None:
        self.network = load_pretrained(device="cpu").network

    def values(self, features: Floats) -> Any:
        """The real values, as a model gives them."""
        import torch

        with torch.inference_mode():
            return Values(self.network.values(torch.from_numpy(features)).numpy())


class Values:
    """Values in the form of `hadahash.outputs.Outputs`."""

    def __init__(self, values: Any) -> None:
        self.values = values


def both(name: str, model: Any, query: Floats, database: Floats) -> Any:
    """Scores by Hamming distance, and by the real values of the query."""
    values = model.values(query).values
    signs = np.where(model.values(database).values >= 0, 1.0, -1.0)
    bits = signs.shape[1]
    yield f"{name}, Hamming", bits, np.where(values >= 0, 1.0, -1.0) @ signs.T
    yield f"{name}, real-valued query", bits, values.astype(np.float64) @ signs.T


def rabitq(query: Floats, database: Floats, bits: int) -> Floats:
    """Negative distances that RaBitQ estimates, with queries of full precision."""
    import faiss

    code = faiss.IndexRaBitQ(bits, faiss.METRIC_L2)
    code.qb = 0
    index = faiss.IndexPreTransform(faiss.PCAMatrix(query.shape[1], bits, 0, True), code)
    unit = [np.ascontiguousarray(normalized(each), np.float32) for each in (query, database)]
    index.train(unit[1])
    index.add(unit[1])
    distances, ids = index.search(unit[0], len(database))
    scores = np.empty_like(distances, np.float64)
    np.put_along_axis(scores, ids, -distances.astype(np.float64), axis=1)
    return scores


def normalized(features: Floats) -> Floats:
    """Rows of length 1."""
    return features / np.linalg.norm(features, axis=1, keepdims=True)


def cosine(query: Floats, database: Floats) -> Floats:
    """Cosine similarities (queries, database)."""
    return normalized(query.astype(np.float64)) @ normalized(database.astype(np.float64)).T


def share_a_label(query: NDArray[Any], database: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each query and each image of the database share a label."""
    if query.ndim == 1:
        return np.asarray(query[:, None] == database[None, :])
    return np.asarray(query.astype(np.int64) @ database.T.astype(np.int64) > 0)


def mean_average_precision(scores: Floats, relevant: NDArray[np.bool_]) -> float:
    """mAP over the whole ranking, expected over ties."""
    found = []
    for row, marks in zip(scores, relevant, strict=True):
        row, marks = row[np.isfinite(row)], marks[np.isfinite(row)]
        _, group = np.unique(-row, return_inverse=True)
        total, hits = np.bincount(group), np.bincount(group, marks).astype(np.int64)
        found.append(float(metrics.average_precision(total[None], hits[None])[0]))
    return float(np.mean(np.nan_to_num(found)))


def expected_recall(scores: Floats, nearest: NDArray[np.int64]) -> float:
    """Share of the nearest images among the first K, expected over ties."""
    found = []
    for row, wanted in zip(scores, nearest, strict=True):
        limit = np.partition(row, -K)[-K]
        sure, tied = row > limit, row == limit
        share = (K - sure.sum()) / tied.sum()
        found.append((sure[wanted] + share * tied[wanted]).sum() / K)
    return float(np.mean(found))


def stored(name: str) -> dict[str, Any]:
    """mAP of codes in results/ at 64 bits, over the whole database of the protocol."""
    found = {}
    for method in ("lsh", "itq", "hcdh"):
        path = common.ROOT / "results" / name / f"{method}-64-efficientnet_lite0-s0-128px.json"
        if path.exists():
            result = files.read_json(path)
            facts = {key: result[key] for key in ("map", "depth", "queries", "database")}
            found[method] = {"file": path.relative_to(common.ROOT).as_posix(), **facts}
    return {"stored": found}


if __name__ == "__main__":
    main()
