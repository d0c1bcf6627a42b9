"""Every example runs and prints the expected output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
OUTPUT = {
    "digits.py": r"(?s)1,618 images as 6,472 bytes.*mAP (0\.9[5-9]\d|1\.000)\n.*saved and loaded: the same codes",
    "codebooks.py": r"(?m)^ *100 +64 +\d+ +32 +\d+ +32$",
}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert re.search(OUTPUT[name], done.stdout), done.stdout
