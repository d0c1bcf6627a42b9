"""The C kernels with gcc's sanitizers: no access out of bounds, no undefined behavior."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "src" / "hadahash" / "native"
LEFT_OUT = "not compiler and not installation and not faster and not a_fork and not speed"
TESTS = {
    "tests/native/test_native_counts.py": LEFT_OUT,
    "tests/native/test_near_pairs.py": LEFT_OUT,
    "tests/index/test_search_kernel.py": LEFT_OUT,
    "tests/ranking/test_ranked_kernel.py": LEFT_OUT,
    "tests/data/test_reduced.py": "shrinking",
}

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and gcc"
    ),
]


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """A copy of the package whose kernels stop at the first error."""
    source = tmp_path_factory.mktemp("sanitized")
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "hadahash", source / "hadahash", ignore=ignored)
    options = "-g -O0 -std=c99 -ffp-contract=off -fPIC -shared -fno-omit-frame-pointer"
    command = [
        "gcc",
        *options.split(),
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        *map(str, sorted(NATIVE.glob("*.c"))),
        "-o",
        str(source / "hadahash" / "native" / "_hamming.abi3.so"),
    ]
    subprocess.run(command, check=True)
    return source


def run(source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    found = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True)
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(each.stdout.strip() for each in found),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(source),
        "HADAHASH_TORTURE": "0",
    }
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False
    )


def test_the_sanitizers_are_at_work(sanitized):
    """A table that claims more codes than it has is an error that must be found."""
    lines = """
        import sys, ctypes
        import numpy as np
        from hadahash import native
        from hadahash.native import search, tables
        assert sys.argv[1] in native.__file__, native.__file__
        assert native.describe().startswith("compiled"), native.describe()
        table = tables.Table(np.zeros((64, 1), np.uint64))
        queries = np.zeros((1, 1), np.uint64)
        limits = np.full(1, 65 << 32, np.uint64)
        search.nearest(table, queries, k=3, limits=limits)
        if sys.argv[2] == "wrong":
            array = (ctypes.c_uint64 * 1)()
            counts = np.zeros((1, 1, 65), np.int64)
            ranges = np.array([[0, 10**6]], np.int64)
            native._library().hadahash_count_distances(
                ctypes.addressof(array), 0, ranges.ctypes.data, 1, ctypes.addressof(array), 0,
                10**6, 1, 0, 65, counts.ctypes.data, 0)
    """
    for mode, works in (("right", True), ("wrong", False)):
        done = run(sanitized, "-c", textwrap.dedent(lines), str(sanitized), mode)
        assert (done.returncode == 0) is works, done.stderr[-3000:]


def test_the_tests_of_the_kernels_pass(trials, sanitized):
    tried = trials("C kernel", "tests of the kernels with address and undefined sanitizers")
    for path, chosen in TESTS.items():
        options = [
            "-o",
            f"pythonpath={sanitized} {ROOT / 'tests'}",
            "-p",
            "no:cacheprovider",
            "--capture=sys",
        ]
        done = run(sanitized, "-m", "pytest", "-q", "-k", chosen, *options, path)
        last = done.stdout.strip().splitlines()[-1:]
        reported = "Sanitizer" in done.stderr or "runtime error" in done.stderr
        passed = sum(line.count(".") for line in done.stdout.splitlines() if "%]" in line)
        if done.returncode == 0 and not reported:
            tried.count("survived", passed)
        else:
            tried.count("crashed")
            text = (done.stdout + done.stderr)[-3000:]
            tried.failures.append(f"{path}: {last} {text}")
