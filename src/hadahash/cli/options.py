"""Options that several commands share.

The names of methods and protocols are repeated here, because importing their registries to show a
help text would take seconds. A test keeps them in sync.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

METHOD_NAMES = (
    "classify",
    "csq",
    "dpsh",
    "dsdh",
    "hashnet",
    "hcdh",
    "hcdh-2",
    "hcdh-c",
    "hcdh-far",
    "hcdh-h",
    "hcdh-plus",
    "hcsdh",
    "itq",
    "ksh",
    "lsh",
    "mihash",
    "orthohash",
    "sdh",
    "ssdh",
)
PROTOCOL_NAMES = (
    "cifar10",
    "cifar10-59k",
    "cifar10-demo",
    "cifar10-full",
    "holdout",
    "imagenet100",
    "nuswide21",
    "nuswide21-all",
    "table",
    "tinyimagenet100",
    "unseen",
    "voc2012",
    "voc2012-halves",
)

DEFAULT_METHOD = "hcdh-far"


def named_path(text: str | Path) -> Path:
    """Convert the value of an option to a path.

    Args:
        text: The value, or the default.

    Returns:
        The path.

    Raises:
        typer.BadParameter: The value is empty, which would mean the current folder.
    """
    if not str(text).strip():
        raise typer.BadParameter("the path is empty. Use . for the current folder.")
    return Path(text)


def changes(text: str) -> Any:
    """Return the option --set.

    Args:
        text: What it changes, with an example.

    Returns:
        A typer option.
    """
    return typer.Option("--set", metavar="NAME=VALUE", help=f"{text}. May be repeated.")


Method = Annotated[str, typer.Option(help=f"Hashing method: {', '.join(METHOD_NAMES)}.")]
Bits = Annotated[int, typer.Option(help="Number of bits per code.")]
Backbone = Annotated[
    str,
    typer.Option(help="Network: efficientnet_lite0/1/2, alexnet, or any torchvision or timm name."),
]
Weights = Annotated[
    str,
    typer.Option(help="Initial weights: imagenet, none, or a .safetensors or .pth file."),
]
Seed = Annotated[
    int,
    typer.Option(help="Random seed for split, codebook, initialization and order."),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Root = Annotated[
    Path | None, typer.Option("--data-root", help="Folder that holds the data set's files.")
]
Run = Annotated[
    Path | None,
    typer.Option("--run", help="Folder of the run that built the index, if it was moved."),
]
TrainedRun = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Argument(help="Folder of a trained run."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Exclude = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        metavar="PATTERN",
        help="Leave out files and folders, e.g. --exclude '*_thumb.*' --exclude albums/old. "
        "May be repeated.",
    ),
]
Protocol = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        help=f"Split protocol: {', '.join(PROTOCOL_NAMES)}. Default: that of the data set."
    ),
]

# Options of `hadahash train`.

RunFolder = Annotated[
    Path,
    typer.Option(
        "--out",
        help="Run folder to write: model, log, split, checkpoint.",
        parser=named_path,
        metavar="PATH",
    ),
]
Frozen = Annotated[
    Optional[bool],  # noqa: UP045
    typer.Option(
        "--frozen/--no-frozen",
        help="Train only the head, on features computed once. Default: without a GPU.",
        show_default=False,
    ),
]
ContentBits = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        help="Bits that tell the photos of a class apart, beside the code; a multiple of 8. "
        "Default: 128; 0 for itq and lsh. 0: none, as in the paper."
    ),
]
SplitSeed = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="Seed of the data split; default: --seed."),
]
Validation = Annotated[
    float, typer.Option(help="Fraction of the training images held out for validation.")
]
ConfigFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="TOML file with settings; --set takes precedence."),
]
TrainSettings = Annotated[
    Optional[list[str]],  # noqa: UP045
    changes("Change a setting, e.g. --set epochs=10; `hadahash settings` lists them"),
]
Plugins = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option(help="Python file that defines a method. May be repeated."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue from the last checkpoint of the run.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing run in the folder.")
]

# Options of commands that take embeddings.

Embeddings = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--embeddings",
        metavar="FILE",
        help="Embeddings instead of images: .npy, .npz, .parquet, .arrow or .feather.",
    ),
]
Array = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Array of the .npz file, or column of the table, that has the embeddings."),
]
Ids = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Ids of the embeddings: a text file with one per line, or a column."),
]
TrainingData = Annotated[
    Optional[str],  # noqa: UP045
    typer.Argument(help="A folder of class folders, a table (.csv), or a data set (cifar10)."),
]
EmbeddingLabels = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        help="Labels of the embeddings: a text file with one per line, a .npy file, or a column. "
        "itq and lsh need none."
    ),
]

Weight = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        help="Weight of the content for --rank photo: 0 looks at the kind only, large values "
        "at the photo only. Default: that of the model."
    ),
]
