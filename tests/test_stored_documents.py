"""The committed documents have what is in `results/`; test_reproduce.py compares them byte by byte."""

import json
import re

import pytest
from test_runner import ROOT

from hadahash.reproduce.collected import Collected
from hadahash.reproduce.plans import CONTENT, EXPERIMENTS, FACTORIALS
from hadahash.reproduce.recipe_trials import NAME as RECIPE
from hadahash.reproduce.recipes import list_recipes
from hadahash.reproduce.tuning import NAMES

DOCS, RESULTS = ROOT / "docs", ROOT / "results"
RENDER = "run: hadahash reproduce all --no-run"


def _measured(plan):
    keys = ("map", "validation_map")
    return [own for own in Collected(RESULTS / plan).records() if any(key in own for key in keys)]


@pytest.mark.parametrize("plan", [*FACTORIALS, *EXPERIMENTS, RECIPE])
def test_the_page_and_the_leaderboard_have_every_plan_with_results(plan):
    records = _measured(plan)
    entries = json.loads((DOCS / "tables" / "leaderboard.json").read_text("utf-8"))
    commands = " ".join(own["command"] for own in entries if own["source"] == plan).split()
    names = {f"{plan}/{own['dataset']}/{own['name']}": "map" in own for own in records}
    cells = set(names)
    listed = {name for name, final in names.items() if final and "-repeat" not in name}
    assert set(commands) & cells == listed, RENDER
    page = (DOCS / "results.md").read_text("utf-8")
    named = re.findall(r"^`hadahash reproduce (.+)`$", page, flags=re.MULTILINE)
    assert (plan in " ".join(named).split()) or not records, RENDER


def test_no_table_is_left_of_an_earlier_version():
    plans = [*FACTORIALS, *EXPERIMENTS, RECIPE, *NAMES, *CONTENT]
    known = {"leaderboard", *list_recipes(), *plans}
    stored = {path.stem for path in (DOCS / "tables").iterdir()}
    assert stored <= known
    assert {own for own in (*FACTORIALS, *EXPERIMENTS) if _measured(own)} <= stored, RENDER


def test_the_stated_numbers_of_results_are_those_of_the_records():
    text = (DOCS / "reproduce.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| \d+ \| (\d+) \|", text, flags=re.MULTILINE)
    assert len(rows) >= 5
    assert [(plan, int(count)) for plan, count in rows] == [
        (plan, len(_measured(plan))) for plan, _ in rows
    ]
