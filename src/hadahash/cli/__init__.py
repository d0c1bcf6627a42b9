"""The command line. One thin file per command, loaded when the command is called."""

from __future__ import annotations

import io
import os
import sys
import warnings
from pathlib import Path


def main() -> None:
    """Run the command line and exit.

    Errors end in one line on stderr and an exit code; see `hadahash.cli.failures` for the policy.
    """
    # Threads that spin while they wait slow down every other process on the machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from .failures import Escaped, print_failure

    arguments = sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files may be in any encoding
            stream.reconfigure(errors="backslashreplace")
    try:
        from .app import app

        warnings.formatwarning = _format_warning
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a full disk can still be reported
    except Escaped as escaped:
        sys.exit(print_failure(escaped.error, arguments))
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # rich ends so when its reader has gone
            sys.exit(print_failure(ended.__context__, arguments))
        raise
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(print_failure(error, arguments))


_format_any_warning = warnings.formatwarning


def _format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Show warnings of this package as one line, all others as Python does."""
    own = category.__module__.partition(".")[0] == "hadahash"
    if own or Path(filename).is_relative_to(Path(__file__).parents[1]):
        return f"warning: {message}\n"
    return _format_any_warning(message, category, filename, lineno, line)
