"""The kernels without Python: plain C, the library, and a build for aarch64 print the same text."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hadahash import native

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "hadahash" / "native"
KERNELS = sorted(FOLDER.glob("*.c"))
CASES = [ROOT / "tests" / "native" / f"{name}_cases.c" for name in ("kernel", "ranked")]
STRICT = ["-std=c99", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
CROSS, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
COUNT = 859  # cases that the program prints

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or sys.platform == "win32", reason="needs a C compiler"
)


def build(compiler, program, *options):
    """The program of all cases, from sources and libraries."""
    command = [compiler, *STRICT, "-Wno-unused-function", f"-I{FOLDER}", *options]
    subprocess.run([*map(str, command), "-o", str(program)], check=True, timeout=300)
    return program


def run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What plain C prints; it compares its results with loops over single bits."""
    program = tmp_path_factory.mktemp("plain") / "cases"
    text = run(build("cc", program, "-O1", "-DHADAHASH_PORTABLE", *KERNELS, *CASES))
    assert len(text.splitlines()) == COUNT
    return text


@pytest.mark.skipif(not native.available(), reason="the compiled library is not built")
def test_the_library_equals_plain_c_with_every_instruction_set(expected, tmp_path):
    library = next(FOLDER.glob("_hamming*.so"))
    program = build("cc", tmp_path / "cases", *CASES, library, f"-Wl,-rpath,{library.parent}")
    for level in range(len(native.levels())):
        assert run(program, level) == expected, native.levels()[level]


@pytest.mark.skipif(
    not (shutil.which(CROSS) and shutil.which(EMULATOR)),
    reason=f"needs {CROSS} (package gcc-aarch64-linux-gnu) and {EMULATOR} (package qemu-user)",
)
def test_neon_equals_plain_c_in_an_emulator(expected, tmp_path):
    program = build(CROSS, tmp_path / "cases", "-O3", "-static", *KERNELS, *CASES)
    assert run(EMULATOR, program) == expected


@pytest.mark.skipif(platform.machine() not in ("aarch64", "arm64"), reason="needs an aarch64 CPU")
@pytest.mark.skipif(not native.available(), reason="the compiled library is not built")
def test_aarch64_uses_neon():
    assert native.levels() == ("neon",)


@pytest.mark.torture
@pytest.mark.parametrize("compiler", ["cc", CROSS])
def test_no_undefined_behavior(trials, tmp_path, expected, compiler):
    """Nor misaligned loads: codes and queries start at any word."""
    prefix = [] if compiler == "cc" else [EMULATOR]
    check = ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
    check += ["-fsanitize=address"] if compiler == "cc" else ["-static"]
    if not all(map(shutil.which, [compiler, *prefix])):
        pytest.skip(f"needs {compiler} and {prefix}")
    program = build(compiler, tmp_path / "cases", "-g", "-O0", *check, *KERNELS, *CASES)
    levels = native.levels() if compiler == "cc" else ["neon"]
    tried = trials("C kernel", f"all cases without Python, with sanitizers: {', '.join(levels)}")
    for trial in tried.numbers(len(levels), len(levels)):
        level = trial.number % len(levels)
        with trial:
            assert run("env", "ASAN_OPTIONS=detect_leaks=0", *prefix, program, level) == expected
