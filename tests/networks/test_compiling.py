"""Compiled networks are kept on disk: the next process finds them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
from toys import one_line

from hadahash.errors import UsageError
from hadahash.networks import compiling

CHILD = """
import json, torch
from torch._dynamo.utils import counters
from hadahash.networks.compiling import compile_cached

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
inputs = torch.randn(2, 4)
found = compile_cached(net)(inputs)
found.sum().backward()
error = float((found - net(inputs)).abs().max())
print(json.dumps({"error": error, **counters["inductor"], **counters["aot_autograd"]}))
"""


def _compile(folder: Path) -> dict[str, float]:
    """Compile in a process of its own, and count what the cache had."""
    kept = {key: value for key, value in os.environ.items() if "INDUCTOR" not in key}
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env=kept | {"XDG_CACHE_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
    )
    return json.loads(done.stdout)


@pytest.mark.torture
def test_the_second_process_finds_what_the_first_compiled(tmp_path):
    first, second = (_compile(tmp_path) for _ in range(2))
    assert first["error"] < 1e-6 and second["error"] < 1e-6
    assert first["fxgraph_cache_miss"] > 0 and "fxgraph_cache_hit" not in first
    assert second["fxgraph_cache_hit"] > 0 and "fxgraph_cache_miss" not in second
    assert second["autograd_cache_hit"] > 0 and "autograd_cache_miss" not in second
    assert any((tmp_path / "hadahash" / "compiled").iterdir())


@pytest.fixture
def no_variables(monkeypatch):
    for name in [name for name in os.environ if name.startswith("TORCHINDUCTOR_")]:
        monkeypatch.delenv(name)
    for name in (compiling._FOLDER, *compiling._CACHES):  # removed again after the test
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_the_cache_folder_is_used(no_variables, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "data"))
    compiling.use_cache()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "data" / "hadahash" / "compiled")
    assert os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] == "1"


def test_the_default_folder_of_pytorch_is_replaced(no_variables, monkeypatch, tmp_path):
    """PyTorch puts it into the environment when its compiler is imported."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", default_cache_dir())
    compiling.use_cache()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "hadahash" / "compiled")


def test_settings_of_the_user_are_kept(no_variables, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
    monkeypatch.setenv("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")
    compiling.use_cache()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "elsewhere"
    assert os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] == "0"


def test_a_folder_that_cannot_be_written_is_not_used(no_variables, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    compiling.use_cache()
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


def _entry(path: Path, size: int, days: float) -> Path:
    """A file that was used some days ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    used = time.time() - 86_400 * days
    os.utime(path, (used, used))
    return path


@pytest.fixture
def compiled(no_variables, monkeypatch, tmp_path):
    """Compiled code as PyTorch lays it out, of 9 kB, and its locks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "hadahash" / "compiled"
    folder.mkdir(parents=True, mode=0o700)
    return {
        "now": _entry(folder / "ab" / "cabz.main.so", 3000, 0),
        "kernel": _entry(folder / "triton" / "0" / "LONG" / "k.cubin", 1000, 9),
        "kernel.json": _entry(folder / "triton" / "0" / "LONG" / "k.json", 1000, 2),
        "old": _entry(folder / "fxgraph" / "xy" / "fxyz" / "entry", 2000, 8),
        "new": _entry(folder / "ab" / "cabx.py", 2000, 1),
        "lock": _entry(folder / "locks" / "cabz.lock", 0, 30),
    }


@pytest.mark.parametrize(
    ("limit", "removed"),
    [
        ("", set()),
        ("9KB", set()),
        ("8.9KB", {"old"}),
        ("8KB", {"old", "kernel", "kernel.json"}),
        ("1KB", {"old", "kernel", "kernel.json", "new"}),  # another process may need the rest
    ],
)
def test_the_least_recently_used_code_gives_way(compiled, monkeypatch, limit, removed):
    monkeypatch.setenv("HADAHASH_COMPILE_CACHE", limit)
    compiling.use_cache()
    assert {name for name, path in compiled.items() if not path.exists()} == removed
    assert not removed or not compiled["old"].parent.exists(), "whole folders"


def test_a_folder_with_code_that_is_in_use_below_it_is_kept(compiled, monkeypatch):
    old = _entry(compiled["old"].parents[2] / "file", 5000, 30)
    monkeypatch.setenv("HADAHASH_COMPILE_CACHE", "13KB")
    compiling.use_cache()
    assert not old.exists() and all(path.exists() for path in compiled.values())


def test_what_is_read_is_in_use(compiled, monkeypatch):
    """PyTorch does not write to what it finds, so the time of reading counts, too."""
    status = compiled["old"].stat()
    os.utime(compiled["old"], (time.time() - 7200, status.st_mtime))
    monkeypatch.setenv("HADAHASH_COMPILE_CACHE", "8KB")
    compiling.use_cache()
    assert compiled["old"].exists() and not compiled["kernel"].exists()


def test_the_cache_of_compiled_code_can_be_off(compiled, monkeypatch):
    monkeypatch.setenv("HADAHASH_COMPILE_CACHE", "off")
    compiling.use_cache()
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    assert all(path.exists() for path in compiled.values())
    monkeypatch.setenv("HADAHASH_COMPILE_CACHE", "lots")
    with pytest.raises(UsageError, match="HADAHASH_COMPILE_CACHE must be a size") as caught:
        compiling.use_cache()
    one_line(caught.value)


def test_a_folder_that_the_user_chose_is_not_pruned(compiled, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(compiled["lock"].parents[1]))
    monkeypatch.setenv("HADAHASH_COMPILE_CACHE", "1KB")
    compiling.use_cache()
    assert all(path.exists() for path in compiled.values())
