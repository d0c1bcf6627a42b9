"""Options that several commands take, with the same words everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from ..data import list_protocols
from ..methods import METHODS

DEFAULT_METHOD = "hcdh"


def changes(text: str) -> Any:
    """The option --set; `text` says what it changes, with an example that its command takes."""
    return typer.Option("--set", metavar="NAME=VALUE", help=f"{text}. May be repeated.")


Method = Annotated[str, typer.Option(help=f"Hashing method: {', '.join(METHODS.names())}.")]
Bits = Annotated[int, typer.Option(help="Length of the codes.")]
Backbone = Annotated[
    str,
    typer.Option(help="Network: efficientnet_lite0/1/2, alexnet, or any torchvision or timm name."),
]
Weights = Annotated[
    str,
    typer.Option(help="Where the network starts: imagenet, none, or a .safetensors or .pth file."),
]
Seed = Annotated[
    int,
    typer.Option(help="Everything random follows from it: split, codebook, initial layers, order."),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Root = Annotated[
    Path | None, typer.Option("--data-root", help="Folder that holds the data set's files.")
]
Run = Annotated[
    Path | None,
    typer.Option("--run", help="The run that made the index, if it is elsewhere now."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Protocol = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        help=f"How the data are divided: {', '.join(list_protocols())}; the data set's own if not given."
    ),
]
