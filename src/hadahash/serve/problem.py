"""Errors that are sent to the client."""

from __future__ import annotations

from collections.abc import Mapping


class Problem(Exception):
    """A request that cannot be answered.

    Args:
        status: HTTP status code.
        code: Short name of the error, stable across versions.
        message: What went wrong.
        hint: What the client can do about it.
        headers: Additional response headers.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint
        self.headers = headers


def busy(message: str = "Too many requests in progress.") -> Problem:
    """Return the 503 answer that asks the client to retry."""
    return Problem(503, "busy", message, "Try again in a moment.", {"Retry-After": "1"})


def invalid(message: str, hint: str) -> Problem:
    """Return the 422 answer for parameters that are out of range or contradict each other."""
    return Problem(422, "bad_parameters", message, hint)


def unknown_id() -> Problem:
    """Return the 404 answer for an id that the index does not hold."""
    hint = "Ids are case-sensitive. A search lists the ids of its hits."
    return Problem(404, "unknown_id", "The index has no item with this id.", hint)


def model_changed() -> Problem:
    """Return the answer to a code of a model that the index had before an upgrade."""
    return Problem(
        409, "model_changed", "The index has another model now.", "Send the image again."
    )


def unknown_label(message: str) -> Problem:
    """Return the 404 answer for a label that no item has."""
    return Problem(404, "unknown_label", message, "Labels are case-sensitive.")
