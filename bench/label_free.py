"""Codes without labels: mAP and recall of neighbors, beside float features, faiss and labels.

    python bench/lite0_features.py --data DIR --out FEATURES --size 144
    python bench/label_free.py --features FEATURES
    python bench/label_free.py --table

--table prints the table of docs/embeddings.md from the stored result.

All queries and the whole database of the project's splits, as in results/. LSH, ITQ and RaBitQ of
faiss are fitted on the database without labels. HCDH is a linear head that is trained with the
labels of the training images on the same features; results/ has networks trained end to end.
Whatever is random is repeated with --seeds. Features: EfficientNet-Lite0, 1,280 floats.

mAP is over the whole database, and over the first 1,000 of Tiny-ImageNet-100 as in results/. Recall
is the fraction of the 10 nearest images by cosine of the float features that are among the first
10. With Hamming distance all are expectations over ties; other scores hardly ever tie. RaBitQ has
one bit for each dimension, so the features are first reduced to as many dimensions by PCA, and
rotated at random; it stores 8 bytes more for each image, and compares them with queries of full
precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
DEPTH = 1000  # of Tiny-ImageNet-100 in results/
BLOCK = 250  # queries that are ranked at once
Floats = NDArray[np.floating[Any]]
Data = dict[str, NDArray[Any]]
Score = Callable[[slice], NDArray[Any]]  # of some queries: their scores (queries, database)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    parser = common.make_parser("label_free", __doc__)
    parser.add_argument("--features", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", default=list(DATA_SETS), choices=DATA_SETS)
    options = common.parse(parser, arguments)
    if options.table:
        print("\n".join(table(files.read_json(options.out))))
        return
    import faiss

    result = common.begin(options, versions={"faiss": faiss.__version__})
    before = files.read_json(options.out)["cases"] if options.out.exists() else []
    cases = {case["data"]: case for case in before if case["data"] not in options.only}
    for name in options.only:
        data = dict(np.load(options.features / f"{name}.npz"))
        cases[name] = {"data": name, **measure(data, options), "stored": stored(name)}
    result["cases"] = [cases[name] for name in DATA_SETS if name in cases]
    common.finish(result, options)


def measure(data: Data, options: Any) -> dict[str, Any]:
    """All ways on one data set."""
    query, database, train = (data["features"][data[part]] for part in PARTS)
    labels = {part: data["labels"][data[part]] for part in PARTS}
    exact = floats(query, database)
    nearest = np.concatenate([first(exact(part)) for part in blocks(len(query))])
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for way, bits, score in ways(query, database, train, labels["train"], options):
        figures = judge(score, labels["query"], labels["database"], nearest)
        found.setdefault((way, bits), []).append(figures)
        print(way, bits, figures, flush=True)
    rows = [{"way": way, "bits": bits, **spread(runs)} for (way, bits), runs in found.items()]
    return {"queries": len(query), "database": len(database), "train": len(train), "rows": rows}


PARTS = ("query", "database", "train")


def spread(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Mean, least and greatest value of each figure over the seeds."""
    found: dict[str, Any] = {"seeds": len(runs)}
    for name in runs[0]:
        values = [run[name] for run in runs]
        found[name] = float(np.mean(values))
        found[f"{name}_range"] = [min(values), max(values)]
    return found


def ways(
    query: Floats, database: Floats, train: Floats, labels: NDArray[Any], options: Any
) -> Iterator[tuple[str, int, Score]]:
    """Name, bits and ranking of each way."""
    yield "float features, cosine", 32 * query.shape[1], floats(query, database)
    yield from both("lite0 of the package", Projection(), query, database)
    for bits in options.bits:
        for seed in options.seeds:
            for method in ("lsh", "itq"):
                hasher = hh.Hasher(method, bits=bits, seed=seed, device="cpu").fit(database)
                yield from both(method, hasher.model_, query, database)
            yield "faiss RaBitQ", bits, rabitq(query, database, bits, seed)
    for seed in options.seeds:
        hasher = hh.Hasher("hcdh", bits=64, content_bits=0, seed=seed, device="cpu")
        model = hasher.fit(train, labels).model_
        yield next(both("hcdh head", model, query, database))


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


