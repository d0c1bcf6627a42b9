"""`hadahash export`: write a model for onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ..errors import UsageError
from . import options, output

Run = Annotated[
    str, typer.Argument(help="Folder of a run or of a model; lite0: the ready-made model.")
]
Out = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Argument(
        help="Folder to write, without weights; or a file that ends in .onnx. "
        "Default: into RUN. For lite0 always a folder."
    ),
]


def export(
    run: Run,
    out: Out = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write ONNX graphs.")] = False,
    json: options.Json = False,
) -> None:
    """Write a model as ONNX, to be run without torch.

    The graph takes squares of pixels and gives features, values and packed codes. encode, index,
    search, serve, evaluate and duplicates run it with: pip install 'hadahash[onnx]'.

    Example: hadahash export runs/photos --onnx
    """
    if not onnx:
        raise UsageError("Give the format: hadahash export RUN --onnx")
    from dataclasses import asdict

    from ..onnx_files import export_onnx, load_for_export, make_ready
    from ..runtime.files import read_facts

    if run == "lite0" and not Path(run).exists():
        place = make_ready(out)
        facts = read_facts(place)
    else:
        place, facts = export_onnx(load_for_export(run), out)
    if facts is None:
        raise UsageError(f"{place} has no graphs.")
    if json:
        output.as_json({"path": str(place), **asdict(facts)})
        return
    for name, graph in facts.graphs.items():
        output.result(f"{name:<12}{graph.file}  {', '.join(graph.outputs)}")
    output.result(f"{place}: model {facts.model_id[:12]}, opset {facts.opset}")
