"""docs/performance.md shows the stored results and names those that are stale."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest
from benches import ROOT, load_bench

PAGE = ROOT / "docs" / "performance.md"
AGAIN = "run: python bench/page.py"


@pytest.fixture
def page(monkeypatch):
    return load_bench("page", monkeypatch)


@pytest.fixture
def stale(monkeypatch):
    return load_bench("stale", monkeypatch)


def test_the_page_names_exactly_the_stale_results(page, stale):
    try:
        found = stale.find_stale(ROOT)
    except stale.HistoryError as error:
        pytest.skip(str(error))
    assert page.read_stale(PAGE.read_text("utf-8")) == found, AGAIN


def test_the_page_shows_the_stored_results(page):
    shown = PAGE.read_text("utf-8")
    assert page.render(page.read_results(), page.read_stale(shown)) == shown, AGAIN


def test_parts_of_other_pages_show_the_stored_results(page):
    results = page.read_results()
    for part in page.page_parts.PARTS:
        text = (ROOT / "docs" / part.page).read_text("utf-8")
        assert page.page_parts.shown(part, text) == part.text(results[part.source]), AGAIN


def test_make_bench_repeats_what_the_page_says(page, stale):
    makefile = (ROOT / "Makefile").read_text().partition("\nbench: ")[2].partition("\nclean:")[0]
    by_hand = set(re.findall(r"`bench/(\w+)\.py`", " ".join(page.about())))
    repeated = set(re.findall(r"bench/(\w+)\.py", makefile)) - {"page"}
    assert repeated | by_hand == set(stale.MEASURED) and not repeated & by_hand
    assert all("--old" in line for line in makefile.splitlines() if "start.py" in line)


def test_each_side_is_compared_with_its_better_batch(page):
    speed = {
        "batch 1": {"torch": {"milliseconds_per_image": 20.0}},
        "batch 32": {"torch": {"milliseconds_per_image": 40.0}},
    }
    for batch, ms in (("batch 1", 8.0), ("batch 32", 5.0)):
        speed[batch]["onnx"] = {"milliseconds_per_image": ms}
    assert page.page_parts.better_batch({"speed": speed}) == 4.0


def test_figures_in_the_text_about_milvus_are_those_of_the_result(page):
    text = " ".join((ROOT / "docs" / "scale.md").read_text("utf-8").split())
    case = page.read_results()["milvus"]["cases"][-1]
    plain, fresh, label = (
        next(
            row["milliseconds_per_query"]
            for row in case["searches"]
            if (row["batch"], "fresh" in row and row["fresh"], "labels" in row) == (1, *which)
        )
        for which in ((False, False), (True, False), (False, True))
    )
    strong, fast = (plain[name] for name in list(plain)[:2])
    late = fresh[list(fresh)[1]]
    assert f"{strong:.0f} ms at 1e6 codes" in text
    assert f"takes {fast:.1f} ms. Such" in text
    assert f"took {late:.0f} ms instead of {fast:.1f} ms" in text
    assert f"one query with a label took {label[list(label)[1]]:.0f} ms" in text
    assert f"one without {fast:.1f} ms" in text
    assert f"took at most {case['peak_memory_gb']:.2f} GB" in text
    assert f"one writer reached {round(case['inserted_per_second'], -3):,.0f} at 1e6" in text
    part = round(case["inserted_per_second"] / case["removed_per_second"])
    removed = round(case["removed_per_second"], -3)
    assert f"About {removed:,.0f} items per second, 1/{part} of the rate of inserts" in text


def test_the_time_of_a_scan_in_the_text_about_clusters_is_that_of_the_result(page):
    large = page.read_results()["search"]["large"]["best"]
    case = next(each for each in large if (each["kind"], each["batch"]) == ("random", 1))
    ms = case["milliseconds_per_query"]["exact"]
    text = (ROOT / "docs" / "scale.md").read_text("utf-8")
    assert f"ten times as long for 1e9 | {ms:.0f} ms | {ms / 100:.2f} s |" in text


DUPLICATES = (  # rows of the table in docs/ranking.md, and their thresholds
    ("content bits fitted on the coll", "content bits (fitted on the files) and looks", 30),
    ("content bits of a run trained o", "content bits (trained on others) and looks", 30),
    ("content bits of the shipped pro", "content bits (lite0) and looks", 30),
    ("content bits of the run alone, threshold 4", "content bits", 4),
    ("content bits of the run alone, threshold 12", "content bits", 12),
    ("imagededup PHash", "PHash", 10),
    ("imagededup DHash", "DHash", 10),
    ("imagededup CNN, 1,280 floats", "CNN", 0.9),
    ("imagededup CNN, similarity 0.85", "CNN", 0.85),
)


@pytest.mark.parametrize(("row", "method", "threshold"), DUPLICATES)
def test_the_table_of_duplicates_shows_the_stored_result(page, row, method, threshold):
    stored = page.read_results()["duplicates"]["methods"][method]["thresholds"]
    figures = next(each for each in stored if each["threshold"] == threshold)
    recall = list(figures["recall"].values())
    shares = [*recall, sum(recall) / len(recall)]
    shown = ["1.0" if f"{share:.2f}" == "1.00" else f"{share:.2f}"[1:] for share in shares]
    cells = [f"{figures['pairs']:,}", f"{figures['false_pairs']:,}", *shown]
    text = (ROOT / "docs" / "ranking.md").read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith(f"| {row}"))
    assert line.endswith(f" | {' | '.join(cells)} |")


def test_every_stored_result_is_connected_with_code_that_exists(stale):
    stored = {path.stem for path in (ROOT / "bench" / "results").glob("*.json")}
    assert stored <= set(stale.MEASURED)
    for parts in stale.MEASURED.values():
        for part in parts:
            assert (ROOT / "src" / "hadahash" / part).exists(), part


@pytest.mark.parametrize(
    ("name", "parts"),
    {
        "start": "data encoding.py index methods photos runs training",
        "scale": "cli/bench_scale.py fitting.py methods networks training",
        "decode": "data/decode.py native/resize.c native/resize.py networks",
        "runtime": "data/decode.py data/preprocess.py ready_models.py",
    }.items(),
)
def test_results_are_connected_with_what_their_steps_run(stale, name, parts):
    assert set(parts.split()) <= set(stale.MEASURED[name])


def test_a_change_of_the_packages_makes_the_sizes_stale(stale, project):
    packages = project.root / "pyproject.toml"
    packages.write_text("first = 1\n")
    revision = project.commit()
    packages.write_text("first = 2\n")
    changed = "the code it measures has changed since"
    assert stale.why_stale(project.root, "runtime", {"revision": revision}) == changed
    assert stale.why_stale(project.root, "search", {"revision": revision}) is None


def test_a_page_without_stale_results_says_nothing_about_them(page):
    results = {"search": SEARCH}
    text = page.render(results, {})
    assert page.read_stale(text) == {} and "stale" not in text.lower()
    assert page.read_stale(page.render(results, {"bench/results/search.json": "why"})) == {
        "bench/results/search.json": "why"
    }


SIDE = {"kind": "random", "codes": 1_000_000, "bits": 64, "batch": 1}
SEARCH = {
    "command": "python bench/search.py",
    "date": "2030-01-02T03:04:05+00:00",
    "revision": "b" * 40,
    "hardware": "A processor, 2 cores, Linux",
    "native": "compiled (avx512)",
    "faiss_built_for": "OPTIMIZE AVX2",
    "faiss_runs_with": None,
    "load_before": 0.2,
    "load_after": 1.9,
    "k": 10,
    "rounds": 3,
    "cases": [
        SIDE
        | {
            "threads": 1,
            "milliseconds_per_query": {"exact": 0.5, "routed": 0.5, "faiss flat": 1.5},
            "milliseconds_quartiles": {"exact": [0.4, 0.6]},
            "ratios": {"faiss flat / exact": 3.0, "exact / routed": 1.0},
            "quartiles": {"faiss flat / exact": [2.5, 3.5]},
            "exact_share_of_bandwidth": 0.8,
        }
    ],
    "best": [
        SIDE
        | {
            "ways": {
                "exact": {"engine": "exact", "threads": 2},
                "faiss flat": {"engine": "faiss flat, counting", "threads": 1},
            },
            "milliseconds_per_query": {"exact": 0.25, "routed": 0.25, "faiss flat": 0.75},
            "milliseconds_quartiles": {"exact": [0.2, 0.3], "faiss flat": [0.7, 0.8]},
            "ratios": {"faiss flat / exact": 3.25, "exact / routed": 1.0},
            "quartiles": {"faiss flat / exact": [3.0, 3.5], "exact / routed": [0.9, 1.1]},
        }
    ],
}


def test_quartiles_best_threads_and_instruction_sets_are_shown(page):
    text = page.render({"search": SEARCH}, {})
    assert (
        "| 0.250 [0.200, 0.300] | 0.750 [0.700, 0.800] | 2, 1 | 3.25 [3.00, 3.50] "
        "| 1.00 [0.90, 1.10] |  |" in text
    )
    assert "| 1 | 0.500 [0.400, 0.600] | 3.00 [2.50, 3.50] | 1.00 |" in text
    assert "hadahash compiled (avx512); faiss was built with OPTIMIZE AVX2." in text
    assert "revision bbbbbbbbbb, load 0.2 before, 1.9 after" in text and "Disturbed" not in text
    assert "most\nsimilar photos are found in 0.2 ms among 1,000,000 photos." in text


def test_times_are_listed_in_words(page):
    assert page.listed(["1 ms"]) == "1 ms"
    assert page.listed(["1 ms", "2 ms", "3 ms"]) == "1 ms, in 2 ms and in 3 ms"


def test_a_result_of_a_busy_machine_is_marked(page):
    assert "**Disturbed:**" in page.render({"search": SEARCH | {"load_before": 0.7}}, {})


# ---- Which results are stale ---------------------------------------------------------------------


class _Project:
    """A small git repository with the code of the search and a stored result."""

    def __init__(self, root):
        self.root = root
        self.code = root / "src" / "hadahash" / "index" / "api.py"
        self.result = root / "bench" / "results" / "search.json"
        for path in (self.code, self.result):
            path.parent.mkdir(parents=True)
        self.code.write_text("first = 1\n")
        self.git("init", "-q")
        self.commit()

    def git(self, *arguments):
        names = {
            f"GIT_{who}_{what}": "x@y.z"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        return subprocess.run(
            ["git", "-C", str(self.root), *arguments],
            env=os.environ | names,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "Change something")
        return self.git("rev-parse", "HEAD")

    def store(self, revision):
        self.result.write_text(json.dumps({} if revision is None else {"revision": revision}))


@pytest.fixture
def project(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    return _Project(tmp_path / "project")


def _reasons(stale, project):
    return list(stale.find_stale(project.root).values())


def test_a_result_of_the_present_code_is_not_stale(stale, project):
    project.store(project.git("rev-parse", "HEAD"))
    project.commit()
    (project.root / "README.md").write_text("Other files may change.\n")
    project.commit()
    assert stale.find_stale(project.root) == {}


def test_a_change_of_the_code_makes_a_result_stale(stale, project):
    project.store(project.git("rev-parse", "HEAD"))
    project.code.write_text("first = 2\n")
    expected = {"bench/results/search.json": "the code it measures has changed since"}
    assert stale.find_stale(project.root) == expected  # before the change is committed
    project.commit()
    assert stale.find_stale(project.root) == expected


@pytest.mark.parametrize(
    ("revision", "reason"),
    [
        (None, "no revision was recorded"),
        ("0" * 40 + "+changes", "measured on modified source code"),
        ("v1", "the revision is not a git commit"),
        ("0" * 40, "the revision is not part of the history"),
    ],
)
def test_a_result_of_unknown_code_is_stale(stale, project, revision, reason):
    project.store(revision)
    assert _reasons(stale, project) == [reason]


def test_a_shallow_clone_cannot_tell(stale, project, tmp_path):
    project.store(project.git("rev-parse", "HEAD"))
    project.commit()
    shallow = tmp_path / "shallow"
    project.git("clone", "-q", "--depth", "1", project.root.as_uri(), str(shallow))
    with pytest.raises(stale.HistoryError, match="shallow"):
        stale.find_stale(shallow)


def test_without_a_checkout_only_missing_revisions_are_found(stale, project):
    shutil.rmtree(project.root / ".git")
    project.store(None)
    assert _reasons(stale, project) == ["no revision was recorded"]
    project.store("0" * 40)
    with pytest.raises(stale.HistoryError, match="not a git checkout"):
        stale.find_stale(project.root)


def test_without_git_the_reason_is_given(stale, project, monkeypatch):
    project.store("0" * 40)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(stale.HistoryError, match="git does not run"):
        stale.find_stale(project.root)
