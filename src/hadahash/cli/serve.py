from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ..errors import MissingExtraError
from ..settings import make, parse_assignments
from . import options, output


def serve(
    index: Annotated[Path, typer.Argument(help="Folder of an index.")],
    run: options.Run = None,
    images: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            help="Folder whose images may be shown, instead of the one that was indexed. May be repeated."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than 127.0.0.1 need a read token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8000,
    read_token: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            envvar="HADAHASH_READ_TOKEN", help="Who searches must show it.", show_default=False
        ),
    ] = None,
    write_token: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            envvar="HADAHASH_WRITE_TOKEN",
            help="Who adds and removes must show it.",
            show_default=False,
        ),
    ] = None,
    device: options.Device = "auto",
    set_: Annotated[
        Optional[list[str]],  # noqa: UP045
        options.changes("Change a limit, for example --set queue=128"),
    ] = None,
) -> None:
    """Search in the browser: a page and an HTTP API on an index. Reachable from this machine only, unless a token is set.

    Example: hadahash serve photos.index
    """
    try:
        from ..serve.collection import open_collection
        from ..serve.run import serve as start
        from ..serve.settings import ServeSettings
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "fastapi", "serve") from None
    given = {
        "host": host,
        "port": port,
        "read_token": read_token or None,
        "write_token": write_token or None,
        "device": device,
    }
    settings = make(ServeSettings, given | parse_assignments(set_ or []))
    start(open_collection(index, run, images or ()), settings, output.result)
