"""Faster ways to train on a GPU, and what they cost in mAP on held-out training images.

    python bench/gpu_variants.py --data-root DATA --weights lite0.pth --revision COMMIT

A variant is NORMS:BATCH:LR. NORMS is `batch` (batch norms use the statistics of the batch, as all
training of this project) or `fixed` (they keep those of the pretrained network). Cells of CIFAR-10
are trained as trials are: 4,000 training images, the other 1,000 search them. The first fit of a
shape compiles; rates do not include that. The result is written after each fit.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from hadahash import files
from hadahash.reproduce.cells import RunContext
from hadahash.reproduce.measures import measure
from hadahash.reproduce.provenance import source_revision
from hadahash.reproduce.recipes import Cell
from hadahash.reproduce.trainer import Trainer

METHOD, BITS, BACKBONE, SHARE = "hcdh-far", 64, "efficientnet_lite0", 0.2
VARIANTS = "batch:128:0.1,fixed:128:0.1,batch:256:0.2,fixed:256:0.2,batch:256:0.1,fixed:128:0.05"
SETTINGS = {"ema": 0.99, "size": 128, "encode_size": 144, "compile": True, "lam": 1.0, "epochs": 18}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train all variants with all seeds and write the result as JSON."""
    options = parse(arguments)
    result = common.begin(options)
    result["hardware"] += f", {torch.cuda.get_device_name()}"
    result["revision"] = options.revision or result["revision"]
    result |= {"method": METHOD, "bits": BITS, "backbone": BACKBONE, "settings": SETTINGS}
    result["fits"] = []
    with tempfile.TemporaryDirectory() as folder:
        roots = {"cifar10": str(options.data_root)}
        context = RunContext(Path(folder), Path(folder), roots, options.weights, "cuda")
        trainer = Trainer(context, source_revision(options.revision))
        for variant in options.variants.split(","):
            torch._dynamo.reset()
            for seed in map(int, options.seeds.split(",")):
                result["fits"].append(fit(trainer, variant, seed))
                files.write_json(options.out, result)
    common.finish(result, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = common.make_parser("gpu_variants", __doc__)
    parser.add_argument("--data-root", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--weights", default="imagenet", help="imagenet, or a file")
    parser.add_argument("--revision", help="commit of the source code, for machines without git")
    parser.add_argument("--variants", default=VARIANTS, help="NORMS:BATCH:LR, with commas")
    parser.add_argument("--seeds", default="36,37,38", help="with commas")
    return common.parse(parser, arguments)


def fit(trainer: Trainer, variant: str, seed: int) -> dict[str, Any]:
    """Train one variant and measure it on held-out training images."""
    norms, batch, lr = variant.split(":")
    settings = {**SETTINGS, "batch_size": int(batch), "lr": float(lr)}
    cell = Cell(
        "cifar10", METHOD, BITS, BACKBONE, seed, "cifar10", settings=settings, validation=SHARE
    )
    with fixed_norms(norms == "fixed"):
        record, coded = trainer.run(cell)
    found = {"norms": norms, "batch": int(batch), "lr": float(lr), "seed": seed}
    if coded is None:
        return found | {"failed": record.get("failed") or record.get("diverged")}
    return found | {
        "validation_map": measure(coded)["validation_map"],
        "images_per_second": record["images_per_second"],
    }


@contextmanager
def fixed_norms(fixed: bool) -> Iterator[None]:
    """Let batch norms keep their statistics in training, if `fixed`."""

    def stay(norm: nn.Module, mode: bool = True) -> nn.Module:
        return nn.Module.train(norm, mode=False)

    if fixed:
        _BatchNorm.train = stay  # type: ignore[method-assign]
    try:
        yield
    finally:
        if fixed:
            del _BatchNorm.train


if __name__ == "__main__":
    main()
