"""The command line. One thin file per command, loaded when the command is called."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path


def main() -> None:
    """Run the command line and exit.

    Errors end in one line on stderr and an exit code; see `hadahash.cli.failures` for the policy.
    """
    # Threads that spin while they wait slow down every other process on the machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # read when numpy is imported
    _prepare_streams()
    warnings.formatwarning = _format_warning
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int | str | None:
    """Run a command and return the exit code."""
    from .failures import Escaped, print_failure

    try:
        from .app import app

        code = _call(app)
        sys.stdout.flush()  # flush here, where a full disk can still be reported
        return code
    except Escaped as escaped:
        return print_failure(escaped.error, arguments)
    except (Exception, KeyboardInterrupt) as error:
        return print_failure(error, arguments)


def _call(app: Callable[[], object]) -> int | str | None:
    try:
        app()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # stdout was closed
            raise ended.__context__ from None
        return ended.code
    return 0


def _prepare_streams() -> None:
    """Make printing work if a stream is closed or a file name cannot be encoded."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


_format_any_warning = warnings.formatwarning


def _format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Show warnings of this package as one line, all others as Python does."""
    from_package = category.__module__.partition(".")[0] == "hadahash"
    if from_package or Path(filename).is_relative_to(Path(__file__).parents[1]):
        return f"warning: {message}\n"
    return _format_any_warning(message, category, filename, lineno, line)
