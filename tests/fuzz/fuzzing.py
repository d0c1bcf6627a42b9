"""Mutated bytes by hypothesis, and what a parser may do with them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st
from trials import Trials, is_long, seed

from hadahash.errors import HadaHashError

CORPUS = Path(__file__).parent / "corpus"
EXTREMES = [b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"[[[[", b"1e999", b"NaN",
            b"-1", b"null", b"\xed\xa0\x80", b"\0", b"\n", b'"', b"{", b"9" * 40]  # fmt: skip
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "put", "insert", "delete", "repeat", "cut"]),
        st.integers(0, 2**16),
        st.integers(0, 255),
        st.sampled_from(EXTREMES) | st.binary(min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=6,
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in a JSON value."""
    inside: Any = value.items() if isinstance(value, dict) else ()
    inside = enumerate(value) if isinstance(value, list) else inside
    for key, each in inside:
        yield (*path, key)
        yield from places(each, (*path, key))


def replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """A copy of a JSON value with another value at one place."""
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = replaced(value[place[0]], place[1:], new)
    return copy


def edited(content: bytes, edits: list[tuple[str, int, int, bytes]]) -> bytes:
    data = bytearray(content)
    for kind, place, number, new in edits:
        at = place % (len(data) + 1)
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << number % 8
        elif kind == "put":
            data[at : at + len(new)] = new
        elif kind == "insert":
            data[at:at] = new
        elif kind == "delete":
            del data[at : at + 1 + number % 32]
        elif kind == "repeat":
            data[at:at] = data[at : at + 16] * (number % 16)
        elif kind == "cut":
            del data[at:]
    return bytes(data)


def examples(short: int, long: int) -> Callable[[Any], Any]:
    """The settings of a harness: few and always the same examples, or many."""
    scale = float(os.environ.get("HADAHASH_TORTURE_SCALE", "1"))
    chosen = settings(
        max_examples=max(1, round(long * scale)) if is_long() else short,
        deadline=None,
        database=None,
        derandomize=not is_long(),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )

    def decorate(test: Any) -> Any:
        return chosen(hypothesis_seed(seed())(test) if is_long() else test)

    return decorate


def refused_or_read(parse: Callable[[], object]) -> str | None:
    """Call a parser: None, or the one line with which it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parse()
        except HadaHashError as error:
            text = str(error)
            assert text and "\n" not in text, text
            return text
    return None


def fuzz_file(
    tried: Trials,
    names: list[str],
    folder: Path,
    parse: Callable[[Path], object],
    count: int = 3000,
) -> None:
    """Give a parser mutations of files of the corpus, in a file of the same name."""
    originals = [(CORPUS / name).read_bytes() for name in names]

    @examples(30, count)
    @given(st.integers(0, len(names) - 1), EDITS)
    def harness(which: int, edits: list[Any]) -> None:
        path = folder / Path(names[which]).name
        path.write_bytes(edited(originals[which], edits))
        refused_or_read(lambda: parse(path))
        tried.count("survived")

    for name in names:  # the corpus itself is valid
        (folder / Path(name).name).write_bytes((CORPUS / name).read_bytes())
        assert refused_or_read(lambda name=name: parse(folder / Path(name).name)) is None, name
    try:
        harness()
    except Exception:
        tried.count("crashed")
        raise
