"""The command `hadahash` and its sub-commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .._version import __version__
from . import (
    INTERRUPTED,
    bench,
    codebook,
    data,
    demo,
    doctor,
    encode,
    evaluate,
    index,
    output,
    report,
    reproduce,
    search,
    serve,
    train,
)
from . import settings as settings_


class _Commands(TyperGroup):
    """Says a line when it is interrupted; typer itself would end without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            output.info(INTERRUPTED)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Commands,
    help="Supervised image hashing: learn compact binary codes, compare methods honestly, search exactly.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hadahash {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


app.command()(demo.demo)
app.add_typer(data.app, name="data")
app.command()(train.train)
app.command()(settings_.settings)
app.command()(encode.encode)
app.command()(evaluate.evaluate)
app.command()(report.report)
app.add_typer(index.app, name="index")
app.command()(search.search)
app.command()(serve.serve)
app.command()(codebook.codebook)
app.command()(reproduce.reproduce)
app.command()(bench.bench)
app.command()(doctor.doctor)
