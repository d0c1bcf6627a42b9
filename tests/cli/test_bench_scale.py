"""`hadahash bench scale`: every step runs and is measured."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from hadahash.cli import bench_scale
from hadahash.cli.bench_scale import Step, measure, steps
from hadahash.cli.scale_steps import Options, Place, main, random_photos
from hadahash.codes import Codes
from hadahash.errors import StorageError
from hadahash.index import Index
from hadahash.index.duplicates import find_duplicates


@pytest.mark.torture
def test_all_steps_are_measured(run, tmp_path):
    arguments = ["--photos", "120", "--codes", "random", "--folder", str(tmp_path), "--json"]
    code, out, _ = run("bench", "scale", *arguments)
    found = {each["step"]: each for each in json.loads(out)["steps"]}
    assert code == 0 and list(found) == [
        step.title for step in steps(tmp_path / "x", Options(120, codes="random"), train=False)
    ]
    assert all(each["seconds"] > 0 and each["peak_megabytes"] > 10 for each in found.values())
    assert found["scan the folder"]["found"] == found["read the table"]["rows"] == 120
    assert found["open the index, first search"]["items"] == 121  # with the photo that was added
    rule = {name: found["duplicates"][name] for name in ("threshold", "bits")}
    assert rule == {"threshold": 30, "bits": 192}  # the default: content bits and looks


def test_photos_and_table_are_those_of_the_options(tmp_path, capsys):
    asked = Options(120, seed=3)
    for name in ("photos", "scan", "table written", "table"):
        main([name, str(tmp_path), asked.to_text()])
    _, scanned, _, table = map(json.loads, capsys.readouterr().out.splitlines())
    assert scanned["found"] == table["rows"] == 120
    assert len({path.read_bytes() for path in Place(tmp_path, asked).photos.rglob("*.jpg")}) == 120
    titles = [step.title for step in steps(tmp_path, asked, train=False)]
    assert "write the photos" not in titles and "scan the folder" in titles


def test_a_step_is_measured_in_a_process_of_its_own():
    code = "import json; x = bytearray(1 << 27); print(json.dumps({'seconds': 3, 'found': 7}))"
    found = measure(Step("x", ["-c", code]))
    assert found["seconds"] == 3 and found["found"] == 7 and found["peak_megabytes"] > 128


def test_a_step_can_have_other_variables():
    code = "import os, json; print(json.dumps({'seconds': 1, 'seen': os.environ['SEEN']}))"
    found = measure(Step("x", ["-c", code]), environment={"SEEN": "yes"})
    assert found["seen"] == "yes" and "SEEN" not in os.environ


def test_the_build_and_the_training_are_those_of_the_commands(tmp_path):
    found = {each.title: each for each in steps(tmp_path, Options(500), train=True)}
    assert found["index build"].command[1:4] == ["hadahash", "index", "build"]
    assert found["train, one epoch"].command[1:3] == ["hadahash", "train"]
    assert found["index build"].whole and not found["scan the folder"].whole


@pytest.mark.parametrize("codes", ["random", "network"])
def test_the_model_is_exported_before_photos_are_added(tmp_path, codes):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    titles = [each.title for each in steps(tmp_path, Options(500, codes=codes), train=False)]
    assert titles.index("export --onnx") < titles.index("index add, one photo")
    (place := Place(tmp_path, Options(500))).run.mkdir()
    (place.run / "onnx.json").touch()
    again = [each.title for each in steps(tmp_path, Options(500, codes=codes), train=False)]
    assert "export --onnx" not in again
    given = steps(tmp_path / "x", Options(500, run=str(tmp_path), codes=codes), train=False)
    assert "export --onnx" not in [each.title for each in given]  # it is not the measurement's


def test_random_photos_have_known_duplicates():
    codes, looks = random_photos(3000, 0)
    both = np.concatenate([codes.content, looks], axis=1)
    for content in (codes.content, both):
        bits = 8 * content.shape[1]
        compared = Codes(codes.packed, codes.bits, content=content, content_bits=bits)
        assert 25 <= find_duplicates(Index.build(compared), bits * 5 // 32).surplus <= 30


def test_a_step_that_fails_is_named():
    with pytest.raises(StorageError, match="The step 'x' failed: ValueError: 7"):
        measure(Step("x", ["-c", "raise ValueError(7)"]))


@pytest.fixture
def measured(monkeypatch):
    """Options of the measurements, which are not done."""
    found = []
    monkeypatch.setattr(
        bench_scale, "_measure_all", lambda folder, asked, train, json: found.append(asked) or {}
    )
    return found


def test_a_folder_of_the_user_is_refused(run, measured, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "mine.jpg").write_text("mine")
    code, _, err = run("bench", "scale", "--photos", "100", "--folder", tmp_path, "--train")
    assert code == 2 and not measured
    assert "has other files (photos). Give an empty or a new --folder." in " ".join(err.split())
    assert [path.name for path in tmp_path.rglob("*")] == ["photos", "mine.jpg"]


def test_a_folder_is_used_again_with_the_same_options_only(run, measured, tmp_path):
    folder = tmp_path / "new"
    for more in ((), (), ("--threshold", "3")):
        assert run("bench", "scale", "--photos", "100", "--folder", folder, *more)[0] == 0
    code, _, err = run("bench", "scale", "--photos", "200", "--folder", folder)
    assert code == 2 and "(photos: 100 before, 200 now)" in " ".join(err.split())
    assert len(measured) == 3
    (folder / "scale.json").write_text("[]")
    code, _, err = run("bench", "scale", "--photos", "100", "--folder", folder)
    assert code == 1 and "scale.json is damaged" in " ".join(err.split()) and len(measured) == 3


def test_a_run_that_does_not_exist_is_refused(run, measured, tmp_path):
    code, _, err = run("bench", "scale", "--run", tmp_path / "typo")
    assert code == 2 and "--run must be the folder of a run, got" in " ".join(err.split())
    assert not measured and not (tmp_path / "typo").exists()


def test_wrong_options_are_refused(run):
    code, _, err = run("bench", "scale", "--photos", "5")
    assert code == 2 and "--photos must be >= 100, got 5." in err
    code, _, err = run("bench", "scale", "--codes", "no")
    assert code == 2 and "--codes must be network or random, got 'no'." in err
