"""The steps of a million photos, as `hadahash bench scale` measures them, with the usual record.

    python bench/scale.py --train
    python bench/scale.py --photos 10000 --codes random --out small.json

Options that are not those of every benchmark go to `hadahash bench scale`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence

import common


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the result."""
    parser = common.make_parser("scale", __doc__)
    given = sys.argv[1:] if arguments is None else list(arguments)
    options, others = parser.parse_known_args(given)
    options.command = shlex.join(["python", "bench/scale.py", *given])
    result = common.begin(options)
    environment = os.environ | {"PYTHONPATH": str(common.ROOT / "src")}
    command = [sys.executable, "-m", "hadahash", "bench", "scale", "--json", *others]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    common.finish(json.loads(done.stdout) | result, options)


if __name__ == "__main__":
    main()
