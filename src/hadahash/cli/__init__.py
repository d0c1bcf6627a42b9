"""The command line: one file per command, each thin; errors of the library end here as one line."""

from __future__ import annotations

import os
import sys
import warnings

INTERRUPTED = "interrupted; run the same command again (train: with --resume) to go on"


def main() -> None:
    """Run the command line; bad input ends in one line and an exit code, never in a traceback."""
    os.environ.setdefault(
        "OMP_WAIT_POLICY", "PASSIVE"
    )  # threads that spin beside a busy neighbour cost it 30 times the time
    from ..errors import HadaHashError

    try:
        from ..data import DataWarning
        from .app import app  # seconds, in which one may press Ctrl-C

        plain = warnings.formatwarning
        warnings.formatwarning = lambda message, category, *where: (
            f"warning: {message}\n"
            if issubclass(category, DataWarning)
            else plain(message, category, *where)
        )
        app()
    except HadaHashError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write(f"{INTERRUPTED}\n")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # what reads us has gone: say no more
        sys.exit(0)
