"""`hadahash index ...` and `hadahash search` from the user's point of view."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from toys import make_toy, tiny_hasher, write_folder

from hadahash import Codes, HashModel, Index
from hadahash.errors import UsageError


@pytest.fixture
def built(run, saved, toy_folder, tmp_path):
    """A folder with an index of 48 photos; one more photo is unreadable."""
    (toy_folder / "red" / "broken.jpg").write_bytes(b"\xff\xd8\xff not a picture")
    out = tmp_path / "photos.index"
    code, text, said = run("index", "build", saved, toy_folder, "--out", out, "--device", "cpu")
    assert (
        code == 0
        and text == f"{out}: 48 images: 48 encoded, 0 unchanged, 0 removed, 1 could not be read\n"
    )
    assert said.endswith(f"\nnext: hadahash serve {out}, or: hadahash search {out} IMAGE\n")
    assert "skipped.csv" in said and "red/broken.jpg" in (out / "skipped.csv").read_text()
    return out


COMMANDS = [
    ["index", name] for name in ("build", "add", "remove", "info", "export", "duplicates")
] + [["search"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example(run, command):
    code, out, _ = run(*command, "--help")
    assert code == 0 and f"Example: hadahash {' '.join(command)}" in " ".join(out.split())


def test_building_again_and_adding_and_removing(run, saved, toy_folder, built, tmp_path):
    code, out, _ = run("index", "build", saved, toy_folder, "--out", built)
    assert code == 0 and "0 encoded, 49 unchanged, 0 removed" in out
    more = write_folder(tmp_path / "more", *make_toy(4, seed=5))
    code, out, err = run("index", "add", built, more)
    assert code == 2 and err.startswith("error: ") and "--prefix" in err and err.count("\n") == 1
    code, out, _ = run("index", "add", built, more, "--prefix", "more/")
    assert code == 0 and "52 images: 4 encoded" in out
    code, out, err = run("index", "remove", built, "more/red/002.png", "nobody")
    assert code == 2 and "does not have 'nobody'" in err and len(Index.open(built)) == 52
    code, out, _ = run("index", "remove", built, "more/red/002.png")
    assert code == 0 and "1 removed, 51 left" in out and len(Index.open(built)) == 51


def test_encoding_says_how_fast_it_was(run, saved, toy_folder, tmp_path):
    _, _, err = run("index", "build", saved, toy_folder, "--out", tmp_path / "i")
    assert re.search(r"^48 images went through the network in \S+ s: \S+ images/s", err, re.M)
    _, _, err = run("index", "build", saved, toy_folder, "--out", tmp_path / "i")
    assert "images/s" not in err, "nothing was encoded"
    _, _, err = run("encode", saved, toy_folder, "--out", tmp_path / "codes.npz")
    assert re.search(r"^48 images went through the network in \S+ s: \S+ images/s", err, re.M)


def test_missing_photos_are_reported(run, saved, toy_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HADAHASH_RUNTIME", "torch")  # serve would export the shared model
    photos, index = toy_folder, tmp_path / "i"
    run("index", "build", saved, photos, "--out", index)
    served: list[object] = []
    monkeypatch.setattr("hadahash.serve.server.serve", lambda *given: served.append(given))
    assert "missing" not in run("index", "info", index)[2] + run("serve", index)[2]
    photos.rename(tmp_path / "moved")
    remedy = f"hadahash index build FOLDER --out {index} --moved, or once: hadahash serve {index}"
    for command in (("index", "info", index), ("serve", index)):
        code, _, err = run(*command)
        assert code == 0 and f"Photos are missing: {photos} does not exist." in err
        assert remedy in err and err.count("\n") == 1
    assert run("serve", index, "--images", tmp_path / "moved")[2] == ""
    photos.mkdir()
    for command in (("index", "info", index), ("serve", index)):
        assert f"{photos} contains none of those that were checked." in run(*command)[2]
    run("index", "build", tmp_path / "moved", "--out", index, "--moved")
    assert run("index", "info", index)[2] == "" and len(served) == 4


def test_info(run, built, saved, toy_folder):
    code, out, _ = run("index", "info", built, "--verify", "--json")
    figures = json.loads(out)
    assert (
        code == 0
        and figures["items"] == 48
        and figures["bits"] == 16
        and figures["engine"] == "exact"
    )
    assert (
        figures["run"] == str(saved)
        and figures["images"] == str(toy_folder)
        and len(figures["model"]) == 64
    )
    assert figures["verified"] is True and figures["bytes"] > 1000 and figures["ids"] == "str"
    assert figures["labels"] == {"blue": 12, "green": 12, "red": 12, "yellow": 12}
    assert figures["skipped"] == 1
    code, out, _ = run("index", "info", built)
    assert code == 0 and "items       48\n" in out and "engine      exact\n" in out
    assert "labels      blue (12), green (12), red (12), yellow (12)\n" in out
    assert "skipped     1\n" in out and "verified    not checked (--verify)\n" in out
    (stored,) = built.glob("*.codes")
    content = bytearray(stored.read_bytes())
    content[5] ^= 1
    stored.write_bytes(content)
    code, _, err = run("index", "info", built, "--verify")
    assert code == 1 and stored.name in err and "checksum" in err and err.count("\n") == 1


def test_a_folder_that_lost_its_photos_does_not_empty_the_index(
    run, saved, toy_folder, built, tmp_path
):
    toy_folder.rename(tmp_path / "away")
    toy_folder.mkdir()
    code, out, err = run("index", "build", saved, toy_folder, "--out", built)
    assert (code, out) == (1, "") and "contains no images" in err and "--allow-empty" in err
    (tmp_path / "away" / "red").rename(toy_folder / "red")
    code, out, err = run("index", "build", saved, toy_folder, "--out", built)
    assert (code, out) == (1, "") and "indexed files are missing" in err and "--yes" in err
    assert len(Index.open(built)) == 48
    code, out, err = run("index", "build", saved, toy_folder, "--out", built, "--dry-run")
    assert code == 0 and "remove  blue/000.png\n" in out and "36 to remove" in err
    assert len(Index.open(built)) == 48
    code, out, _ = run("index", "build", saved, toy_folder, "--out", built, "--yes")
    assert code == 0 and "12 images: 0 encoded, 13 unchanged, 36 removed" in out
    shutil.rmtree(toy_folder / "red")
    code, out, _ = run("index", "build", saved, toy_folder, "--out", built, "--allow-empty")
    assert code == 0 and len(Index.open(built)) == 0


def test_a_folder_without_readable_types_is_refused_and_says_why(
    run, saved, tmp_path, without_heif
):
    photos = tmp_path / "iphone"
    photos.mkdir()
    for name in ("a.HEIC", "b.HEIC", "c.MOV"):
        (photos / name).write_bytes(b"x")
    code, out, err = run("index", "build", saved, photos, "--out", tmp_path / "i")
    assert (code, out) == (1, "") and "contains no images" in err and not (tmp_path / "i").exists()
    assert "Skipped 3 files of unsupported types (2 .heic, 1 .mov). To read HEIC" in err
    assert err.count("\n") == 1


def test_searching(run, built, toy_folder, tmp_path):
    image = toy_folder / "red" / "002.png"
    code, out, _ = run("search", built, image, "-k", 5, "--json", "--device", "cpu")
    hits = json.loads(out)["hits"]
    assert code == 0 and len(hits) == 5 and hits[0]["distance"] == 0
    assert [hit["distance"] for hit in hits] == sorted(hit["distance"] for hit in hits)
    code, out, _ = run(
        "search", built, image, "-k", 48, "--label", "red", "--label", "blue", "--json"
    )
    assert {label for hit in json.loads(out)["hits"] for label in hit["labels"]} == {"red", "blue"}
    page = tmp_path / "sheet.html"
    code, out, err = run("search", built, image, "-k", 3, "--sheet", page)
    assert (
        code == 0
        and out.splitlines()[0].split() == ["rank", "alike", "bits", "label", "id"]
        and len(out.splitlines()) == 4
    )
    assert (
        "sheet.html" in err
        and page.read_text().count("<figure") == 4
        and "http" not in page.read_text()
    )
    code, out, err = run("search", built, image, "--label", "rde")
    assert (code, out) == (2, "") and "Unknown label 'rde'. Did you mean 'red'?" in err


def test_a_deleted_picture_is_named(run, built, toy_folder, tmp_path):
    image = tmp_path / "query.png"
    shutil.copy(toy_folder / "red" / "002.png", image)
    shutil.rmtree(toy_folder)
    code, _, err = run("search", built, image, "-k", 2, "--sheet", tmp_path / "s.html")
    page = (tmp_path / "s.html").read_text()
    assert code == 0 and err.count("Image not shown: ") == 2
    assert page.count("<figure") == 3 and page.count("<img") == 1


def test_duplicates(run, built, saved, toy_folder):
    shutil.copy(toy_folder / "red" / "002.png", toy_folder / "red" / "twin.png")
    run("index", "build", saved, toy_folder, "--out", built)
    code, out, _ = run("index", "duplicates", built, "--json")
    groups = json.loads(out)["groups"]
    assert code == 0 and any({"red/002.png", "red/twin.png"} <= set(group) for group in groups)
    code, out, err = run("index", "duplicates", built, "--radius", 2)
    assert (
        code == 0
        and "group 1, " in out
        and "  red/twin.png\n" in out
        and "groups within 2 bits" in err
    )


def test_names_that_are_not_unicode_can_be_shown(tmp_path):
    Index.build(Codes(packed=np.zeros((2, 2), np.uint8), bits=16, ids=["a", "z\udcff"])).save(
        tmp_path / "i"
    )
    command = [sys.executable, "-m", "hadahash", "index", "duplicates", str(tmp_path / "i")]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0 and "  z\ufffd" in done.stdout.decode().splitlines()


def test_milvus_from_the_command_line(run, saved, toy_folder, tmp_path):
    out = tmp_path / "far.index"
    code, text, _ = run(
        "index",
        "build",
        saved,
        toy_folder,
        "--out",
        out,
        "--engine",
        "milvus",
        "--set",
        "collection=cli",
    )
    assert code == 0 and "48 encoded" in text
    (toy_folder / "red" / "002.png").unlink()
    code, text, _ = run("index", "build", saved, toy_folder, "--out", out)
    assert code == 0 and "0 encoded, 47 unchanged, 1 removed" in text
    code, text, _ = run("index", "info", out, "--json")
    assert json.loads(text)["items"] == 47
    code, text, _ = run("search", out, toy_folder / "blue" / "000.png", "-k", 2, "--json")
    assert len(json.loads(text)["hits"]) == 2
    Index.open(out).drop()


def test_ids_that_are_numbers(run, tmp_path):
    Index.build(Codes(packed=np.zeros((3, 2), np.uint8), bits=16, ids=[5, 6, -7])).save(
        tmp_path / "i"
    )
    assert run("index", "remove", tmp_path / "i", "--", "5", "-7")[0] == 0
    assert Index.open(tmp_path / "i").ids.tolist() == [6]
    code, _, err = run("search", tmp_path / "i", "x.jpg")
    assert code == 2 and "does not record which model" in err and "--run" in err


def test_an_index_made_in_python_knows_its_model(run, saved, toy_folder, tmp_path):
    model, image = HashModel.load(saved, device="cpu"), toy_folder / "red" / "002.png"
    codes = model.prefix(12).encode(toy_folder)
    Index.build(codes, model=model.prefix(12)).save(tmp_path / "i")
    index = Index.open(tmp_path / "i")
    assert index.meta == {"model": model.prefix(12).id, "run": str(saved.resolve())}
    assert index.ranking is not None
    code, out, _ = run("search", tmp_path / "i", image, "-k", 1, "--json")
    assert code == 0 and json.loads(out)["hits"][0]["distance"] == 0
    fitted = dataclasses.replace(model, folder=None)
    Index.build(model.encode(toy_folder), model=fitted).save(tmp_path / "j")
    expected = f"does not record the run of its model {model.id[:12]}. Pass it with --run RUN."
    for command in (("search", tmp_path / "j", image), ("serve", tmp_path / "j")):
        code, _, err = run(*command)
        assert code == 2 and expected in err
    assert run("search", tmp_path / "j", image, "--run", saved)[0] == 0
    with pytest.raises(UsageError, match=r"codes of 16 \+ 0 bits, got codes of 12 \+ 0 bits"):
        Index.build(codes, model=model)
    with pytest.raises(UsageError, match="model must be a HashModel, got str"):
        Index.build(codes, model="runs/photos")


def test_bad_input_in_one_line(run, built, saved, toy, toy_folder, tmp_path):
    tiny_hasher(epochs=1, seed=4).fit(*toy).save(tmp_path / "other")
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").write_text("")
    new = tmp_path / "new.index"
    for arguments, expected, message in (
        (
            ("index", "build", tmp_path / "other", toy_folder, "--out", built),
            2,
            "codes of two models",
        ),
        (("index", "build", saved, tmp_path / "nowhere", "--out", new), 1, "nowhere"),
        (
            ("index", "build", tmp_path / "nowhere", toy_folder, "--out", new),
            1,
            "has no trained model",
        ),
        (
            ("index", "build", saved, toy_folder, "--out", new, "--engine", "exat"),
            2,
            "Did you mean 'exact'",
        ),
        (("index", "build", saved, toy_folder, "--out", new, "--set", "x=1"), 2, "Unknown option"),
        (
            ("index", "build", saved, toy_folder, "--out", tmp_path / "full"),
            1,
            "contains other files",
        ),
        (("index", "info", tmp_path / "empty"), 1, "contains no index"),
        (("index", "duplicates", built, "--radius", "-1"), 2, "radius must be"),
        (("index", "add", built, tmp_path / "empty"), 1, "No image found"),
        (("search", built, tmp_path / "nowhere.jpg"), 1, "nowhere.jpg"),
        (("search", built, toy_folder / "red"), 2, "one image file, got the folder"),
        (("search", built, tmp_path / "empty"), 2, "one image file, got the folder"),
        (("search", built, toy_folder / "red" / "broken.jpg"), 1, "broken.jpg"),
        (("search", built, toy_folder / "red" / "002.png", "-k", "-1"), 2, "k must be"),
        (
            ("search", built, toy_folder / "red" / "002.png", "--run", tmp_path / "other"),
            2,
            "codes of two models",
        ),
    ):
        code, out, err = run(*arguments)
        assert (code, err.count("\n"), out) == (expected, 1, ""), (arguments, err)
        assert message in err and err.startswith("error: ")
    assert not new.exists()


def test_a_photo_folder_whose_name_is_not_unicode(run, saved, toy_folder, tmp_path):
    folder = toy_folder.rename(tmp_path / os.fsdecode(b"ph\xffotos"))
    out = tmp_path / "i"
    code, text, err = run("index", "build", saved, folder, "--out", out)
    assert code == 0 and "48 encoded" in text, err
    code, text, err = run("index", "build", saved, folder, "--out", out)
    assert code == 0 and "48 unchanged" in text, err
    assert run("index", "info", out)[0] == 0 and run("index", "info", out, "--json")[0] == 0


def test_more_results_than_there_are_items(run, built, toy_folder):
    image = toy_folder / "red" / "002.png"
    code, out, err = run("search", built, image, "-k", 10**12, "--json")
    assert code == 0 and len(json.loads(out)["hits"]) == 48, err


def test_a_pipe_that_closes_is_not_an_error(built):
    command = f"{sys.executable} -m hadahash index info {built} | head -1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr
