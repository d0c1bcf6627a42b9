"""Bill of materials, audit of dependencies, and hashes of pinned versions."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


def load(name):
    return importlib.import_module(name)


# ---- pins and hashes -----------------------------------------------------------------------------

PAGE = """<!DOCTYPE html><html><body>
<a href="https://host/p/Some_Thing-1.0-py3-none-any.whl#sha256=aa" data-requires-python="3">x</a>
<a href="../../p/some-thing-1.0.tar.gz#sha256=bb">x</a>
<a href="../../p/some_thing-1.0.1.tar.gz#sha256=cc">x</a>
<a href="../../p/some-thing-extra-1.0.tar.gz#sha256=dd">x</a>
<a href="https://host/p/some_thing-1.0%2Bcpu-cp311-cp311-linux_x86_64.whl#sha256=ee">x</a>
<a href="https://host/p/some_thing-1.0.egg#sha256=ff">x</a><a href="https://host/q#md5=00">x</a>
</body></html>"""


def test_hashes_are_those_of_all_files_of_the_version():
    pins, hashes = load("pins"), load("hashes")
    assert hashes.hashes_of(PAGE, pins.Pin("some-thing", "1.0")) == ["aa", "bb"]
    assert hashes.hashes_of(PAGE, pins.Pin("some-thing", "1.0.1")) == ["cc"]
    assert hashes.hashes_of(PAGE, pins.Pin("some-thing", "1.0+cpu")) == ["ee"]


def test_hashes_are_written_and_read(tmp_path):
    pins, hashes = load("pins"), load("hashes")
    known = {
        pins.Pin("b", "2", 'python_version >= "3.11"'): ["aa", "bb"],
        pins.Pin("a-b", "1.0+cpu"): ["cc"],
    }
    hashes.write_hashes(known, tmp_path / "x.txt")
    assert hashes.read_hashes(tmp_path / "x.txt") == known


def make_wheel(folder):
    """The smallest package that pip installs; returns its sha256."""
    about = "some_thing-1.0.dist-info"
    path = folder / "some_thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: some-thing\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_pip_checks_the_hashes(tmp_path):
    pins, hashes = load("pins"), load("hashes")
    digest, file = make_wheel(tmp_path), tmp_path / "x.txt"
    command = [sys.executable, "-m", "pip", "download", "--no-index", "--find-links", tmp_path]
    command += ["--require-hashes", "--no-deps", "-d", tmp_path / "out", "-r", file]
    for listed, accepted in [(["00" * 32, digest], True), (["00" * 32], False)]:
        hashes.write_hashes({pins.Pin("some-thing", "1.0", 'python_version > "3"'): listed}, file)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == accepted, done.stderr
        assert accepted or "DO NOT MATCH THE HASHES" in done.stderr


def test_every_pin_has_hashes():
    """If this fails: python tools/hashes.py"""
    pins, hashes = load("pins"), load("hashes")
    stored, pinned = hashes.read_hashes(), pins.read_pins()
    assert set(stored) == set(pinned) and len(pinned) > 100
    assert all(re.fullmatch("[0-9a-f]{64}", each) for listed in stored.values() for each in listed)
    assert all(stored.values())


def test_a_line_that_is_no_pin_is_refused(tmp_path):
    pins = load("pins")
    (tmp_path / "c.txt").write_text("# x\na==1 # y\nb>=2\n")
    with pytest.raises(SystemExit, match=r"c\.txt:3 must be name==version, got: b>=2"):
        pins.read_pins(tmp_path / "c.txt")


# ---- bill of materials ---------------------------------------------------------------------------


def test_the_bill_of_materials(tmp_path, monkeypatch):
    bom, pins = load("bom"), load("pins")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr(sys, "argv", ["bom.py", "--out", str(tmp_path / "bom.json")])
    bom.main()
    bill = json.loads((tmp_path / "bom.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    components = {each["name"]: each for each in bill["components"]}
    installed = pins.installed()
    assert set(components) == set(installed) - {"hadahash"}
    numpy = components["numpy"]
    assert numpy["version"] == installed["numpy"].version and numpy["type"] == "library"
    assert numpy["purl"] == numpy["bom-ref"] == f"pkg:pypi/numpy@{numpy['version']}"
    assert "BSD" in json.dumps(numpy["licenses"])
    refs = {each["bom-ref"] for each in bill["components"]}
    refs |= {bill["metadata"]["component"]["bom-ref"]} if "hadahash" in installed else set()
    graph = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert set(graph) == refs and all(set(listed) <= refs for listed in graph.values())
    assert len(refs) == len(set(refs)) and numpy["bom-ref"] in graph[components["scipy"]["bom-ref"]]


# ---- audit ---------------------------------------------------------------------------------------


def record(**affected):
    package = {"ecosystem": "PyPI", "name": "Some_Thing"}
    return {"id": "PYSEC-1", "summary": "Bad.", "affected": [{"package": package, **affected}]}


def ranged(*events):
    return record(ranges=[{"type": "ECOSYSTEM", "events": list(events)}])


@pytest.mark.parametrize(
    ("given", "affected"),
    [
        (record(versions=["1.0", "2.0"]), {"1.0", "2.0"}),
        (ranged({"introduced": "0"}, {"fixed": "1.5"}), {"1.0"}),
        (ranged({"introduced": "1.5"}), {"1.5", "2.0"}),
        (ranged({"introduced": "0"}, {"last_affected": "1.5"}), {"1.0", "1.5"}),
        (ranged({"introduced": "0"}, {"fixed": "1.5"}, {"introduced": "1.9"}), {"1.0", "2.0"}),
        (ranged({"introduced": "zero?"}), {"1.0", "1.5", "2.0"}),
        ({**record(versions=["1.0"]), "withdrawn": "2020-01-01T00:00:00Z"}, set()),
        ({"affected": [{"package": {"ecosystem": "npm", "name": "some-thing"}}]}, set()),
        ({}, set()),
    ],
)
def test_advisories(given, affected):
    audit = load("audit")
    versions = {("some-thing", each) for each in ("1.0", "1.5", "2.0")} | {("other", "1.0")}
    found = audit.check_advisories(versions, [given])
    assert {finding.text.partition(":")[0] for finding in found} == affected
    assert {finding.package for finding in found} <= {"some-thing"}


def test_advisories_from_folder_zip_and_file(tmp_path):
    audit = load("audit")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.json").write_text(json.dumps(record()))
    (tmp_path / "two.json").write_text(json.dumps([record(), record()]))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("PYSEC-1.json", json.dumps(record()))
        archive.writestr("README", "x")
    for path, count in [("a", 1), ("two.json", 2), ("all.zip", 1)]:
        assert len(list(audit.read_advisories(tmp_path / path))) == count
    (tmp_path / "bad.json").write_text("{")
    for path in ("bad.json", "missing.json"):
        with pytest.raises(SystemExit, match="Cannot read advisories"):
            list(audit.read_advisories(tmp_path / path))


def test_the_audit_names_what_differs(tmp_path, monkeypatch, capsys):
    audit, pins = load("audit"), load("pins")
    packages = pins.installed()
    numpy = packages["numpy"].version
    wrong = [pins.Pin("numpy", "1.0"), pins.Pin("torch", "9", 'python_version < "3"')]
    found = {finding.package: finding.text for finding in audit.check_versions(wrong, packages)}
    assert found["numpy"] == f"{numpy} is installed, 1.0 is pinned"
    assert found["torch"].endswith("is not in constraints.txt")
    assert [each.package for each in audit.check_hashes(wrong[:1], {wrong[1]: ["aa"]})] == [
        "numpy",
        "torch",
    ]
    advisory = {"package": {"ecosystem": "PyPI", "name": "numpy"}, "versions": [numpy]}
    (tmp_path / "osv.json").write_text(json.dumps({"id": "X-1", "affected": [advisory]}))
    monkeypatch.setattr(sys, "argv", ["audit.py", "--advisories", str(tmp_path / "osv.json")])
    with pytest.raises(SystemExit) as ended:
        audit.main()
    out = capsys.readouterr().out
    assert ended.value.code and f"{numpy}: X-1" in out
    assert not [line for line in out.splitlines() if re.search(r"\b(AGPL|Affero)\b", line)]
