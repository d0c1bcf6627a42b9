"""Settings: text to types, ranges, unknown names, and no name in two groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from toys import one_line

from hadahash.config import AugmentConfig, InputConfig, TrainConfig
from hadahash.errors import UsageError
from hadahash.methods import METHODS
from hadahash.settings import (
    convert,
    fields_of,
    from_mapping,
    parse_assignments,
    parse_into,
    require,
)


@dataclass(frozen=True)
class Shape:
    width: int = 3
    ratio: float = 0.5
    closed: bool = False
    kind: Literal["round", "square"] = "round"
    limit: int | None = None
    steps: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Paint:
    color: str = "red"


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("5", int, 5),
        (5.0, int, 5),
        ("1e-3", float, 0.001),
        (2, float, 2.0),
        ("true", bool, True),
        ("No", bool, False),
        ("0", bool, False),
        (True, bool, True),
        (1, bool, True),
        (np.bool_(False), bool, False),
        (np.int16(5), int, 5),
        (np.float32(0.5), float, 0.5),
        (torch.tensor(0.25), float, 0.25),
        (np.array(3), int, 3),
        (Path("a") / "b", str, "a/b"),
        (np.array([4, 5]), tuple[int, ...], (4, 5)),
        ("round", Literal["round", "square"], "round"),
        ("none", int | None, None),
        (None, int | None, None),
        ("7", int | None, 7),
        ("1,2,3", tuple[int, ...], (1, 2, 3)),
        ([4, 5], tuple[int, ...], (4, 5)),
    ],
)
def test_a_value_becomes_its_fields_type(text, hint, value):
    converted = convert("key", text, hint)
    assert converted == value
    assert type(converted) is type(value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("five", int),
        ("2.5", int),
        (2.5, int),
        (float("nan"), int),
        (float("inf"), int),
        (None, int),
        ("fast", float),
        ("maybe", bool),
        (2, bool),
        (0.5, bool),
        ([], bool),
        (True, int),
        (True, float),
        (5, str),
        (np.array([1, 2]), int),
        (torch.zeros(2), float),
        ("oval", Literal["round", "square"]),
        ("x", int | None),
        ("1,b", tuple[int, ...]),
        (3, tuple[int, ...]),
    ],
)
def test_an_impossible_value_is_refused_by_name(text, hint):
    with pytest.raises(UsageError, match=r"^width must be .*, got ") as caught:
        convert("width", text, hint)
    one_line(caught.value)


def test_the_error_says_what_is_allowed():
    with pytest.raises(UsageError, match="kind must be one of round, square, got oval"):
        from_mapping(Shape, {"kind": "oval"})
    with pytest.raises(UsageError, match="ratio must be a number"):
        from_mapping(Shape, {"ratio": "wide"})
    with pytest.raises(UsageError, match="closed must be true or false"):
        from_mapping(Shape, {"closed": "maybe"})


def test_parse_into_gives_each_dataclass_its_own_values():
    assert parse_into({"color": "blue", "width": "9"}, Shape, Paint) == [
        Shape(width=9),
        Paint("blue"),
    ]


def test_parse_into_and_from_mapping_refuse_unknown_keys_with_a_suggestion():
    with pytest.raises(UsageError, match=r"Unknown setting 'widht'. Did you mean 'width'"):
        parse_into({"widht": 3}, Shape, Paint)
    with pytest.raises(UsageError, match=r"Unknown setting 'colour'. Did you mean 'color'"):
        from_mapping(Paint, {"colour": "blue"})


def test_fields_of_gives_the_dataclass_of_each_field():
    owners = fields_of(Shape, Paint)
    assert owners["color"] is Paint and owners["width"] is Shape


def test_assignments_are_split_at_the_first_equals_sign():
    assert parse_assignments(["lr=0.1", "name=a=b"]) == {"lr": "0.1", "name": "a=b"}
    with pytest.raises(UsageError, match="write it as --set name=value"):
        parse_assignments(["lr"])


def test_require():
    require(True, "fine")
    with pytest.raises(UsageError, match="too small"):
        require(False, "too small")


@pytest.mark.parametrize("method", METHODS.names())
def test_no_setting_belongs_to_two_groups(method):
    kinds = (TrainConfig, AugmentConfig, InputConfig, METHODS.get(method).Settings)
    counted = Counter(field.name for kind in kinds for field in fields(kind))
    assert [name for name, count in counted.items() if count > 1] == []


IMPOSSIBLE = [
    ("epochs", 0),
    ("batch_size", 0),
    ("lr", 0.0),
    ("lr", "nan"),
    ("ema", 1.0),
    ("ema", -0.1),
    ("warmup", 1.5),
    ("momentum", 1.0),
    ("momentum", -0.5),
    ("weight_decay", -1.0),
    ("backbone_lr", -1.0),
    ("crop_area", 0.0),
    ("crop_area", 1.1),
    ("crop_aspect", 0.5),
    ("flip", 1.5),
    ("jitter", 1.0),
    ("mixup", -1.0),
    ("lr", "inf"),
    ("size", 0),
    ("size", 4),
    ("encode_size", 0),
    ("side", 0),
    ("crop", 0),
    ("crop", -1),
    ("crop", 3),
    ("crop_shift", -0.1),
    ("checkpoint_seconds", -1),
    ("checkpoint_seconds", "nan"),
    ("fit", "stretch"),
    ("schedule", "cosine"),
    ("precision", "fp8"),
    ("threshold", "max"),
]


@pytest.mark.parametrize(("key", "value"), IMPOSSIBLE)
def test_impossible_values_are_refused_by_name(key, value):
    with pytest.raises(UsageError, match=f"^{key} must be .*, got {value}") as caught:
        parse_into({key: value}, TrainConfig, AugmentConfig, InputConfig)
    one_line(caught.value)