def both(
    name: str, model: Any, query: Floats, database: Floats
) -> Iterator[tuple[str, int, Score]]:
    """Ranking by Hamming distance, and by the real values of the query."""
    values = np.asarray(model.values(query).values)
    signs = np.where(np.asarray(model.values(database).values) >= 0, 1, -1).astype(np.float32).T
    bits = len(signs)
    codes = np.where(values >= 0, 1, -1).astype(np.float32)
    yield f"{name}, Hamming", bits, lambda part: (codes[part] @ signs).astype(np.int16)
    yield f"{name}, real-valued query", bits, lambda part: values[part] @ signs


def first(scores: Floats) -> NDArray[np.int64]:
    """The K items with the highest scores, in any order."""
    return np.argpartition(scores, -K, axis=1)[:, -K:]


def floats(query: Floats, database: Floats) -> Score:
    """Ranking by cosine."""
    columns, rows = normalized(database).T, normalized(query)
    return lambda part: rows[part] @ columns


def normalized(features: Floats) -> Floats:
    """Rows of length 1."""
    return features / np.linalg.norm(features, axis=1, keepdims=True)


def rabitq(query: Floats, database: Floats, bits: int, seed: int) -> Score:
    """Ranking by the distances that RaBitQ estimates."""
    import faiss

    code = faiss.IndexRaBitQ(bits, faiss.METRIC_L2)
    code.qb = 0
    rotation = faiss.RandomRotationMatrix(bits, bits)
    rotation.init(seed)
    index = faiss.IndexPreTransform(rotation, code)
    reduction = faiss.PCAMatrix(query.shape[1], bits)
    index.prepend_transform(reduction)
    rows, items = (np.ascontiguousarray(normalized(x), np.float32) for x in (query, database))
    index.train(items)
    index.add(items)
    center = faiss.vector_to_array(code.center)
    items, projected = (rotation.apply(reduction.apply(x)) - center for x in (items, rows))
    squares = (items**2).sum(1)
    signs = (np.where(items > 0, 2, -2) * (squares / np.abs(items).sum(1))[:, None]).T

    signs = signs.astype(np.float32)
    check_rabitq(index, rows[:20], projected[:20], projected[:20] @ signs - squares)
    return lambda part: projected[part] @ signs - squares


def check_rabitq(index: Any, rows: Floats, projected: Floats, scores: Floats) -> None:
    """Check that our formula gives the distances of faiss, which sorts a whole database slowly."""
    expected, _ = index.search(rows, 100)
    got = (projected**2).sum(1)[:, None] + np.sort(-scores, axis=1)[:, :100]
    got = np.maximum(got, 0)  # as faiss does
    if not np.allclose(got, expected, atol=1e-3):
        raise SystemExit(f"The distances differ from those of faiss by {abs(got - expected).max()}")


def blocks(count: int) -> Iterator[slice]:
    """The queries in parts."""
    return (slice(start, start + BLOCK) for start in range(0, count, BLOCK))


def judge(
    score: Score, query: NDArray[Any], database: NDArray[Any], nearest: NDArray[np.int64]
) -> dict[str, float]:
    """mAP over all and over the first 1,000, and recall of the nearest."""
    found = []
    for part in blocks(len(query)):
        scores, marks = score(part), share_a_label(query[part], database)
        by_kind = by_counts if scores.dtype.kind == "i" else by_order
        found.append(by_kind(scores, marks, nearest[part]))
    means = np.nan_to_num(np.concatenate(found, axis=1)).mean(axis=1)
    return dict(zip(("map", "map_1000", "recall"), means.tolist(), strict=True))


def by_counts(
    scores: NDArray[np.int16], marks: NDArray[np.bool_], nearest: NDArray[np.int64]
) -> Floats:
    """The three figures (3, queries) of Hamming distances, expected over ties."""
    bits = int(scores.max() - scores.min())
    levels = scores.max() - scores
    total = np.stack([np.bincount(row, minlength=bits + 1) for row in levels])
    pairs = zip(levels, marks, strict=True)
    hits = np.stack([np.bincount(row[mark], minlength=bits + 1) for row, mark in pairs])
    maps = [metrics.average_precision(total, hits, depth=depth) for depth in (None, DEPTH)]
    ends = np.cumsum(total, axis=1)
    last = (ends < K).sum(axis=1)[:, None]  # the level that has the K-th
    start = np.take_along_axis(ends - total, last, axis=1)
    share = (K - start) / np.take_along_axis(total, last, axis=1)
    wanted = np.take_along_axis(levels, nearest, axis=1)
    return np.stack([*maps, ((wanted < last) + share * (wanted == last)).mean(axis=1)])


