"""The documentation: code runs, commands exist, links are valid, numbers are measured."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_imports import EXEMPT, ORDER, SOURCE
from toys import make_toy, write_folder
from typer.testing import CliRunner

from hadahash.cli.app import app
from hadahash.files import read_json, read_toml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]


_FENCE = re.compile(r"^(```+)(\w*)\n(.*?)^\1$", flags=re.DOTALL | re.MULTILINE)
_LINK = re.compile(
    r"\]\(<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s+(\S+)|\b(?:href|src)=\"([^\"]+)\"",
    flags=re.MULTILINE,
)


def _anchors(text: str) -> set[str]:
    """The names that GitHub gives the headings of a page."""
    anchors: set[str] = set(re.findall(r"\b(?:id|name)=\"([^\"]+)\"", text))
    for heading in re.findall(r"^#+ +(.+?) *#*$", _FENCE.sub("", text), flags=re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = plain = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        again = 0
        while name in anchors:
            again += 1
            name = f"{plain}-{again}"
        anchors.add(name)
    return anchors


def _broken_links(page: Path) -> list[str]:
    """The links of a page to a missing file or heading."""
    broken = []
    for target in (
        "".join(found) for found in _LINK.findall(_FENCE.sub("", page.read_text("utf-8")))
    ):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file.read_text("utf-8"))):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_link_is_broken(page):
    assert _broken_links(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        '# One `two`, three!\n\n## Twice\n\n## Twice\n\n[a](#one-two-three) [b](page.md#twice-1) [c](https://x.org/y) ![d](d.png "D")\n'
        "[e](#twice-2) [f](other.md#x) [g][h]\n\n[h]: h.md\n\n```\n[i](i.md)\n# Not a heading\n```\n[j](#not-a-heading)\n",
        "utf-8",
    )
    assert _broken_links(page) == ["d.png", "#twice-2", "other.md#x", "h.md", "#not-a-heading"]


_CALL = re.compile(r"(?:(?:\w+=\S+ +)*(?:\S*/)?hadahash|(?:torchrun|python)\b.* -m hadahash) +(.+)")


def _commands(text: str) -> Iterator[str]:
    """The arguments of `hadahash` on the pages: in blocks, fenced or indented, and within a sentence."""
    fenced = "".join(
        body
        for _, language, body in _FENCE.findall(text)
        if language in ("", "sh", "bash", "console")
    )
    prose = _FENCE.sub("", text)
    indented = "\n".join(line.strip() for line in prose.splitlines() if line.startswith("    "))
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    for line in [*f"{fenced}\n{indented}".replace("\\\n", " ").splitlines(), *spans]:
        if call := _CALL.match(line):
            yield call[1]


def _refusal(command: str) -> str:
    """The error of the command line for a command, empty if it is valid. `--help` is appended so
    that it is not run."""
    words = shlex.split(command, comments=True)
    words = words[
        : next(
            (place for place, word in enumerate(words) if word in ("|", ">", "&&", "&", ";")), None
        )
    ]
    first = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    done = CliRunner().invoke(app, [*words[:first], "--help", *words[first:]])
    return "" if done.exit_code == 0 else f"hadahash {command}: {done.output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_on_the_pages_are_valid(page):
    assert [
        refusal for refusal in map(_refusal, _commands(page.read_text("utf-8"))) if refusal
    ] == []


def test_the_commands_of_a_page_are_found():
    text = (
        "`hadahash\ndoctor` and `torchrun -m hadahash train`\n\n    hadahash search x.index  # why\n\n```\n.venv/bin/hadahash index build \\\n"
        "  r p\ndocker build -t hadahash .\n```\n\n```python\nimport hadahash as hh\n```\n"
    )
    assert [shlex.split(command, comments=True) for command in _commands(text)] == [
        ["index", "build", "r", "p"],
        ["search", "x.index"],
        ["doctor"],
        ["train"],
    ]
    assert sum(len(list(_commands(page.read_text("utf-8")))) for page in PAGES) > 30


@pytest.mark.parametrize(
    "command",
    [
        "train photos/ --bitz 64",
        "index built runs/photos photos/",
        "no-such",
        "search x.index cat.jpg -k",
    ],
)
def test_an_unknown_command_or_option_is_refused(command):
    assert _refusal(command)


def test_the_modules_are_listed_in_the_order_of_imports():
    """CONTRIBUTING.md shows every module once, in the order of `tests/test_imports.py`."""
    rows = re.findall(
        r"^    (\S.*?)  ", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), flags=re.MULTILINE
    )
    shown = [name for row in rows for name in re.split(r", | -> ", row)]
    present = {
        path.stem
        for path in SOURCE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert shown == [name for name in ORDER if name in present - EXEMPT - {"_version"}]


def test_the_files_that_contributing_names_exist():
    table = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Where do I change")[2]
    named = re.findall(r"`([a-z_]+/[a-z_/<>*.]*|[a-z_]+\.py)`", table)
    assert len(named) > 25
    for name in named:
        if not name.startswith(("src/", "results/", "bench/")):
            assert list(SOURCE.glob(re.sub(r"<\w+>", "*", name).rstrip("/"))), name


# ---- README --------------------------------------------------------------------------------------

README = (ROOT / "README.md").read_text("utf-8")


def test_the_installation_serves_without_torch_in_the_process():
    (extras,) = re.findall(r'pip install "\.\[(.+?)\]"', README)
    assert {"train", "onnx", "serve"} <= set(extras.split(","))


def test_the_library_example_runs(tmp_path, monkeypatch):
    (example,) = re.findall(r"^```python\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    small = 'backbone="test_efficientnet", weights="none", size=32, epochs=2, device="cpu"'
    example = example.replace('backbone="efficientnet_lite0"', small)
    assert "test_efficientnet" in example
    monkeypatch.chdir(tmp_path)
    photos = write_folder(tmp_path / "photos", *make_toy(40, seed=0))
    shutil.copytree(photos, tmp_path / "more-photos")
    shutil.copytree(photos / "red", tmp_path / "more-photos" / "cats")
    shutil.copy(next(photos.rglob("*.png")), tmp_path / "query.jpg")
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["hits"].exact and 0 < names["report"].map <= 1


def test_the_table_of_extras_is_complete():
    shown = re.findall(r"^\| `(\w+)` \|", README, flags=re.MULTILINE)
    extras = read_toml(ROOT / "pyproject.toml")["project"]["optional-dependencies"]
    assert sorted(shown) == sorted(extras)


FILES = {
    "HCDH (codebook `far`)": "hcdh",
    "OrthoHash": "orthohash",
    "CSQ": "csq",
    "HashNet": "hashnet",
    "SSDH": "ssdh",
    "SDH": "sdh",
    "ITQ (unsupervised)": "itq",
}


@pytest.mark.parametrize("name", FILES)
def test_the_scores_are_those_of_the_results(name):
    (row,) = re.findall(rf"^\| {re.escape(name)} \| (.*) \|$", README, flags=re.MULTILINE)
    for shown, dataset in zip(
        row.split(" | "), ("cifar10", "tinyimagenet100", "voc2012"), strict=True
    ):
        stem = f"{FILES[name]}-64-efficientnet_lite0-s0-128px"
        result = read_json(ROOT / "results" / dataset / f"{stem}.json")
        assert shown == f"{result['map']:.3f}".removeprefix("0")
        if name.startswith("HCDH"):
            assert result["settings"]["codebook"] == "far"


def test_the_codebooks_are_those_of_the_factorial():
    means = {}
    for path in sorted((ROOT / "results" / "factorial").glob("*.jsonl")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for book, bits in itertools.product(("paper", "far"), (16, 64)):
            runs = {
                record["seed"]: record["map"]
                for record in records
                if (record["method"], record["bits"], record["varied"])
                == ("hcdh", bits, {"codebook": book})
                and "repeat" not in record["name"]
                and record["seed"] <= 22
            }
            means[path.stem, book, bits] = f"{sum(runs.values()) / len(runs):.3f}"[1:]
    names = ("cifar10", "tinyimagenet100", "voc2012")
    for book, form in (("paper", "HCDH has {}, {} and {} in"), ("far", "`far` has {}, {} and {};")):
        assert form.format(*(means[name, book, 64] for name in names)) in README
    text = "have {}\nand {}.".format(*(means["voc2012", book, 16] for book in ("paper", "far")))
    assert text in README


def test_it_fits_on_two_screens():
    assert len(README.splitlines()) <= 140
