"""Lets the tests of this folder import `make_images`, which lies beside it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
