"""The command `hadahash`: the list of its commands, loaded lazily."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Optional

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from .._version import __version__
from .failures import escaping


class Lazy(NamedTuple):
    """A command that is not loaded yet."""

    summary: str  # the line in `hadahash --help`
    target: str  # module of this package and attribute: a function, or a typer.Typer


COMMANDS = {
    "demo": Lazy("Train, evaluate and search on sample images in minutes.", "demo:demo"),
    "data": Lazy("Download or check a benchmark data set.", "data:app"),
    "train": Lazy("Learn binary codes from labelled images.", "train:train"),
    "evaluate": Lazy("Measure retrieval: mAP, precision and recall.", "evaluate:evaluate"),
    "report": Lazy("Compare evaluated runs on one HTML page.", "report:report"),
    "encode": Lazy("Turn images into codes.", "encode:encode"),
    "export": Lazy("Write a model as ONNX, to run without torch.", "export:export"),
    "index": Lazy("Build, update and inspect an index of photos.", "index:app"),
    "search": Lazy("Find the images most similar to a query image.", "search:search"),
    "duplicates": Lazy("Find files that show the same photo.", "duplicates:duplicates"),
    "serve": Lazy("Search in the browser: a page and an HTTP API.", "serve:serve"),
    "reproduce": Lazy("Reproduce the paper's tables and figures.", "reproduce:reproduce"),
    "codebook": Lazy("Generate a codebook and measure its quality.", "codebook:codebook"),
    "settings": Lazy("List every setting with its default and range.", "settings:settings"),
    "bench": Lazy("Measure search and evaluation speed on this machine.", "bench:app"),
    "doctor": Lazy("Check the installation: cores, GPU, kernels, packages.", "doctor:doctor"),
}


# Commands that may encode images; build and add are those of `index`.
_ENCODING = ("encode", "evaluate", "search", "duplicates", "serve", "build", "add")


class LazyGroup(TyperGroup):
    """Lists `COMMANDS` without importing them; a command is loaded when it is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, lazy in COMMANDS.items():
            self.commands.setdefault(name, TyperCommand(name, help=lazy.summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that `args` begins with, then resolve as usual."""
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = load(args[0])
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse the arguments; Ctrl-C and a closed pipe reach `hadahash.cli.main`."""
        with escaping():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C and a closed pipe reach `hadahash.cli.main`."""
        with escaping():
            return super().invoke(ctx)


def load(name: str) -> Any:
    """Import a command.

    Args:
        name: A key of `COMMANDS`.

    Returns:
        The command as typer runs it.
    """
    module, _, attribute = COMMANDS[name].target.partition(":")
    loaded = getattr(import_module(f".{module}", __package__), attribute)
    host = typer.Typer(add_completion=False, rich_markup_mode="rich")
    host.callback()(lambda: None)  # turns the app into a group that contains the command
    if isinstance(loaded, typer.Typer):
        host.add_typer(loaded, name=name)
    else:
        host.command(name)(loaded)
    command = typer.main.get_group(host).commands[name]
    for each in (command, *getattr(command, "commands", {}).values()):
        if each.name in _ENCODING and not getattr(each, "commands", None):
            each.params.append(_runtime_option())
    return command


def _runtime_option() -> Any:
    """The option --runtime, which every command that may encode images has."""
    return TyperOption(
        param_decls=["--runtime"],
        metavar="torch|onnx",
        help="What runs the model. Default: onnx, if the model was exported and there is no GPU; "
        "otherwise torch.",
        expose_value=False,
        callback=_choose_runtime,
    )


def _choose_runtime(context: Any, option: Any, value: str | None) -> None:
    """Set the variable that models are loaded by; processes that are started inherit it."""
    from ..runtime.choice import VARIABLE, requested

    if value is not None:
        requested(value)
        os.environ[VARIABLE] = value


app = typer.Typer(
    cls=LazyGroup,
    help="Image hashing: learn compact binary codes, compare methods, search exactly.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"hadahash {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    plugin: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            help="Python file that defines a method, to load a model that was made with it."
        ),
    ] = None,
) -> None:
    context.obj = plugin or []  # `train` records them
    if plugin:
        from ..plugins import load_plugins

        load_plugins(plugin)
