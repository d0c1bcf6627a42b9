from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from trials import Trials


@pytest.fixture
def trials() -> Iterator[Callable[[str, str], Trials]]:
    """trials(area, what): the trials of a test, stored and checked at its end."""
    made: list[Trials] = []

    def make(area: str, what: str) -> Trials:
        made.append(Trials(area, what))
        return made[-1]

    yield make
    for each in made:
        each.finish()
