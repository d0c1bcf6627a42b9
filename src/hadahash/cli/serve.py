"""`hadahash serve`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from ..errors import MissingExtraError
from ..messages import is_terminal
from ..settings import from_mapping, parse_assignments
from . import options, output
from .folders import as_index

Source = Annotated[
    Path,
    typer.Argument(help="Folder of the index, or of photos, which are indexed first."),
]
Images = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option(help="Folder of the images; default: the indexed folder. May be repeated."),
]
ReadToken = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        envvar="HADAHASH_READ_TOKEN",
        help="Bearer token required for search requests.",
        show_default=False,
    ),
]
WriteToken = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        envvar="HADAHASH_WRITE_TOKEN",
        help="Bearer token required to change the index.",
        show_default=False,
    ),
]


OpenPage = Annotated[
    Optional[bool],  # noqa: UP045
    typer.Option(
        "--open/--no-open",
        help="Open the page in a browser. Default: for a folder of photos, in a terminal.",
        show_default=False,
    ),
]


def serve(
    index: Source,
    run: options.Run = None,
    images: Images = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; any other than loopback requires a read token."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free port.")] = 8000,
    read_token: ReadToken = None,
    write_token: WriteToken = None,
    device: options.Device = "auto",
    workers: Annotated[
        int, typer.Option(help="Worker processes over one index; each loads the model.")
    ] = 1,
    open_: OpenPage = None,
    set_: Annotated[
        Optional[list[str]],  # noqa: UP045
        options.changes("Change a limit, for example --set queue=128"),
    ] = None,
) -> None:
    """Serve an index: a web page and an HTTP API, reachable from this machine by default.

    Example: hadahash serve photos.index
    """
    try:
        from ..serve.core.collection import resolve_config
        from ..serve.server import serve as run_server
        from ..serve.settings import ServeSettings
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "fastapi", "serve") from None
    from ..index import Index
    from ..light_export import export_once
    from ..photos import missing_photos, run_of

    values = {
        "host": host,
        "port": port,
        "read_token": read_token or None,
        "write_token": write_token or None,
        "device": device,
        "workers": workers,
    }
    settings = from_mapping(ServeSettings, values | parse_assignments(set_ or []))
    config = resolve_config(as_index(index), run, images or ())
    opened = Index.open(config.index)
    problem = missing_photos(opened, config.index, config.images)
    if problem is not None:
        output.info(problem)
    export_once(run_of(opened, config.index, config.run), settings.device, output.info)
    opens = is_terminal() and config.index != index if open_ is None else open_
    run_server(config, settings, partial(_announce, opens))


def _announce(opens: bool, line: str) -> None:
    """Print a line; open the page that the first one names."""
    output.result(line)
    if opens and line.startswith("Open http"):
        import webbrowser

        webbrowser.open(line.split()[1])
