"""The benchmark of the GPU, on a CPU and at a tiny size."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout

import numpy as np
import pytest
import torch
from benches import ROOT, load_bench

REVISION = "c" * 40


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """The benchmark; its new processes run in this one."""
    for name in ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))  # restored after the test
    module = load_bench("gpu", monkeypatch)
    compiling = module.gpu_compile

    def in_process(session, *shape):
        out = io.StringIO()
        with redirect_stdout(out):
            compiling.main(compiling.command(session, *shape)[2:])
        return json.loads(out.getvalue())

    monkeypatch.setattr(compiling, "run_child", in_process)
    return module


@pytest.fixture
def cifar(tmp_path):
    """Six files with ten random images each."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
        pixels = rng.integers(0, 256, (10, 3072), dtype=np.uint8)
        records = np.hstack([np.arange(10, dtype=np.uint8)[:, None], pixels])
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    return folder


def run(bench, out, *arguments):
    bench.main(
        ["--device", "cpu", "--smoke", "--revision", REVISION, "--out", str(out), *arguments]
    )
    return json.loads(out.read_text())


@pytest.mark.filterwarnings("ignore:.*is not the official CIFAR-10")
def test_every_part_is_measured(bench, cifar, tmp_path, capsys, monkeypatch):
    result = run(bench, tmp_path / "gpu.json", "--data-root", str(cifar))
    assert result["failed"] == {} and result["left_out"] == [] and result["revision"] == REVISION
    assert result["machine"]["matrix_flops"] > 0 and result["machine"]["pinned_bytes"] > 0
    work = result["work"]["32"]
    assert work["flops"] > 1e6 and work["outputs"] > work["convolved"] > 0
    encoded = result["encode"]["32"]
    assert encoded["images_per_second"] > 0 and set(encoded["batches"]) == {"8", "16"}
    assert set(encoded["batches"]["8"]["seconds_per_image"]) == {*bench.gpu_section.STAGES, "plain"}
    trained = result["train"]["32"]
    assert set(trained["fits"]["cifar"]) == set(trained["steps"]) == {"8", "16"}
    assert set(trained["steps"]["8"]) == set(bench.gpu_section.STEP)
    assert result["compile_seconds"] == result["compile"]["first"]["start_seconds"]
    assert result["step_kernels"]["32"]["seconds"] > 0  # a CPU has no kernels
    assert len(result["map"]["fits"]) == 1 and result["seconds_to_map"] > 0
    assert "## The GPU" in capsys.readouterr().out
    page = load_bench("page", monkeypatch).render({"gpu": result}, {})
    assert "| encode | 32 |" in page and "| 32 | cifar | 16 |" in page and "| 1 | 70 |" in page


def test_cases_without_time_are_left_out_and_measured_later(bench, tmp_path):
    out, parts = tmp_path / "gpu.json", ["--parts", "machine,work,map"]
    result = run(bench, out, *parts, "--seconds", "0")
    assert result["measured"] == [] and result["left_out"] == ["machine", "work", "map"]
    result = run(bench, out, *parts, "--resume")
    assert result["measured"] == ["machine", "work", "map"] and result["left_out"] == []
    assert result["map"] == {"note": bench.gpu_map.NO_DATA} and "seconds_to_map" not in result
    assert run(bench, out, "--parts", "machine", "--resume")["machine"] == result["machine"]
    with pytest.raises(SystemExit, match="another revision"):
        run(bench, out, "--resume", "--revision", "d" * 40)


def case(bench, part, name, run=lambda result: None):
    return bench.Case(part, name, 2, run)


def test_an_error_does_not_stop_the_other_cases(bench, tmp_path, monkeypatch):
    def fail(result):
        raise RuntimeError("out of memory")

    cases = [case(bench, "encode", "one", fail), case(bench, "encode", "two")]
    monkeypatch.setattr(bench, "select", lambda *given: cases)
    result = run(bench, tmp_path / "gpu.json")
    assert result["failed"] == {"one": "RuntimeError: out of memory"}
    assert result["measured"] == ["two"]


