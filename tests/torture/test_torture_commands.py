"""Every command with hostile arguments: an answer or a refusal, never a traceback."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from trials import Crashed

import hadahash.cli
from hadahash import Codes, Index
from hadahash.cli.app import COMMANDS, load
from hadahash.cli.failures import INTERNAL_ERROR

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")

# Commands that would train, download or measure for minutes when all arguments are right.
LONG_WORK = {"demo", "reproduce", "bench", "train", "serve"}
SECONDS = 60  # of CPU
VALUES = [
    "", "-", "--", "-1", "0", "1e999", "nan", "9" * 400, "x" * 5000, "d/" * 3000, "a\nb", "é😀",
    os.fsdecode(b"not-\xff-utf8"), "../../../etc/passwd", "/dev/null", "/dev/zero", "loop", "pipe.csv",
    "file.txt", "empty", "file.txt/x", "i", "bad.index", "x.npz", "bad.npz", "bad.npy", "vectors.npy",
    "table.csv", "bad.csv", "http://127.0.0.1:1/x", "s3://nowhere/x", "x=y", "bits=32", "[", "{}", "%s%n",
    "--help", "-k", "digits", "hcdh", "true", "null",
]  # fmt: skip


def commands():
    """(words, parameters) of every command."""
    for name in COMMANDS:
        command = load(name)
        if hasattr(command, "commands"):
            for below, each in command.commands.items():
                yield [name, below], each.params
        else:
            yield [name], command.params


ALL = list(commands())


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with good and bad files of every kind."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    Path("home").mkdir()
    Path("loop").symlink_to("loop")
    Path("file.txt").write_text("not what you think")
    Path("empty").mkdir()
    os.mkfifo("pipe.csv")
    Path("table.csv").write_text("path,labels\nnowhere.jpg,cat\n")
    Path("bad.csv").write_bytes(b'path,labels\n"\xff\x00\n')
    codes = Codes(packed=np.arange(40, dtype=np.uint8).reshape(20, 2), bits=16)
    codes.save("x.npz")
    np.save("vectors.npy", np.eye(5, dtype=np.float32))
    for name, good in (("bad.npz", "x.npz"), ("bad.npy", "vectors.npy")):
        data = bytearray(Path(good).read_bytes())
        data[len(data) // 3] ^= 255
        Path(name).write_bytes(data)
    Index.build(codes).save("i")
    Index.build(codes).save("bad.index")
    next(Path("bad.index").glob("*.codes")).write_bytes(b"x" * 80)
    return tmp_path


def hostile_arguments(rng):
    """A command with a random choice of its parameters and values that do not fit."""
    words, params = ALL[rng.integers(len(ALL))]
    given = list(words)
    for param in params:
        if isinstance(param, typer.core.TyperArgument):
            given += [str(rng.choice(VALUES))] if rng.random() < 0.9 else []
        elif rng.random() < 0.15:
            given.append(str(rng.choice(param.opts)))
            if not getattr(param, "is_flag", False) and rng.random() < 0.95:
                given.append(str(rng.choice(VALUES)))
    return given + ([str(rng.choice(VALUES))] if rng.random() < 0.1 else [])


def called(arguments):
    """Exit code and all output of a command, in a child process; -24 if it was ended by time."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, SECONDS if arguments[0] not in LONG_WORK else 5)
        signal.alarm(600 if arguments[0] not in LONG_WORK else 20)
        code, out = 99, io.StringIO()
        try:
            sys.argv = ["hadahash", *arguments]
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                hadahash.cli.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        except BaseException as error:
            out.write(f"Traceback {type(error).__name__}: {error}")
        os.write(writer, out.getvalue()[-4000:].encode("utf-8", "replace"))
        os._exit(code & 127)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode("utf-8", "replace")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def test_hostile_arguments(trials, place):
    tried = trials("command line", "every command with random hostile arguments")
    for trial in tried.numbers(40, 2000):
        with trial:
            arguments = hostile_arguments(trial.rng)
            code, text = called(arguments)
            shown = " ".join(repr(each[:40]) for each in arguments)
            ended_by_time = code < 0 and arguments[0] in LONG_WORK
            if code < 0 and not ended_by_time:
                raise Crashed(f"{shown}: signal {-code}")
            bad = "Traceback" in text or "internal error" in text or code in (99, INTERNAL_ERROR)
            if bad:
                raise Crashed(f"{shown}: {code} {text[-300:]}")
            assert Path("x.npz").exists() and Path("i/index.json").exists(), shown


def test_every_command_is_tried():
    assert {words[0] for words, _ in ALL} == set(COMMANDS) and len(ALL) > len(COMMANDS)
