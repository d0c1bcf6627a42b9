"""The commands from the user's point of view: output, files and errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hadahash import Codes, list_methods
from hadahash.cli.app import COMMANDS
from hadahash.data import list_protocols

TINY = [
    "--backbone",
    "test_efficientnet",
    "--weights",
    "none",
    "--bits",
    "16",
    "--set",
    "size=32",
    "--set",
    "epochs=2",
]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(run folder, photo folder) after `hadahash train` in a separate process."""
    from toys import make_toy, write_folder

    place = tmp_path_factory.mktemp("cli")
    photos = write_folder(place / "photos", *make_toy(48, seed=2))
    (photos / "red" / "broken.jpg").write_bytes(b"\xff\xd8\xff not a picture")
    command = [
        sys.executable,
        "-m",
        "hadahash",
        "train",
        str(photos),
        "--out",
        str(place / "run"),
        *TINY,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "saved in" in done.stdout and "images could not be read" in done.stderr
    assert "45 training images of 4 classes: red (12), blue (11), " in done.stderr
    assert "held out: 4 images as queries for evaluate" in done.stderr
    return place / "run", photos


def test_every_command_has_help_with_an_example(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for command in COMMANDS:
        assert command in out
        arguments = {"data": ("data", "get"), "index": ("index", "info")}.get(command, (command,))
        code, text, _ = run(*arguments, "--help")
        assert code == 0
        assert re.search(rf"Examples?: hadahash {' '.join(arguments)}", " ".join(text.split()))


def test_bench_measures_both_engines_and_checks_them(run: Run) -> None:
    code, out, _ = run("bench", "--codes", "150000", "--bits", "33", "--queries", "5", "--json")
    figures = json.loads(out)
    assert code == 0 and figures["engines agree"] == "yes" and figures["bits"] == 33
    assert (
        all(figures[f"{engine}, one query, ms"] > 0 for engine in ("exact", "routed"))
        and figures["mAP of 5 queries, s"] > 0
    )
    code, out, err = run("bench", "--codes", "0")
    assert code == 2 and not out and "--codes must be >= 1, got 0." in err


def test_help_lists_the_accepted_values(run: Run) -> None:
    def shown(*arguments: str) -> str:
        return " ".join(run(*arguments, "--help")[1].replace("│", " ").split())

    train = shown("train")
    assert f"Hashing method: {', '.join(list_methods())}." in train
    assert f"Split protocol: {', '.join(list_protocols())}." in train
    assert "--set epochs=10; `hadahash settings` lists them" in train
    assert "--set uri=http://host:19530. May be repeated" in shown(
        "index", "build"
    ) and "epochs" not in shown("index", "build")
    assert "--set queue=128" in shown("serve")
    assert "codebook-CLASSESxBITS-DESIGN-sSEED.npz in the current folder" in shown(
        "codebook"
    ).replace("- ", "-")


def test_train_evaluate_encode(trained: tuple[Path, Path], run: Run, tmp_path: Path) -> None:
    folder, photos = trained
    assert "red/broken.jpg" in (folder / "skipped.csv").read_text()
    code, out, err = run("evaluate", folder)
    assert code == 0 and out.startswith("mAP@all ")
    assert f"next: hadahash report {folder}" in err and f"hadahash index build {folder}" in err
    code, out, err = run("evaluate", folder, "--json", "--depth", "5")
    assert "next:" not in err
    assert json.loads(out)["depth"] == 5
    assert (
        json.loads(run("evaluate", folder, "--json", "--depth", "all", "--device", "cpu")[1])[
            "depth"
        ]
        is None
    )

    code, out, err = run("encode", folder, photos, "--out", tmp_path / "codes.npz")
    codes = Codes.load(tmp_path / "codes.npz")
    assert code == 0 and len(codes) == 48 and "48 codes of 16 bits" in out
    assert (
        "1 images could not be read" in err
        and "broken.jpg" in (tmp_path / "skipped.csv").read_text()
    )
    halves = []
    for shard in ("1/2", "2/2"):
        assert (
            run("encode", folder, photos, "--out", tmp_path / f"{shard[0]}.npz", "--shard", shard)[
                0
            ]
            == 0
        )
        halves.append(Codes.load(tmp_path / f"{shard[0]}.npz"))
    joined = Codes.concatenate(halves)
    assert joined.ids.tolist() == codes.ids.tolist() and (joined.packed == codes.packed).all()

    code, out, _ = run(
        "evaluate", "--queries", tmp_path / "codes.npz", "--database", tmp_path / "codes.npz"
    )
    assert code == 0 and out.startswith("mAP@all ")


def test_codebook_prints_its_figures_and_saves(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("codebook", "--classes", 10, "--bits", 32)
    assert code == 0 and "minimum distance                17" in out and "balance" in out
    saved = Codes.load(tmp_path / "codebook-10x32-far-s0.npz")
    assert len(saved) == 10 and saved.bits == 32
    code, out, _ = run(
        "codebook",
        "--classes",
        100,
        "--bits",
        32,
        "--design",
        "paper",
        "--json",
        "--out",
        tmp_path / "b.npz",
    )
    assert json.loads(out)["order"] == 128


def test_doctor_and_data_list(run: Run) -> None:
    code, out, _ = run("doctor")
    assert code == 0 and "torch" in out and "fast kernels" in out
    assert "python" in json.loads(run("doctor", "--json")[1])
    assert "cifar10" in run("data", "list")[1]


def test_doctor_says_which_runtime_and_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")

    def runtime() -> str:
        found: str = json.loads(run("doctor", "--json")[1])["runtime"]
        return found

    monkeypatch.delenv("HADAHASH_RUNTIME", raising=False)
    monkeypatch.setattr("hadahash.runtime.choice.has_gpu", lambda: False)
    assert runtime().startswith("onnx for exported models, which is faster without a GPU")
    monkeypatch.setattr("hadahash.runtime.choice.has_gpu", lambda: True)
    assert runtime().startswith("torch, for the GPU")
    monkeypatch.setenv("HADAHASH_RUNTIME", "torch")
    assert runtime() == "torch (asked for)"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("train", "nowhere/at/all", "--out", "x"), 1, "nowhere/at/all"),
        (("train", "digits", "--out", "x", "--bits", 0), 2, "bits must be an integer >= 1"),
        (("train", "digits", "--out", "x", "--method", "hdch"), 2, "Did you mean 'hcdh'?"),
        (("train", "digits", "--out", "x", "--backbone", "alexnt"), 2, "Did you mean 'alexnet'?"),
        (("train", "digits", "--out", "x", "--set", "epochz=3"), 2, "Did you mean 'epochs'?"),
        (("train", "digits", "--out", "x", "--set", "epochs=many"), 2, "epochs must be an integer"),
        (("train", "digits", "--out", "x", "--set", "epochs"), 2, "name=value"),
        (("train", "digits", "--out", "x", "--weights", "no.pth"), 1, "no weights file"),
        (("train", "digits", "--out", "x", "--config", "no.toml"), 1, "no.toml"),
        (("evaluate",), 2, "Give a run"),
        (("evaluate", "nowhere"), 1, "nowhere does not exist"),
        (
            ("evaluate", "--queries", "q.npz", "--database", "d.npz", "--depth", 0),
            2,
            "depth must be >= 1 or 'all', got 0.",
        ),
        (
            ("evaluate", "--queries", "q.npz", "--database", "d.npz", "--depth", "9" * 5000),
            2,
            "--depth must be an integer >= 1 or 'all', got 999",
        ),
        (("encode", "nowhere", "."), 1, "hadahash train"),
        (("encode", "nowhere", ".", "--shard", "5/4"), 2, "1 <= i <= n, got 5/4"),
        (("codebook", "--classes", 1), 2, "classes must be >= 2"),
        (("codebook", "--classes", 10, "--design", "fare"), 2, "Did you mean 'far'?"),
        (("reproduce", "table9"), 2, "table2"),
    ],
)
def test_bad_input_is_a_one_line_error_with_a_remedy(
    arguments: tuple[object, ...],
    code: int,
    words: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    got, out, err = run(*arguments)
    assert got == code, err
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and words in err
    assert not list(tmp_path.rglob("*.safetensors")), "nothing half-done stays behind"


def test_one_class_only(run: Run, tmp_path: Path) -> None:
    from toys import make_toy, write_folder

    pixels, labels = make_toy(8, seed=0)
    photos = write_folder(tmp_path / "photos", pixels, np.zeros_like(labels))
    code, _, err = run("train", photos, "--out", tmp_path / "run", *TINY)
    assert code == 1 and err.count("\n") == 1 and "class" in err


def test_a_full_disk_at_save_is_a_one_line_error_and_leaves_the_old_model(
    trained: tuple[Path, Path], tmp_path: Path
) -> None:
    """A file-size limit simulates a full disk: the weights do not fit."""
    folder, photos = trained
    before = {path.name: path.read_bytes() for path in folder.glob("model-*.safetensors")}
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from hadahash.cli import main; "
        f"import hadahash.hasher; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); sys.argv = {['hadahash', 'train', str(photos), '--out', str(folder), *TINY, '--seed', '1', '--overwrite']!r}; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("error: Cannot write")
    assert {path.name: path.read_bytes() for path in folder.glob("model-*.safetensors")} == before
    assert not list(folder.glob(".*.part"))


def test_output_into_a_closed_pipe_prints_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m hadahash codebook --classes 10 --out /dev/null/x.npz 2>&1 | head -c 1; {sys.executable} -m hadahash --help | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stdout + done.stderr


PLUGIN = '''
from hadahash.methods import METHODS, Method

@METHODS.register("from-a-file")
class FromAFile(METHODS.get("lsh")):
    """A method of a user."""
'''


def test_a_plugin_is_loaded_for_any_command(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    command = [sys.executable, "-m", "hadahash", "--plugin", "mine.py", "settings", "from-a-file"]
    for arguments, expected in ((command, 0), (command[:3] + command[5:], 2)):
        done = subprocess.run(
            arguments, capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path
        )
        assert done.returncode == expected, done.stderr
        assert expected == 0 or "Unknown" in done.stderr


def test_an_empty_out_is_refused(run: Run, trained: tuple[Path, Path], tmp_path: Path, monkeypatch):
    """An empty text would mean the current folder."""
    monkeypatch.chdir(tmp_path)
    for command in (("train", trained[1]), ("encode", trained[0], trained[1])):
        code, _, err = run(*command, "--out", "")
        assert code == 2 and "the path is empty. Use . for the current folder." in " ".join(
            err.split()
        )
    assert not list(tmp_path.iterdir())


def test_encoding_unreadable_images_only_is_an_error(
    run: Run, trained: tuple[Path, Path], tmp_path: Path
):
    (tmp_path / "photos").mkdir()
    for name in ("a.jpg", "b.png"):
        (tmp_path / "photos" / name).write_bytes(b"no image")
    out = tmp_path / "codes.npz"
    out.write_bytes(b"codes of an earlier job")
    code, _, err = run("encode", trained[0], tmp_path / "photos", "--out", out)
    assert code == 1
    assert (
        "No image can be read (2 unreadable), so nothing was written. First failure: a.jpg" in err
    )
    assert out.read_bytes() == b"codes of an earlier job"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["codes.npz", "photos"]


def test_codes_of_a_trained_run_have_content_bits(
    run: Run, trained: tuple[Path, Path], tmp_path: Path
):
    code, out, _ = run("encode", *trained, "--out", tmp_path / "codes.npz")
    assert code == 0 and "48 codes of 16 bits and 128 content bits in" in out
    assert Codes.load(tmp_path / "codes.npz").content_bits == 128


def test_without_a_gpu_the_backbone_stays_fixed(
    run: Run, trained: tuple[Path, Path], tmp_path: Path
):
    small = ["--bits", "16", "--set", "size=32", "--set", "epochs=1", "--device", "cpu"]
    code, _, err = run("train", trained[1], "--out", tmp_path / "a", "--content-bits", 0, *small)
    assert code == 0
    assert "No GPU: the backbone stays fixed and only the head is trained. --no-frozen" in err
    assert re.search(r"trained on 44 images in [\d.]+ s \([\d.]+ s computing their features\)", err)
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    assert record["settings"]["frozen"] is True and "content_bits" not in record
    code, _, err = run("train", trained[1], "--out", tmp_path / "b", "--no-frozen", *small)
    assert code == 0 and "No GPU" not in err
    assert re.search(r"trained on 44 images in [\d.]+ s \([\d.]+ s reading them\)", err)
    record = json.loads((tmp_path / "b" / "run.json").read_text())
    assert record["settings"]["frozen"] is False and record["content_bits"] == 128
