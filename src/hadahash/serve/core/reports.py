"""What does not work at present: shown by /readyz, and logged once."""

from __future__ import annotations

import logging

from ...errors import HadaHashError
from ..problem import Problem

LOG = logging.getLogger(__name__)
_SEE_LOG = "See the log of the service."


class Reports:
    """Problems of the parts of the service. A part has one problem or none."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._logged: dict[str, str] = {}

    @property
    def text(self) -> str | None:
        """All problems, without paths; None if there are none."""
        return " ".join(self._texts.values()) or None

    def show(self, part: str, problem: str) -> None:
        """Show a problem that is logged elsewhere.

        Args:
            part: What does not work.
            problem: One sentence without its period, and without paths.
        """
        self._texts[part] = f"{problem}. {_SEE_LOG}"

    def fail(self, part: str, problem: str, error: Exception) -> None:
        """Show a problem and log its error; an error that repeats is logged once.

        Args:
            part: What does not work.
            problem: As for `show`.
            error: The error.
        """
        self.show(part, problem)
        if self._logged.get(part) != repr(error):
            self._logged[part] = repr(error)
            unexpected = None if isinstance(error, (HadaHashError, Problem)) else error
            LOG.error("%s: %s", problem, error, exc_info=unexpected)

    def solve(self, part: str) -> None:
        """Forget the problem of a part.

        Args:
            part: What works.
        """
        self._texts.pop(part, None)
        self._logged.pop(part, None)
