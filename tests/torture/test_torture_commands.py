"""Every command with hostile arguments: an answer or a refusal, never a traceback."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import typer
import typer.rich_utils  # before the fork, as it takes long
from small_collection import small_collection
from storages import tree
from toys import use_smallest_backbone
from trials import Crashed, is_long

import hadahash.cli
from hadahash import Codes, Index
from hadahash.cli.app import COMMANDS, load
from hadahash.cli.failures import INTERNAL_ERROR
from hadahash.photos import BuildOptions, build_or_update

resource = pytest.importorskip("resource")
OWN_PROCESS = "HADAHASH_TEST_PROCESS"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")

# Commands that would train, download or measure for minutes when all arguments are right.
LONG_WORK = {"demo", "reproduce", "bench", "train", "serve"}
SECONDS = 60  # of CPU
MOST_BYTES = 1 << 26  # of a file
SECONDS_OF_LONG_WORK = 3 if is_long() else 1  # then it has got past its arguments
VALUES = [
    "", "-", "--", "-1", "0", "1e999", "nan", "9" * 400, "x" * 5000, "d/" * 3000, "a\nb", "é😀",
    os.fsdecode(b"not-\xff-utf8"), "../../../etc/passwd", "/dev/null", "/dev/zero", "loop", "pipe.csv",
    "file.txt", "empty", "file.txt/x", "i", "bad.index", "x.npz", "bad.npz", "bad.npy", "vectors.npy",
    "table.csv", "bad.csv", "http://127.0.0.1:1/x", "s3://nowhere/x", "x=y", "bits=32", "[", "{}", "%s%n",
    "--help", "-k", "digits", "hcdh", "true", "null", "cpu", "8", "1/2",
]  # fmt: skip
IMAGES = ["photos", "photos/red/002.png", "archive.zip", "archive.tar", "images.parquet", "table.csv",
          "zip://::archive.zip"]  # fmt: skip
INDEXES = ["photos.index", "plain.index", "i"]
# What fits a parameter of this name: commands must get past their first argument.
FITTING = {
    **dict.fromkeys(["data", "images", "sources", "source", "image", "photos"], IMAGES),
    **dict.fromkeys(["run", "runs"], ("run",)),
    **dict.fromkeys(["queries", "database", "codes"], ("x.npz",)),
    **dict.fromkeys(["embeddings", "vector", "array"], ("vectors.npy",)),
    **dict.fromkeys(["ids", "id_"], ("red/002.png", "0")),
    **dict.fromkeys(["bits", "k", "threshold", "radius", "limit", "prefix"], ("3", "8", "16")),
    "index": INDEXES, "out": ["out", "out.npz", "out.parquet"], "device": ["cpu"], "shard": ["1/2"],
}  # fmt: skip
GOOD = [
    *IMAGES,
    *INDEXES,
    "run",
    "run/model.json",
    "photos.index/photos.sqlite",
    "vectors.npy",
    "out",
]


def commands():
    """(words, parameters) of every command."""
    for name in COMMANDS:
        command = load(name)
        if hasattr(command, "commands"):
            yield [name], command.params
            for below, each in command.commands.items():
                yield [name, below], each.params
        else:
            yield [name], command.params


ALL = list(commands())


@pytest.fixture
def whole(tmp_path, monkeypatch):
    """A folder with good and bad files of every kind."""
    use_smallest_backbone(monkeypatch)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "place" / "home"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "home").mkdir()
    (tmp_path / "whole" / "home").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "whole")
    small_collection(Path.cwd())
    options = BuildOptions(device="cpu")
    build_or_update(Path("photos"), Path("plain.index"), run=Path("run"), options=options)
    Path("loop").symlink_to("loop")
    Path("file.txt").write_text("not what you think")
    Path("empty").mkdir()
    Path("table.csv").write_text("path,labels\nphotos/red/002.png,cat\n")
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
    return Path.cwd()


@pytest.fixture
def fresh(whole, monkeypatch):
    """fresh(): go to a new copy of the folder; commands may change it."""

    def copy():
        place = whole.with_name("place")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(whole, place, symlinks=True)
        os.mkfifo(place / "pipe.csv")
        monkeypatch.chdir(place)

    return copy


def any_value(rng, name=None):
    """A value that fits the parameter, one that fits another, or one that fits none."""
    kind = rng.random()
    if kind < 0.6 and name in FITTING:
        return str(rng.choice(FITTING[name]))
    return str(rng.choice(GOOD if kind < 0.75 else VALUES))


def hostile_arguments(rng):
    """A command with a random choice of its parameters and values that do not fit."""
    words, params = ALL[rng.integers(len(ALL))]
    given = list(words)
    for param in params:
        if isinstance(param, typer.core.TyperArgument):
            given += [any_value(rng, param.name)] if rng.random() < 0.9 else []
        elif rng.random() < 0.15:
            given.append(str(rng.choice(param.opts)))
            if not getattr(param, "is_flag", False) and rng.random() < 0.95:
                given.append(any_value(rng, param.name))
    return given + ([any_value(rng)] if rng.random() < 0.1 else [])


def called(arguments):
    """Exit code and all output of a command, in a child process; -24 if it was ended by time."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        is_work = arguments[0] in LONG_WORK
        signal.setitimer(signal.ITIMER_PROF, SECONDS_OF_LONG_WORK if is_work else SECONDS)
        signal.alarm(2 * SECONDS_OF_LONG_WORK if is_work else 600)
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
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(ProcessLookupError):  # processes that it has started
        os.killpg(child, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        return code, pipe.read().decode("utf-8", "replace")


def test_in_a_process_of_its_own():
    """Threads of libraries that other tests have used may hang in a fork."""
    command = [sys.executable, "-m", "pytest", "-q", f"{__file__}::test_hostile_arguments"]
    done = subprocess.run(
        [*command, "--timeout", "0"],
        env=os.environ | {OWN_PROCESS: "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=None if is_long() else 500,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.skipif(OWN_PROCESS not in os.environ, reason="called in a process of its own")
def test_hostile_arguments(trials, whole, fresh):
    before = tree(whole)
    tried = trials("command line", "every command with random hostile arguments")
    for trial in tried.numbers(40, 2000):
        with trial:
            fresh()
            arguments = hostile_arguments(trial.rng)
            code, text = called(arguments)
            shown = " ".join(repr(each[:40]) for each in arguments)
            ended_by_time = code < 0 and arguments[0] in LONG_WORK
            if code < 0 and not ended_by_time:
                raise Crashed(f"{shown}: signal {-code}")
            bad = "Traceback" in text or "internal error" in text or code in (99, INTERNAL_ERROR)
            if bad:
                raise Crashed(f"{shown}: {code} {text[-300:]}")
    assert tree(whole) == before, "a command wrote to another folder than that it was called in"


def test_every_command_is_tried():
    assert {words[0] for words, _ in ALL} == set(COMMANDS) and len(ALL) > len(COMMANDS)
