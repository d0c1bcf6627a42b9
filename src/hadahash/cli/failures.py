"""How the command line ends when something goes wrong.

    what happened                  message on stderr                    exit code
    HadaHashError                  error: ...                           1, 2 or 3: `error.exit_code`
    OSError, MemoryError, ...      error: ...                           1
    stdout was closed              none                                 0
    Ctrl-C                         Interrupted. (and how to continue)   130
    anything else: a bug           internal error: ...                  70

The message is always one line. With HADAHASH_DEBUG=1 in the environment a traceback precedes it.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from ..errors import HadaHashError, missing_module

INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130

_AGAIN = "Run the same command again to continue."
_RESUMABLE = {
    ("train",): "Run the same command again with --resume to continue.",
    ("demo",): _AGAIN,
    ("encode",): _AGAIN,
    ("reproduce",): _AGAIN,
    ("index", "add"): _AGAIN,
    ("index", "build"): _AGAIN,
}


class Escaped(BaseException):
    """Carries an exception past typer, which would print something else or nothing."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def escaping() -> Iterator[None]:
    """Re-raise Ctrl-C and a closed pipe as `Escaped`, which typer does not catch."""
    try:
        yield
    except (BrokenPipeError, KeyboardInterrupt) as error:
        raise Escaped(error) from error


def print_failure(error: BaseException, arguments: Sequence[str]) -> int:
    """Print one line about an error.

    Args:
        error: What ended the command.
        arguments: The arguments of the command line, without the program's name.

    Returns:
        The exit code.
    """
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return 0
    if os.environ.get("HADAHASH_DEBUG", "0") not in ("", "0"):
        import traceback

        traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
    message, code = describe(error, arguments)
    with suppress(OSError):  # stderr may be full or closed too
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()
    _flush_or_silence_stdout()
    return code


def describe(error: BaseException, arguments: Sequence[str] = ()) -> tuple[str, int]:
    """Return the message and the exit code for an error.

    Args:
        error: What ended the command.
        arguments: The arguments of the command line, without the program's name.

    Returns:
        One line without its newline, and the exit code.

    Example:
        >>> describe(MemoryError("Unable to allocate 50.9 TiB"))[1]
        1
        >>> describe(KeyboardInterrupt(), ["encode", "run", "photos/"])
        ('Interrupted. Run the same command again to continue.', 130)
    """
    if isinstance(error, KeyboardInterrupt):
        return _interrupted(arguments), INTERRUPTED
    if isinstance(error, ModuleNotFoundError):
        error = missing_module(error)
    if isinstance(error, HadaHashError):
        return f"error: {_one_line(error)}", error.exit_code
    if isinstance(error, OSError):
        return f"error: {_describe_os_error(error)}", 1
    if _is_out_of_memory(error):
        detail = f" ({_one_line(error)})" if str(error) else ""
        return f"error: Out of memory{detail}. Use a smaller batch or a larger machine.", 1
    if isinstance(error, RecursionError):
        return "error: The input is nested too deeply. Check the input files.", 1
    if isinstance(error, RuntimeError) and "Symlink loop" in str(error):
        return f"error: {_one_line(error)}. Remove the link or give another path.", 1
    what = f"{type(error).__name__}: {_one_line(error)}".removesuffix(".")
    hint = "Please report this. Set HADAHASH_DEBUG=1 for the traceback."
    return f"internal error: {what}. {hint}", INTERNAL_ERROR


def _interrupted(arguments: Sequence[str]) -> str:
    hint = _RESUMABLE.get(tuple(arguments[:1])) or _RESUMABLE.get(tuple(arguments[:2]))
    return f"Interrupted. {hint}" if hint else "Interrupted."


def _describe_os_error(error: OSError) -> str:
    if error.filename is None and error.errno in (errno.ENOSPC, errno.EIO):
        return f"Cannot write the output: {error.strerror}."
    reason = error.strerror or _one_line(error) or type(error).__name__
    name = "" if error.filename is None else f" {os.fsdecode(error.filename)!r}"
    return (
        f"Cannot use{name}: {reason}. Check the path and its permissions." if name else f"{reason}."
    )


def _is_out_of_memory(error: BaseException) -> bool:
    # torch.OutOfMemoryError is a RuntimeError; importing torch to name it would take seconds.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _flush_or_silence_stdout() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _silence_stdout()


def _silence_stdout() -> None:
    """Discard what is still buffered, so that the interpreter's last flush succeeds."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