def test_what_is_not_compiled_in_time_is_left_out(bench, tmp_path, monkeypatch):
    options = bench.parse(["--out", str(tmp_path / "gpu.json")])
    device = bench.torch.device("cuda")  # nothing runs on it
    session = bench.Session(bench.Plan(), device, "none", tmp_path, bench.time.monotonic() + 9)
    shapes = []
    monkeypatch.setattr(bench.gpu_compile, "fill_cache", lambda _, given, __: shapes.append(given))
    cases, result = bench.select(session, options, {"measured": ["machine"]}), {"left_out": []}
    assert [each.name for each in cases[:3]] == ["work", "compile", "encode 224 px, batch 500"]
    first = [each for each in cases if each.rank == 2]
    assert bench.compiled(session, first, result, {}) == first
    assert shapes == [bench.gpu_compile.shapes_of(session, first)]
    assert shapes[0]["train 128 px, batch 128"] == ("train", 128, 128)
    later = [each for each in cases if each.rank == 5]
    assert bench.compiled(session, later, result, {bench.FILL: 10.0}) == []
    assert result["left_out"] == [each.name for each in later] and len(later) == 4


def test_the_time_to_a_map_is_that_of_the_slower_seed(bench):
    fits = [
        {"epochs": epochs, "seed": seed, "train_seconds": seconds, "map": found}
        for epochs, seed, seconds, found in (
            (1, 70, 0.3, 0.79),
            (1, 71, 0.3, 0.77),
            (2, 70, 0.6, 0.80),
            (2, 71, 0.7, 0.785),
            (3, 70, 0.9, 0.81),
        )
    ]
    assert bench.gpu_map.seconds_to(0.785, fits, 2) == 0.7
    assert bench.gpu_map.seconds_to(0.9, fits, 2) is None


def test_the_work_is_that_of_one_image(bench, tmp_path):
    """EfficientNet-Lite0 has 0.39 billion multiplications and 3.4 million weights."""
    session = bench.Session(bench.Plan(), bench.torch.device("cpu"), "none", tmp_path, 0.0)
    work = bench.gpu_work.work_of(session, 224)
    assert work["flops"] == pytest.approx(2 * 0.385e9, rel=0.01)
    assert work["parameters"] == 3_371_008 and work["bytes"] == 4 * work["outputs"]
    assert work["outputs"] / work["convolved"] == pytest.approx(2, rel=0.01)  # and one norm each


def test_the_roofline_follows_from_the_ceilings_and_the_work(bench):
    machine = {"matrix_flops": 8e14, "copy_bytes": 4e12}
    work = {"224": {"flops": 8e8, "bytes": 5e7, "fused_bytes": 2.5e7}}
    found = bench.gpu_section.bounds({"machine": machine, "work": work}, "224", 1)
    assert found == {"arithmetic": 1e6, "memory": 80_000, "fused": 160_000}
    training = bench.gpu_section.bounds({"machine": machine, "work": work}, "224", 3)
    assert training["memory"] == pytest.approx(80_000 / 3)


def test_fixed_norms_keep_their_statistics_in_training(monkeypatch):
    variants = load_bench("gpu_variants", monkeypatch)
    norm = torch.nn.BatchNorm2d(2)
    with variants.fixed_norms(True):
        assert not torch.nn.Sequential(norm).train()[0].training
    assert torch.nn.Sequential(norm).train()[0].training


def test_the_page_has_the_mean_of_each_variant(monkeypatch):
    section = load_bench("gpu_section", monkeypatch)
    fit = {"norms": "batch", "batch": 128, "lr": 0.1}
    fits = [
        {**fit, "seed": seed, "validation_map": value, "images_per_second": 1000}
        for seed, value in ((1, 0.9), (2, 0.8))
    ]
    faster = [
        {**each, "lr": 0.2, "validation_map": each["validation_map"] - 0.01 * each["seed"]}
        | {"images_per_second": 1250}
        for each in fits
    ]
    fits += faster
    failed = {**fit, "batch": 256, "seed": 1, "failed": "out of memory"}
    settings = {"size": 128, "epochs": 18}
    result = {"method": "hcdh-far", "bits": 64, "settings": settings, "fits": [*fits, failed]}
    lines = section.gpu_variants(result)
    assert "| batch | 128 | 0.1 | 1,000 |  | 0.8500 (0.0707) |  | 2 |" in lines
    assert "| batch | 128 | 0.2 | 1,250 | 25% | 0.8350 (0.0778) | 0.0100, 0.0200 | 2 |" in lines
    assert "| batch | 256 | 0.1 |  |  | failed |  | 1 |" in lines


