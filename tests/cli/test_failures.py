"""Every failure of the command line is one line and an exit code, never a traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hadahash.cli
from hadahash import Codes, Index
from hadahash.cli.failures import INTERNAL_ERROR, describe
from hadahash.data import DataWarning
from hadahash.errors import DataError, ProcessLostError, UsageError

SOURCE = Path(__file__).parents[2] / "src"
Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (UsageError("epochs must be >= 1,\ngot 0."), "error: epochs must be >= 1, got 0.", 2),
        (DataError("photos contains no images."), "error: photos contains no images.", 1),
        (
            PermissionError(errno.EACCES, "Permission denied", "i/index.json"),
            "error: Cannot use 'i/index.json': Permission denied. Check the path and its permissions.",
            1,
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "error: Cannot write the output: No space left on device.",
            1,
        ),
        (
            MemoryError("Unable to allocate 50.9 TiB"),
            "error: Out of memory (Unable to allocate 50.9 TiB). "
            "Use a smaller batch or a larger machine.",
            1,
        ),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"),
            "error: Out of memory (DefaultCPUAllocator: can't allocate memory: 9 bytes). "
            "Use a smaller batch or a larger machine.",
            1,
        ),
        (
            ProcessLostError("Another process of this training has ended."),
            "error: Another process of this training has ended.",
            1,
        ),
        (
            RecursionError("maximum recursion depth exceeded"),
            "error: The input is nested too deeply. Check the input files.",
            1,
        ),
        (
            TypeError("'NoneType' object is not iterable"),
            "internal error: TypeError: 'NoneType' object is not iterable. "
            "Please report this. Set HADAHASH_DEBUG=1 for the traceback.",
            INTERNAL_ERROR,
        ),
        (KeyboardInterrupt(), "Interrupted.", 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_each_kind_of_error_has_its_message(error: BaseException, message: str, code: int) -> None:
    assert describe(error) == (message, code)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (
            ["train", "photos/", "--out", "r"],
            " Run the same command again with --resume to continue.",
        ),
        (["encode", "r", "photos/"], " Run the same command again to continue."),
        (["index", "build", "r", "photos/"], " Run the same command again to continue."),
        (["index", "info", "i"], ""),
        (["serve", "i"], ""),
        (["doctor"], ""),
    ],
)
def test_only_commands_that_can_resume_say_how(arguments: list[str], hint: str) -> None:
    assert describe(KeyboardInterrupt(), arguments)[0] == f"Interrupted.{hint}"


def test_a_bug_is_a_one_line_error_and_a_traceback_on_request(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("hadahash.index.Index.open", broken)
    monkeypatch.delenv("HADAHASH_DEBUG", raising=False)
    code, out, err = run("index", "info", "x.index")
    assert (code, out, err.count("\n")) == (INTERNAL_ERROR, "", 1)
    assert err.startswith("internal error: ZeroDivisionError: division by zero.")
    monkeypatch.setenv("HADAHASH_DEBUG", "1")
    code, _, err = run("index", "info", "x.index")
    assert code == INTERNAL_ERROR and "Traceback" in err and 'raise ZeroDivisionError("div' in err


HOSTILE = {
    "name too long": "x" * 5000,
    "path too long": "d/" * 3000 + "x",
    "empty": "",
    "loop": "LOOP",
    "loop inside": "LOOP/x",
    "below a file": "FILE/x",
    "a file": "FILE",
    "not UTF-8": os.fsdecode(b"nowhere-\xff"),
    "device": "/dev/null",
    "newline": "no\nwhere",
}
COMMANDS = [
    "train PATH --out OUT",
    "train digits --out PATH/x --set epochs=0",
    "train digits --out OUT --config PATH --set epochs=0",
    "train digits --out OUT --weights PATH",
    "evaluate PATH",
    "evaluate --queries PATH --database PATH",
    "report PATH --out OUT",
    "encode PATH PATH --out OUT",
    "index build PATH PATH --out OUT",
    "index add PATH PATH",
    "index add INDEX PATH",
    "index remove PATH x",
    "index remove INDEX PATH",
    "index info PATH",
    "index duplicates PATH",
    "duplicates PATH",
    "search PATH PATH",
    "search INDEX PATH",
    "serve PATH",
    "data get PATH",
    "codebook --classes PATH",
    "reproduce PATH",
    "settings PATH",
    "bench --codes PATH",
    "doctor PATH",
]


@pytest.fixture
def placeholders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Values of the placeholders in `COMMANDS`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file.txt").write_text("not what you think")
    Index.build(Codes(packed=np.zeros((2, 2), np.uint8), bits=16, ids=["a", "b"])).save("i")
    return {"LOOP": "loop", "FILE": "file.txt", "INDEX": "i", "OUT": "out"}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_arguments_are_refused_in_one_line(
    run: Run, placeholders: dict[str, str], command: str, name: str
) -> None:
    hostile = HOSTILE[name].replace("LOOP", "loop").replace("FILE", "file.txt")
    words = [placeholders.get(word, word.replace("PATH", hostile)) for word in command.split()]
    code, out, err = run(*words)
    assert code in (1, 2), err[-2000:]
    assert "Traceback" not in err and "internal error" not in err and out == ""
    if "╭" not in err:  # otherwise typer refused it
        lines = [line for line in err.splitlines() if not line.startswith("Skipped ")]
        assert len(lines) == 1 and lines[0].startswith("error: ")
    assert not list(Path().rglob("*.safetensors")) and not list(Path().rglob("*.part"))


def _shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command.replace("hadahash", f"{sys.executable} -m hadahash"),
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        check=False,
        timeout=120,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["--version", "index info i", "index info i --json"])
def test_a_full_disk_behind_stdout_is_a_one_line_error(
    placeholders: dict[str, str], command: str
) -> None:
    done = _shell(f"hadahash {command} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "error: Cannot write the output: No space left on device.\n"


@pytest.mark.parametrize("command", ["--help", "index info i", "index info i --json"])
def test_a_closed_pipe_ends_quietly_with_zero(placeholders: dict[str, str], command: str) -> None:
    done = _shell(f"hadahash {command} | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    ("command", "code", "err"),
    [
        ("--version >&-", 0, ""),
        ("index info i >&-", 0, ""),
        ("index info nowhere 2>&-", 1, ""),
        ("index info nowhere >&-", 1, "error: nowhere contains no index"),
        ("index info nowhere > /dev/full", 1, "error: nowhere contains no index"),
    ],
)
def test_closed_and_full_streams_do_not_hide_the_outcome(
    placeholders: dict[str, str], command: str, code: int, err: str
) -> None:
    done = _shell(f"hadahash {command}")
    assert done.returncode == code and done.stderr.startswith(err), done.stderr
    assert done.stderr.count("\n") == (1 if err else 0)


def test_warnings_of_the_package_are_one_line_errors() -> None:
    own, other = str(Path(hadahash.cli.__file__).with_name("train.py")), "/somewhere/else.py"
    for category, file, expected in (
        (RuntimeWarning, own, "warning: Slow.\n"),
        (DataWarning, other, "warning: Slow.\n"),
        (RuntimeWarning, other, "/somewhere/else.py:7: RuntimeWarning: Slow.\n"),
    ):
        assert hadahash.cli._format_warning("Slow.", category, file, 7) == expected
