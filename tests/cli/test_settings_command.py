"""`hadahash settings`, and the page that is generated with it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hadahash.cli.settings import read_groups, read_settings
from hadahash.config import AugmentConfig, InputConfig, TrainConfig
from hadahash.errors import UsageError
from hadahash.methods import METHODS
from hadahash.serve.settings import ServeSettings
from hadahash.settings import from_mapping, setting

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
KINDS = [
    TrainConfig,
    AugmentConfig,
    InputConfig,
    ServeSettings,
    *sorted(
        {METHODS.get(name).Settings for name in METHODS.names()}, key=lambda kind: kind.__name__
    ),
]

Run = Callable[..., tuple[int, str, str]]


def test_the_page_is_up_to_date(run: Run) -> None:
    code, out, _ = run("settings", "--markdown")
    assert code == 0 and out == PAGE.read_text("utf-8"), (
        "run: hadahash settings --markdown > docs/settings.md"
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_setting_is_listed_with_its_default_and_a_help_text(kind: type) -> None:
    found = read_settings(kind)
    assert [each.name for each in found] == [field.name for field in dataclasses.fields(kind)]
    for each, field in zip(found, dataclasses.fields(kind), strict=True):
        assert re.fullmatch(r"[A-Z0-9].*[.)]", each.help), f"{each.name}: {each.help!r}"
        given = getattr(
            from_mapping(kind, {each.name: each.default}), each.name
        )  # as typed on the command line
        expected = field.default
        assert given == (
            pytest.approx(expected, rel=1e-3) if isinstance(expected, float) else expected
        )
        assert f"| `{each.name}` | {each.default} |" in PAGE.read_text("utf-8")


@dataclasses.dataclass(frozen=True)
class Example:
    """An example."""

    side: int | None = setting(None, "Side in pixels.", ge=8)
    ratio: float = setting(0.25, "Ratio of the two.", gt=0, le=1)
    shape: str = setting("round", "Shape.")
    more: bool = False


def test_help_and_ranges_come_from_the_fields() -> None:
    assert [tuple(each) for each in read_settings(Example)] == [
        ("side", "none", "integer >= 8, none", "Side in pixels."),
        ("ratio", "0.25", "number > 0 and <= 1", "Ratio of the two."),
        ("shape", "round", "text", "Shape."),
        ("more", "false", "true, false", ""),
    ]


def test_one_group_or_the_settings_of_one_method(run: Run) -> None:
    code, out, _ = run("settings", "mihash")
    assert code == 0 and re.search(r"^  mihash_bins +16 ", out, re.MULTILINE)
    assert re.search(r"^  epochs +30 ", out, re.MULTILINE)
    assert "sdh_anchors" not in out and "sdh_anchors" in run("settings")[1]
    assert "no settings of its own" in run("settings", "lsh")[1]
    titles = [part["title"] for part in json.loads(run("settings", "hcdh-h", "--json")[1])]
    assert titles == ["Training", "Augmentation", "Input", "Method hcdh-h"]
    assert [group.title for group in read_groups("train")] == ["Training"]
    assert [group.title for group in read_groups("serve")] == ["Service"]
    assert {"Training", "Service"} < {group.title for group in read_groups()}
    for name, suggestion in (("mihsah", "mihash"), ("trian", "train")):
        code, out, err = run("settings", name)
        assert code == UsageError.exit_code and out == ""
        assert f"Did you mean '{suggestion}'?" in err
