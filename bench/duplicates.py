"""Duplicates among altered copies: precision, recall and time, compared with imagededup.

    python bench/duplicates.py RUN PHOTOS --imagededup PYTHON

PHOTOS is a folder of photos that RUN was not trained on. Some of them get one copy per alteration
(bench/altered_copies.py), others none. A pair of files is a true duplicate if both show the same
photo. RUN is a trained run with content bits. PYTHON is an interpreter in which imagededup and
hadahash can be imported; without it, only hadahash is measured.

Precision is the fraction of the found pairs that are true. Recall is given for each alteration: the
fraction of originals whose copy is found. The time of encoding includes reading the files.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import common
import numpy as np
from altered_copies import ALTERATIONS, write_copies

import hadahash as hh
from hadahash.data.appearance import appearance_bits
from hadahash.data.images import open_reduced
from hadahash.index.duplicates import find_duplicates

THRESHOLDS = (0, 4, 8, 12, 16, 20, 24, 28, 32)  # of 128 content bits
TOGETHER = (26, 28, 30, 32, 34, 36, 40)  # of 128 content bits and 64 bits of looks
HASH_THRESHOLDS = (0, 2, 4, 6, 8, 10, 12, 14, 16)  # of 64 bits; imagededup's default is 10
SIMILARITIES = (0.98, 0.95, 0.92, 0.9, 0.88, 0.85)  # imagededup's default is 0.9

Pair = tuple[str, str, float]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    options = parse(arguments)
    os.environ["HADAHASH_FEATURE_CACHE"] = "off"  # each way encodes the files
    photos = sorted(path for path in options.photos.rglob("*") if path.suffix.lower() == ".jpg")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "set"
        write_copies(
            photos, folder, originals=options.originals, others=options.others, seed=options.seed
        )
        result = common.begin(options)
        result["set"] = describe(folder, options)
        result["methods"] = ours(options.run, folder)
        if options.imagededup:
            result["methods"] |= theirs(options.imagededup, folder, result)
    common.finish(result, options)


def parse(arguments: Sequence[str] | None) -> Any:
    """The command line."""
    parser = common.make_parser("duplicates", __doc__)
    parser.add_argument("run", type=Path, help="trained run with content bits")
    parser.add_argument("photos", type=Path, help="folder of photos, searched recursively")
    parser.add_argument("--originals", type=int, default=1000, help="photos with altered copies")
    parser.add_argument("--others", type=int, default=1000, help="photos without copies")
    parser.add_argument("--seed", type=int, default=0, help="choice of photos, and crops")
    parser.add_argument("--imagededup", type=common.absolute, help="Python that has imagededup")
    return common.parse(parser, arguments)


def describe(folder: Path, options: Any) -> dict[str, Any]:
    """The set of files."""
    return {
        "files": len(list(folder.iterdir())),
        "originals": options.originals,
        "others": options.others,
        "alterations": list(ALTERATIONS),
        "seed": options.seed,
    }


def ours(run: Path, folder: Path) -> dict[str, Any]:
    """Content bits alone, and with looks: of a trained run, shipped, and fitted on the files."""
    trained = hh.HashModel.load(run)
    found = {"content bits": judge_codes(trained, folder, THRESHOLDS, looks=False)}
    models = {
        "trained on others": trained,
        "lite0": hh.HashModel.pretrained("lite0"),
        "fitted on the files": hh.Hasher("itq", bits=128).fit(folder).model_,
    }
    for name, model in models.items():
        found[f"content bits ({name}) and looks"] = judge_codes(model, folder, TOGETHER, looks=True)
    return found


def judge_codes(
    model: hh.HashModel, folder: Path, thresholds: Sequence[int], *, looks: bool
) -> dict[str, Any]:
    """Figures at several thresholds, and the time of encoding and comparing."""
    started = time.perf_counter()
    codes = model.encode(folder)
    codes = codes.content_codes() if codes.content_bits else codes
    codes = with_looks(codes, folder) if looks else codes
    encoded = time.perf_counter()
    index = hh.Index.build(codes)
    built = time.perf_counter()
    find_duplicates(index, max(thresholds))
    compared = time.perf_counter()
    return {
        "bits": codes.bits,
        "encode_seconds": encoded - started,
        "compare_seconds": compared - built,
        "thresholds": figures(codes, folder, thresholds),
    }


def with_looks(codes: hh.Codes, folder: Path) -> hh.Codes:
    """Codes with the looks of their files, as `hadahash duplicates` compares them."""
    looks = [appearance_bits(open_reduced(folder / str(name), 1)) for name in codes.ids.tolist()]
    packed = np.frombuffer(b"".join(looks), np.uint8).reshape(len(codes), -1)
    return hh.Codes(np.concatenate([codes.packed, packed], axis=1), codes.bits + 64, codes.ids)


def figures(codes: hh.Codes, folder: Path, thresholds: Sequence[int]) -> list[dict[str, Any]]:
    """Precision and recall at several thresholds."""
    near = hh.Index.build(codes).within(codes, max(thresholds))
    pairs = [
        (str(name), str(hit.id), float(hit.distance))
        for row, name in enumerate(codes.ids.tolist())
        for hit in near[row]
        if str(name) < str(hit.id)
    ]
    return [
        {"threshold": each, **measure([pair for pair in pairs if pair[2] <= each], folder)}
        for each in thresholds
    ]


def theirs(python: Path, folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    """The methods of imagededup."""
    script, out = Path(__file__).parent / "imagededup_pairs.py", folder.parent / "pairs.json"
    subprocess.run([str(python), str(script), str(folder), str(out)], check=True)
    answer = json.loads(out.read_text())
    result["versions"]["imagededup"] = answer["version"]
    return {name: judge(name, found, folder) for name, found in answer["methods"].items()}


def judge(name: str, found: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The figures of one method of imagededup at several thresholds."""
    similar = name == "CNN"
    rows = []
    for each in SIMILARITIES if similar else HASH_THRESHOLDS:
        kept = [p for p in found["pairs"] if (p[2] >= each if similar else p[2] <= each)]
        rows.append({"threshold": each, **measure(kept, folder)})
    return {**{k: v for k, v in found.items() if k != "pairs"}, "thresholds": rows}


def measure(pairs: Sequence[Pair], folder: Path) -> dict[str, Any]:
    """Precision of pairs, and recall for each alteration.

    Args:
        pairs: Names of two files and a score.
        folder: The folder of all files.

    Returns:
        The figures.
    """
    found = {frozenset(name.rpartition(".")[0] for name in pair[:2]) for pair in pairs}
    true = sum(len({name.partition("-")[0] for name in pair}) == 1 for pair in found)
    originals = sorted({path.name.partition("-")[0] for path in folder.glob("*-mirror.jpg")})
    recall = {
        kind: float(np.mean([{f"{n}-original", f"{n}-{kind}"} in found for n in originals]))
        for kind in ALTERATIONS
    }
    return {
        "pairs": len(found),
        "false_pairs": len(found) - true,
        "precision": true / len(found) if found else None,
        "recall": recall,
    }


if __name__ == "__main__":
    main()
