"""One GPU: encoding, training, compile time, time to a mAP, and what bounds each.

    python bench/gpu.py --data-root cifar-10-batches-bin --weights lite0.pth --revision COMMIT
    python bench/gpu.py --old old ...                              # also version 0.1
    python bench/gpu.py --resume --cache FOLDER ...                # what an earlier run left out
    python bench/gpu.py --resume --again --parts train,kernels ... # these parts anew
    python bench/gpu.py --device cpu --smoke --out /tmp/gpu.json   # tiny sizes

Parts: `machine` and `work` give the ceilings of the roofline and the work of one image; `encode`
and `train` the images per second and the time of each stage; `kernels` all kernels of a training
step; `compile` the start of training in new processes; `old` encoding, training and compile time of
version 0.1; `map` the training time to 0.785 mAP on CIFAR-10 at 64 bits. The result is written
after each case. Cases come in the order of their importance; those that would end after --seconds
are left out and named; `--resume` with the same --out and --cache measures them. Code is compiled
in parallel processes before the cases that need it. --old is a folder with the sources of version
0.1: `git archive --prefix=old/ e6859f9 src | tar x`; its library need not be built.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import common
import gpu_compile
import gpu_encode
import gpu_kernels
import gpu_map
import gpu_old
import gpu_section
import gpu_train
import gpu_work
import torch
from gpu_plan import PARTS, SMOKE, Case, Plan, Session, usable_weights

from hadahash import files
from hadahash.building import choose_device

PATIENCE = 200.0  # seconds for compiling all shapes of a rank at once
FILL = "fill"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    started = time.monotonic()
    options = parse(arguments)
    result = begin(options)
    plan = SMOKE if options.smoke else Plan()
    with tempfile.TemporaryDirectory() as folder:
        session = Session(
            plan,
            choose_device(options.device),
            usable_weights(options.weights, plan.backbone),
            (options.cache or Path(folder)).resolve(),
            started + options.seconds,
        )
        session.use_cache()
        result |= {"backbone": plan.backbone, "weights": Path(session.weights).name}
        run(session, select(session, options, result), result, options)
    common.finish(result, options)
    print("\n".join(gpu_section.gpu(result)))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = common.make_parser("gpu", __doc__)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts, with commas")
    parser.add_argument("--data-root", type=Path, help="folder of CIFAR-10, for the part map")
    parser.add_argument("--weights", default="imagenet", help="imagenet, none, or a file")
    parser.add_argument("--revision", help="commit of the source code, for machines without git")
    parser.add_argument(
        "--seconds", type=float, default=450.0, help="begin nothing that ends later"
    )
    parser.add_argument("--cache", type=Path, help="folder for compiled code; default: temporary")
    parser.add_argument("--resume", action="store_true", help="measure what --out does not have")
    parser.add_argument("--again", action="store_true", help="with --resume: also what it has")
    parser.add_argument("--old", type=common.absolute, help="sources of version 0.1")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes")
    options = common.parse(parser, arguments)
    options.parts = options.parts.split(",")
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"--parts must be of {', '.join(PARTS)}, got {unknown[0]}")
    if options.old and not (options.old / "src" / "hadahash").is_dir():
        parser.error(f"--old must be a folder with src/hadahash, got {options.old}")
    if options.smoke and common.RESULTS in options.out.resolve().parents:
        parser.error("--smoke needs --out: its numbers mean nothing")
    return options


def begin(options: argparse.Namespace) -> dict[str, Any]:
    """The first part of the result, with what an earlier run measured if it is resumed.

    Raises:
        SystemExit: The earlier run measured another revision or machine.
    """
    result = common.begin(options)
    device = choose_device(options.device)
    if device.type == "cuda":
        result["hardware"] += f", {torch.cuda.get_device_name(device)}"
    result |= {"measured": [], "left_out": [], "failed": {}}
    if options.revision:
        result["revision"] = options.revision
    if not options.resume or not options.out.exists():
        return result
    earlier: dict[str, Any] = files.read_json(options.out)
    for name in ("revision", "hardware"):
        if earlier[name] != result[name]:
            raise SystemExit(
                f"{options.out} has another {name}: {earlier[name]}, now {result[name]}. "
                "Leave out --resume."
            )
    facts = {name: result[name] for name in ("command", "date", "load_before")}
    return earlier | {"left_out": [], "resumed": [*earlier.get("resumed", []), facts]}


def select(session: Session, options: argparse.Namespace, result: dict[str, Any]) -> list[Case]:
    """The cases that are to be measured, the most important first."""
    found = [
        *gpu_work.cases(session),
        *gpu_compile.cases(session),
        *gpu_encode.cases(session),
        *gpu_train.cases(session),
        *gpu_kernels.cases(session),
        *gpu_old.cases(session, options.old),
        *gpu_map.cases(session, options.data_root, options.revision),
    ]
    wanted = [
        case
        for case in found
        if case.part in options.parts and (options.again or case.name not in result["measured"])
    ]
    return sorted(wanted, key=lambda case: case.rank)


def run(
    session: Session, cases: Sequence[Case], result: dict[str, Any], options: argparse.Namespace
) -> None:
    """Run the cases while there is time, and write the result after each of them."""
    longest: dict[str, float] = {}
    for _, group in groupby(cases, key=lambda case: case.rank):
        for case in compiled(session, list(group), result, longest):
            least = case.least if session.on_gpu else 0.0
            if session.left() < max(least, longest.get(case.part, 0.0)):
                result["left_out"].append(case.name)
                continue
            began = time.monotonic()
            done = attempt(case, result)
            took = time.monotonic() - began
            longest[case.part] = max(took, longest.get(case.part, 0.0))
            files.write_json(options.out, result)
            say(f"{case.name}: {'measured' if done else 'failed'} in {took:.0f} s", session)


def compiled(
    session: Session, cases: list[Case], result: dict[str, Any], longest: dict[str, float]
) -> list[Case]:
    """Compile for the cases of one rank; those that need it are left out if there is no time."""
    shapes = gpu_compile.shapes_of(session, cases)
    if not shapes or not session.on_gpu:
        return cases
    if session.left() < longest.get(FILL, 0.0):
        result["left_out"] += list(shapes)
        return [case for case in cases if case.name not in shapes]
    began = time.monotonic()
    gpu_compile.fill_cache(session, shapes, min(PATIENCE, session.left() / 2))
    longest[FILL] = time.monotonic() - began
    say(f"compiled {len(session.compiled)} shapes, the last in {longest[FILL]:.0f} s", session)
    return cases


def attempt(case: Case, result: dict[str, Any]) -> bool:
    """Run a case; an error is recorded, so that the others are measured nevertheless."""
    try:
        case.run(result)
        result["measured"] = [*dict.fromkeys([*result["measured"], case.name])]
        result["failed"].pop(case.name, None)
    except Exception as error:
        traceback.print_exc()
        result["failed"][case.name] = f"{type(error).__name__}: {error}"[:500]
    gc.collect()
    torch.cuda.empty_cache()  # of graphs and activations of this case
    return case.name in result["measured"]


def say(text: str, session: Session) -> None:
    """Show progress."""
    print(f"{text}; {session.left():.0f} s left", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
