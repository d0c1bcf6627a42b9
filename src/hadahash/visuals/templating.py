"""Jinja2 environment of all pages. Every page is one file: no script, no external resource."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from .. import files


def render(template: str, **context: Any) -> str:
    """Render a template of `visuals/templates`. Values are escaped unless they are `Markup`.

    Args:
        template: File name of the template.
        **context: Variables of the template. A name that is missing is an error.

    Returns:
        The HTML text.

    Example:
        >>> "<title>a &lt;b&gt;</title>" in render("base.html.j2", title="a <b>")
        True
    """
    return _environment().get_template(template).render(context)


def write_page(path: str | Path, template: str, **context: Any) -> None:
    """Render a template into a file.

    Args:
        path: The file to write. Characters that UTF-8 cannot hold (names of files need not be
            valid Unicode) are replaced.
        template: File name of the template.
        **context: Variables of the template.

    Raises:
        StorageError: If the file cannot be written.
    """
    files.write_bytes(path, render(template, **context).encode("utf-8", "replace"))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("hadahash.visuals"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
