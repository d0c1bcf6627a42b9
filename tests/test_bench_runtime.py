"""The benchmark of both runtimes: bits of trained models, and the packages of the container."""

from __future__ import annotations

import re
import shutil

import pytest
from benches import ROOT, load_bench

from hadahash.model import HashModel
from hadahash.onnx_files import export_onnx


@pytest.fixture
def bench(monkeypatch):
    return load_bench("runtime", monkeypatch)


def test_packed_codes_of_a_trained_model_are_compared(bench, saved, toy_folder, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    with pytest.raises(SystemExit, match="hadahash export"):
        bench.trained(run, toy_folder, 12)
    export_onnx(HashModel.load(run, device="cpu", runtime="torch"), run)
    found = bench.trained(run, toy_folder, 12)
    assert found["photos"] == 12 and found["model"]["backbone"]
    expected = {"class", "content", "all"} if found["model"]["content_bits"] else {"class", "all"}
    assert set(found["equal"]) == expected and min(found["equal"].values()) > 0.99
    assert 0 <= found["images_with_all_equal"] <= 1


def test_the_container_has_the_extras_of_the_dockerfile(bench):
    (extras,) = set(re.findall(r"'\.\[([\w,]+)\]'", (ROOT / "Dockerfile").read_text())) - {
        "train,onnx,offline"  # of the stage that exports the ready-made model
    }
    assert bench.SETS["container"] == tuple(extras.split(","))
    assert set(bench.STARTED) == {"torch", "onnx"}
