"""JSON in parts is that of `json.dumps`."""

from __future__ import annotations

import json
import zlib

import pytest

from hadahash import json_parts as module
from hadahash.index.storage.manifest import checksum
from hadahash.json_parts import json_parts

VALUES = [
    *(None, 1.5, 'x\ud800"', [], {}, [[]], {"a": {}}, {1: 2}),
    {"b": [*range(11)], "a": {"d": [["x", 1]] * 9, "c": [{"f": 1, "e": 2}] * 5}},
    [f"{number}.jpg" for number in range(25)],
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("part", [1, 4, 4096])
def test_parts_are_those_of_json(monkeypatch, value, part):
    monkeypatch.setattr(module, "_PART", part)
    for sort_keys in (False, True):
        parts = list(json_parts(value, sort_keys=sort_keys))
        assert "".join(parts) == json.dumps(value, sort_keys=sort_keys)
    assert max(map(len, json_parts([*range(100)]))) < 10 * part + 10


def test_no_part_of_a_checksum_is_long(monkeypatch):
    lengths = []
    real = json.dumps
    monkeypatch.setattr(
        module.json,
        "dumps",
        lambda *args, **more: lengths.append(real(*args, **more)) or lengths[-1],
    )
    content = {"ids": [f"{number:06}" for number in range(50_000)], "n": 1}
    assert checksum(content) == zlib.crc32(real(content, sort_keys=True).encode())
    assert len(lengths) > 10 and max(map(len, lengths)) < 50_000
