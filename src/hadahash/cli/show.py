"""Former names of `hadahash.cli.output`, until every command uses the new ones."""

from __future__ import annotations

from .output import as_json as as_json
from .output import info as say
from .output import is_interactive as watched
from .output import progress as progress
from .output import result as result

__all__ = ["as_json", "progress", "result", "say", "watched"]
