"""Encoding from pixels in memory: all of it, and its stages alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import common
import numpy as np
import torch
from gpu_plan import BITS, CLASSES, METHOD, Case, Plan, Session, rank_of
from gpu_timing import Run, captured, kernels, seconds_of
from numpy.typing import NDArray
from torch import Tensor

from hadahash.building import build_network, initial_backbone, make_config
from hadahash.data.base import ArrayImages
from hadahash.data.decode import decode
from hadahash.data.preprocess import choose_preprocess
from hadahash.data.views import center_view
from hadahash.model import HashModel
from hadahash.networks.compiling import compile_cached
from hadahash.outputs import Outputs, to_codes
from hadahash.runtime.torch import backbone_kernels

PHOTO = 0.875  # photos are stored larger than the input, and cropped to this part
ROUNDS = 3


def cases(session: Session) -> Iterator[Case]:
    """Each input size with each batch size; the default batches first."""
    for size in session.plan.sizes:
        for place, batch in enumerate(session.plan.encode_batches[size]):
            run = partial(measure, session, size, batch)
            yield Case("encode", name_of(size, batch), rank_of(place), run)


def name_of(size: int, batch: int) -> str:
    """Name of a case."""
    return f"encode {size} px, batch {batch}"


def measure(session: Session, size: int, batch: int, result: dict[str, Any]) -> None:
    """Measure one case."""
    model, pixels = model_of(session, size), pixels_of(session, size)
    default, least = batch == session.plan.encode_batches[size][0], session.plan.stage_seconds
    entry = result.setdefault("encode", {}).setdefault(str(size), {"batches": {}})
    rates, times = whole(session.plan, model, pixels, batch), dict[str, float]()
    entry["batches"][str(batch)] = {
        "images_per_second": median(rates),
        "quartiles": common.quartiles(rates),
        "seconds_per_image": times,
    }
    if default:
        entry |= {"images_per_second": median(rates), "side": model.preprocess.side, "kernels": {}}
    for name, (run, device) in stages(session, model, pixels[:batch]).items():
        times[name] = seconds_of(run, device, least) / batch
    with backbone_context(model):
        for name, run in backbone_runs(session, model, size, batch):
            times[name] = seconds_of(run, session.device, least) / batch
            if default:
                entry["kernels"][name] = kernels(run, session.device)


# ---- The model and its images --------------------------------------------------------------------


def model_of(session: Session, size: int) -> HashModel:
    """A model without content bits that is not trained."""

    def make() -> HashModel:
        config = make_config(
            METHOD,
            bits=BITS,
            backbone=session.plan.backbone,
            weights=session.weights,
            settings={"size": size},
        )
        backbone, side = initial_backbone(config), round(size / PHOTO)
        photo = ArrayImages(np.zeros((1, side, side, 3), np.uint8))
        network = build_network(
            config,
            backbone,
            classes=CLASSES,
            multilabel=False,
            train_images=session.plan.train_images,
            device=session.device,
            create=True,
        )
        names = tuple(str(number) for number in range(CLASSES))
        preprocess = choose_preprocess(photo, backbone.size, config.input)
        precision = "bf16" if session.on_gpu else "fp32"
        return HashModel(network, preprocess, names, False, config, precision=precision)

    model: HashModel = session.once(("model", size), make)
    return model


def pixels_of(session: Session, size: int) -> NDArray[np.uint8]:
    """Random images as large as the squares of the model, in memory."""
    side = model_of(session, size).preprocess.side

    def make() -> NDArray[np.uint8]:
        parts = [
            torch.randint(256, (count, side, side, 3), dtype=torch.uint8, device=session.device)
            .cpu()
            .numpy()
            for count in _parts(session.plan.images)
        ]
        return np.concatenate(parts)

    pixels: NDArray[np.uint8] = session.once(("pixels", size), make)
    return pixels


def _parts(count: int, most: int = 4000) -> list[int]:
    return [min(most, count - start) for start in range(0, count, most)]


# ---- What is timed -------------------------------------------------------------------------------


def whole(plan: Plan, model: HashModel, pixels: NDArray[np.uint8], batch: int) -> list[float]:
    """Images per second of `HashModel.encode` in each round, all images at least once."""
    rates = []
    for number in range(ROUNDS + 1):
        began, count = time.perf_counter(), 0
        given = pixels if number else pixels[: 4 * batch]  # the first round is a warm-up
        while not count or (number and time.perf_counter() - began < plan.seconds):
            count += len(model.encode(given, batch_size=batch))
        rates.append(count / (time.perf_counter() - began))
    return rates[1:]


def stages(
    session: Session, model: HashModel, pixels: NDArray[np.uint8]
) -> dict[str, tuple[Run, torch.device]]:
    """The stages of a batch without the backbone, with what times each."""
    images, cpu = ArrayImages(pixels), torch.device("cpu")
    squares = next(decode(images, model.preprocess, batch_size=len(pixels))).pixels
    on_device = model.runtime.load(squares)
    features = torch.randn(len(pixels), model.runtime.width, device=session.device)
    rows, known = np.arange(len(pixels)), features.cpu().numpy()

    def read() -> object:
        return next(decode(images, model.preprocess, batch_size=len(pixels)))

    def pack() -> object:
        values = model.runtime.head(known, None, scores=False).values
        return to_codes(Outputs(values, rows, []), rows)

    def view() -> Tensor:
        with torch.inference_mode():
            return center_view(on_device, model.preprocess)

    device = session.device
    return {
        "squares": (read, cpu),
        "load": (lambda: model.runtime.load(squares), cpu),
        "view": (view, device),
        "features back": (lambda: features.float().cpu(), device),
        "head and packing": (pack, device),
    }


@contextmanager
def backbone_context(model: HashModel) -> Iterator[None]:
    """As `TorchRuntime` runs the backbone."""
    model.network.eval()
    with torch.inference_mode(), backbone_kernels(model.device, model.precision):
        yield


def backbone_runs(
    session: Session, model: HashModel, size: int, batch: int
) -> Iterator[tuple[str, Run]]:
    """The backbone as encoding runs it; plain, compiled, and compiled in a CUDA graph."""
    view, fused = random_view(session, size, batch), model.runtime.backbones[0]
    yield "backbone", lambda: fused(view)
    yield "plain", lambda: model.network.backbone(view)
    if name_of(size, batch) in session.compiled:
        compiled = compiled_backbone(model)
        yield "compiled", lambda: compiled(view)
        yield "compiled, graph", captured(lambda: compiled(view), session.device)


def random_view(session: Session, size: int, batch: int) -> Tensor:
    """A random batch as `center_view` makes it."""
    return torch.rand(batch, 3, size, size, device=session.device) * 255


def compiled_backbone(model: HashModel) -> Callable[[Tensor], Tensor]:
    """The backbone, compiled as training does it, for a new shape."""
    torch._dynamo.reset()  # a function is compiled for eight shapes at most
    return compile_cached(model.network.backbone)


def compile_once(session: Session, size: int, batch: int) -> None:
    """Compile the backbone for one shape, so that the code is in the cache."""
    model = model_of(session, size)
    with backbone_context(model):
        compiled_backbone(model)(random_view(session, size, batch))
