"""`hadahash settings`, and the page that is made of it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hadahash.cli.settings import parts, read
from hadahash.config import make
from hadahash.data.preprocess import AugmentSettings
from hadahash.errors import UsageError
from hadahash.hasher import ModelSettings
from hadahash.methods import METHODS
from hadahash.training import TrainSettings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
KINDS = [
    TrainSettings,
    AugmentSettings,
    ModelSettings,
    *{METHODS.get(name).Settings for name in METHODS.names()},
]

Run = Callable[..., tuple[int, str, str]]


def test_the_page_is_up_to_date(run: Run) -> None:
    code, out, _ = run("settings", "--markdown")
    assert code == 0 and out == PAGE.read_text("utf-8"), (
        "run: hadahash settings --markdown > docs/settings.md"
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_setting_is_there_with_its_default(kind: type) -> None:
    found = read(kind)
    assert [each.name for each in found] == [field.name for field in dataclasses.fields(kind)]
    for each, field in zip(found, dataclasses.fields(kind), strict=True):
        given = getattr(
            make(kind, {each.name: each.default}), each.name
        )  # the default, as one would type it
        assert given == (
            pytest.approx(field.default, rel=1e-3)
            if isinstance(field.default, float)
            else field.default
        )
        assert f"| `{each.name}` | {each.default} |" in PAGE.read_text("utf-8")


def test_what_a_setting_does_is_the_comment_behind_it() -> None:
    found = {each.name: each for part in parts(["hcdh"]) for each in part.settings}
    assert found["flip"] == ("flip", "0.5", "number", "probability of a mirror image")
    assert (
        found["size"].values == "whole number, none"
        and found["schedule"].values == "onecycle, paper"
    )
    common = [each for kind in KINDS[:3] for each in read(kind)]
    assert all(each.text for each in common), [each.name for each in common if not each.text]


@dataclasses.dataclass(frozen=True)
class Below(AugmentSettings):
    more: bool = False  # of everything


def test_a_dataclass_that_builds_on_another_has_the_comments_of_both() -> None:
    found = read(Below)
    assert found[-1] == ("more", "false", "true, false", "of everything")
    assert found[:-1] == read(AugmentSettings)


def test_a_method_is_shown_with_what_it_takes(run: Run) -> None:
    code, out, _ = run("settings", "mihash")
    assert (
        code == 0
        and re.search(r"^  mihash_bins +16 ", out, re.MULTILINE)
        and re.search(r"^  epochs +30 ", out, re.MULTILINE)
    )
    assert "sdh_anchors" not in out and "sdh_anchors" in run("settings")[1]
    assert "no settings of its own" in run("settings", "lsh")[1]
    titles = [part["title"] for part in json.loads(run("settings", "hcdh-h", "--json")[1])]
    assert titles == ["Training", "Augmentation", "Model", "Method hcdh-h"]
    code, out, err = run("settings", "mihsah")
    assert code == UsageError.exit_code and out == "" and "Did you mean 'mihash'?" in err