def by_order(scores: Floats, marks: NDArray[np.bool_], nearest: NDArray[np.int64]) -> Floats:
    """The three figures (3, queries) of real scores.

    Sorting 32-bit numbers is ten times faster than finding an order. So the last bit of a score
    becomes the mark of its item, and four bits before it are random, which breaks ties.
    """
    keys = np.ascontiguousarray(scores, np.float32).view(np.int32)
    keys = keys ^ ((keys >> 31) & 0x7FFFFFFF)  # in the order of the floats
    random = np.random.default_rng(0).integers(0, 16, keys.shape[1], dtype=np.int32)
    keys = (keys & ~31) | (random << 1) | marks
    wanted = np.take_along_axis(keys, nearest, axis=1)
    keys.sort(axis=1)
    recall = (wanted >= keys[:, [-K]]).mean(axis=1)
    maps = np.array([average_precision(row) for row in keys[:, ::-1] & 1]).T
    return np.stack([*maps, recall])


def average_precision(marks: NDArray[Any]) -> list[float]:
    """Average precision over all and over the first 1,000."""
    ranks = np.flatnonzero(marks) + 1
    precisions = np.arange(1, len(ranks) + 1) / ranks
    parts = (precisions, precisions[ranks <= DEPTH])
    return [float(part.mean()) if len(part) else 0.0 for part in parts]


def share_a_label(query: NDArray[Any], database: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each query and each image of the database share a label."""
    if query.ndim == 1:
        return np.asarray(query[:, None] == database[None, :])
    return np.asarray(query.astype(np.float32) @ database.T.astype(np.float32) > 0)


def stored(name: str) -> dict[str, Any]:
    """mAP of 64 bits in results/, over the same queries and database."""
    found = {}
    for method in ("lsh", "itq", "hcdh"):
        path = common.ROOT / "results" / name / f"{method}-64-efficientnet_lite0-s0-128px.json"
        if path.exists():
            result = files.read_json(path)
            facts = {key: result[key] for key in ("map", "depth", "queries", "database")}
            found[method] = {"file": path.relative_to(common.ROOT).as_posix(), **facts}
    return found


def table(result: dict[str, Any]) -> list[str]:
    """The table of docs/embeddings.md: mAP and recall of each way on each data set."""
    cases = result["cases"]
    titles = [
        f"{NAMES[case['data']]} ({case['queries']:,} / {case['database']:,})" for case in cases
    ]
    lines = [f"| way | bits | {' | '.join(titles)} |", "|---|---|" + "---|" * len(cases)]
    ways = list(dict.fromkeys((r["way"], r["bits"]) for case in cases for r in case["rows"]))
    for way, bits in sorted(ways, key=lambda each: (each[1] > K**4 and -1, each[1])):
        cells = [cell(case, way, bits) for case in cases]
        lines.append(f"| {way} | {bits:,} | {' | '.join(cells)} |")
    for method in ("itq", "hcdh"):
        cells = [stored_cell(case["stored"].get(method)) for case in cases]
        lines.append(f"| {method} of results/, Hamming, one seed | 64 | {' | '.join(cells)} |")
    return lines


NAMES = {"cifar10": "CIFAR-10", "tinyimagenet100": "Tiny-ImageNet-100", "voc2012": "VOC 2012"}


def cell(case: dict[str, Any], way: str, bits: int) -> str:
    """mAP and recall; with half the range over the seeds, if there are several."""
    found = [row for row in case["rows"] if (row["way"], row["bits"]) == (way, bits)]
    if not found:
        return "-"
    names = ["map", *(["map_1000"] if case["data"] == "tinyimagenet100" else []), "recall"]
    return " / ".join(figure(found[0], name) for name in names)


def figure(row: dict[str, Any], name: str) -> str:
    """A figure without its leading zero, and half its range over the seeds."""
    text = f"{row[name]:.3f}".lstrip("0")
    if row["seeds"] == 1:
        return text
    low, high = row[f"{name}_range"]
    return f"{text} ± {(high - low) / 2:.3f}".replace("± 0", "± ")


def stored_cell(found: dict[str, Any] | None) -> str:
    """mAP of results/, with its depth."""
    if found is None:
        return "-"
    depth = f" @{found['depth']:,}" if found["depth"] else ""
    return f"{found['map']:.3f}".lstrip("0") + depth


if __name__ == "__main__":
    main()
