"""Options that several commands take, with the same words everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

Method = Annotated[str, typer.Option(help="Hashing method, for example hcdh, hcdh-h, lsh.")]
Bits = Annotated[int, typer.Option(help="Length of the codes.")]
Backbone = Annotated[str, typer.Option(help="Network: efficientnet_lite0/1/2, alexnet, or any torchvision or timm name.")]
Weights = Annotated[str, typer.Option(help="Where the network starts: imagenet, none, or a .safetensors or .pth file.")]
Seed = Annotated[int, typer.Option(help="Everything random follows from it: split, codebook, initial layers, order.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Root = Annotated[Optional[Path], typer.Option("--data-root", help="Folder that holds the data set's files.")]  # noqa: UP045
Run = Annotated[Optional[Path], typer.Option("--run", help="The run that made the index, if it is elsewhere now.")]  # noqa: UP045
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Set = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", metavar="NAME=VALUE", help="Change a setting, for example --set epochs=10. May be repeated."),
]
