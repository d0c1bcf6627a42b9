"""Plug-ins."""

from collections.abc import Sequence


def load_plugins(paths: Sequence[str]) -> None:
    """Stub."""