# ---- Version 0.1 ---------------------------------------------------------------------------------

OLD = """
import numpy as np
from types import SimpleNamespace as Made
__version__ = "0.1.0"
class Hasher:
    def __init__(self, method, *, size, side=None, batch=None, epochs=1, **settings):
        self.preprocess, self.batch, self.epochs = Made(side=side), batch, epochs
    def fit(self, pixels, labels):
        steps = self.epochs * len(pixels) // (self.batch or 1)
        rate = 4.0 * pixels.shape[1]
        seconds = steps * (self.batch or 1) / rate + 60
        self.outcome = Made(steps=steps, seconds=seconds, images_per_second=rate)
        return self
    def encoder(self):
        return Made(batch=5)
    def encode(self, pixels):
        return np.zeros(len(pixels))
"""


def test_version_0_1_is_measured_in_processes_of_its_own(bench, tmp_path, monkeypatch):
    package = tmp_path / "old" / "src" / "hadahash"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(OLD)
    options = ["--parts", "old", "--old", str(tmp_path / "old")]
    result = run(bench, tmp_path / "gpu.json", *options)
    assert result["failed"] == {} and len(result["measured"]) == 2
    encoded, trained = result["before"]["encode"]["32"], result["before"]["train"]["32"]
    assert encoded["images_per_second"] > 0 and encoded["side"] == 37 and encoded["batch"] == 5
    assert trained["images_per_second"] == 4 * 32 and trained["version"] == "0.1.0"
    assert trained["start_seconds"] == pytest.approx(60) and trained["process_seconds"] > 0
    assert result["before"]["compile_seconds"] == trained["start_seconds"]
    page = load_bench("page", monkeypatch).render({"gpu": result}, {})
    assert "| train | 32 | 8 | 128 [128, 128] | 60.00 |" in page


def test_version_0_1_is_left_out_without_time_and_without_sources(bench, tmp_path, capsys):
    options = bench.parse(["--out", str(tmp_path / "gpu.json"), "--old", str(ROOT)])
    session = bench.Session(bench.Plan(), torch.device("cuda"), "none", tmp_path, 0.0)
    cases = [each for each in bench.select(session, options, {"measured": []}) if each.rank == 3]
    assert [each.name for each in cases] == [
        "encode 224 px, version 0.1",
        "encode 128 px, version 0.1",
        "train 128 px, version 0.1",
        "train 224 px, version 0.1",
    ]
    result = {"left_out": []}
    late = bench.Session(
        bench.Plan(), torch.device("cuda"), "none", tmp_path, bench.time.monotonic() + 30
    )
    bench.run(late, cases, result, options)
    assert result["left_out"] == [each.name for each in cases]
    with pytest.raises(SystemExit):
        bench.parse(["--old", str(tmp_path / "nothing")])
    assert "--old must be a folder with src/hadahash" in capsys.readouterr().err


def test_parts_are_measured_again_in_a_resumed_run(bench, tmp_path, monkeypatch):
    out = tmp_path / "gpu.json"
    first = run(bench, out, "--parts", "machine,work")
    again = run(bench, out, "--parts", "machine", "--resume", "--again")
    assert again["machine"] != first["machine"] and again["work"] == first["work"]
    assert again["measured"] == ["machine", "work"]
    assert again["command"] == first["command"]
    assert [each["command"][-7:] for each in again["resumed"]] == ["--again"]
    page = load_bench("page", monkeypatch).render({"gpu": again}, {})
    assert f"then parts by `{again['resumed'][0]['command']}`" in page
