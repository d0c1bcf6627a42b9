"""`hadahash index build` and `add` with tables, data sets, excluded files, links and HEIC."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import pytest
from PIL import Image
from toys import make_toy, write_folder

from hadahash import Index
from hadahash.photos import image_folders, load_model_of
from hadahash.serve.core.collection import Collection, resolve_config

HEIC = Path(__file__).parents[1] / "data" / "heic" / "plain.heic"
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX file names")


@pytest.fixture
def build(run, saved, tmp_path):
    """Build an index of a source; returns exit code, stdout and stderr."""
    return lambda source, *options: run(
        "index", "build", saved, source, "--out", tmp_path / "i", "--device", "cpu", *options
    )


@pytest.fixture
def table(toy_folder):
    """A table of 48 photos with two labels each, in the folder that contains them."""
    path = toy_folder / "photos.csv"
    names = sorted(each.relative_to(toy_folder).as_posix() for each in toy_folder.glob("*/*.png"))
    _write(
        path,
        [
            (name, f"{name.split('/')[0]}|{'even' if row % 2 == 0 else 'odd'}")
            for row, name in enumerate(names)
        ],
    )
    return path


def _write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("path", "labels"), *rows])


def _rows(path):
    with path.open(newline="") as file:
        return [(row["path"], row["labels"]) for row in csv.DictReader(file)]


def _shown(folder, index_id):
    """The picture that the service shows for an item."""
    config = resolve_config(folder)
    index = Index.open(folder)
    model = load_model_of(index, folder)
    return Collection(index, model, config.images).image_path(index.get([index_id])[0])


def test_a_table_is_indexed_with_all_its_labels(build, table, tmp_path):
    code, out, _ = build(table)
    assert code == 0 and "48 images: 48 encoded" in out
    index = Index.open(tmp_path / "i")
    assert index.label_counts() == dict.fromkeys(("blue", "green", "red", "yellow"), 12) | {
        "even": 24,
        "odd": 24,
    }
    name, labels = _rows(table)[0]
    (item,) = index.get([name])
    assert set(item.labels) == set(labels.split("|")) and item.path == str(table.parent / name)
    assert index.meta["images"] == str(table) and image_folders(index.meta) == [table.parent]
    assert _shown(tmp_path / "i", name) == table.parent / name


def test_a_changed_table_changes_the_index(build, table, tmp_path):
    build(table)
    rows = _rows(table)
    _write(table, [(rows[0][0], "new|even"), *rows[1:-3]])
    code, out, err = build(table, "--dry-run")
    assert code == 0 and f"relabel {rows[0][0]}: new, even\n" in out and "1 relabelled" in err
    assert "3 to remove" in err and Index.open(tmp_path / "i").label_counts().get("new") is None
    code, out, _ = build(table)
    assert code == 0 and "0 encoded, 45 unchanged, 1 relabelled, 3 removed" in out
    index = Index.open(tmp_path / "i")
    assert set(index.get([rows[0][0]])[0].labels) == {"new", "even"} and len(index) == 45
    assert "relabelled" not in build(table)[1]


@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_other_tables_and_tables_without_labels(build, table, tmp_path, suffix):
    rows = _rows(table)
    other = table.with_suffix(suffix)
    if suffix == ".tsv":
        other.write_text("path\n" + "\n".join(name for name, _ in rows))
    else:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        columns = {"path": [n for n, _ in rows], "labels": [text.split("|") for _, text in rows]}
        pq.write_table(pa.table(columns), other)
    code, out, _ = build(other)
    assert code == 0 and "48 images: 48 encoded" in out
    counts = Index.open(tmp_path / "i").label_counts()
    assert counts.get("odd") == (None if suffix == ".tsv" else 24)


def test_a_table_with_a_missing_photo_is_an_error(build, table, tmp_path):
    _write(table, [*_rows(table), ("no/such.png", "x")])
    code, out, err = build(table)
    assert (code, out) == (1, "") and "does not exist" in err and err.count("\n") == 1
    assert not (tmp_path / "i").exists()


def test_a_table_is_added_to_an_index_of_a_folder(run, build, saved, table, toy_folder, tmp_path):
    build(toy_folder)
    other = write_folder(tmp_path / "more", *make_toy(8, seed=9))
    more = other / "more.csv"
    _write(more, [(p.relative_to(other).as_posix(), "more|x") for p in sorted(other.glob("*/*"))])
    code, out, _ = run("index", "add", tmp_path / "i", more, "--prefix", "more/", "--dry-run")
    assert code == 0 and out.count("encode  more/") == 8 and len(Index.open(tmp_path / "i")) == 48
    code, out, _ = run("index", "add", tmp_path / "i", more, "--prefix", "more/")
    assert code == 0 and "56 images: 8 encoded" in out
    index = Index.open(tmp_path / "i")
    assert index.label_counts()["more"] == 8
    assert image_folders(index.meta) == [other, toy_folder]


def test_photos_of_added_folders_are_shown(run, build, toy_folder, tmp_path):
    build(toy_folder)
    other = write_folder(tmp_path / "more", *make_toy(8, seed=9))
    run("index", "add", tmp_path / "i", other, "--prefix", "more/")
    assert image_folders(Index.open(tmp_path / "i").meta) == [other, toy_folder]
    assert _shown(tmp_path / "i", "more/red/002.png") == other / "red" / "002.png"
    assert _shown(tmp_path / "i", "red/002.png") == toy_folder / "red" / "002.png"
    build(toy_folder)
    assert image_folders(Index.open(tmp_path / "i").meta) == [other, toy_folder]
    moved = toy_folder.rename(tmp_path / "pictures")
    build(moved, "--moved")
    assert image_folders(Index.open(tmp_path / "i").meta) == [other, moved]


def test_a_named_data_set_is_indexed_with_its_pictures(run, saved, tmp_path, monkeypatch):
    from hadahash.data import datasets
    from hadahash.data.base import ArrayImages, LabelledImages, name_ids

    pixels, labels = make_toy(12, seed=3)
    data = LabelledImages(
        ArrayImages(pixels), name_ids(f"{n:02d}" for n in range(12)), labels, tuple("abcd"), "toys"
    )
    info = datasets.DatasetInfo(
        "toys", "holdout", None, lambda path: data, lambda root=None, **options: tmp_path
    )
    monkeypatch.setitem(datasets.DATASETS._entries, "toys", info)
    command = ("index", "build", saved, "toys", "--out", tmp_path / "i", "--device", "cpu")
    code, out, _ = run(*command)
    assert code == 0 and "12 images: 12 encoded" in out
    assert "0 encoded, 12 unchanged" in run(*command)[1]
    assert Index.open(tmp_path / "i").label_counts() == dict.fromkeys("abcd", 3)
    picture = _shown(tmp_path / "i", "03")
    assert picture is not None and (Image.open(picture).size) == (32, 32)


def test_excluded_files_are_left_out_and_stay_out(run, build, toy_folder, tmp_path):
    code, out, err = build(toy_folder, "--exclude", "red", "--exclude", "blue/0*")
    assert code == 0 and "24 images: 24 encoded" in out and "Skipped 13 excluded files." in err
    code, out, _ = build(toy_folder)
    assert code == 0 and "0 encoded, 24 unchanged, 0 removed" in out
    code, out, _ = build(toy_folder, "--exclude", "")
    assert code == 0 and "48 images: 24 encoded, 24 unchanged" in out
    code, out, err = build(toy_folder, "--exclude", "yellow")
    assert code == 0 and "36 images: 0 encoded, 36 unchanged, 12 removed" in out
    other = write_folder(tmp_path / "more", *make_toy(8, seed=9))
    code, out, _ = run("index", "add", tmp_path / "i", other, "--prefix", "m/", "--exclude", "red")
    assert code == 0 and "42 images: 6 encoded" in out


@posix
def test_links_out_of_the_folder_are_followed_on_request(build, toy_folder, tmp_path):
    other = write_folder(tmp_path / "other", *make_toy(8, seed=9))
    (toy_folder / "linked").symlink_to(other)
    (toy_folder / "loop").symlink_to(toy_folder)
    code, out, err = build(toy_folder)
    assert code == 0 and "48 images: 48 encoded" in out and "Skipped 2 symbolic links." in err
    code, out, _ = build(toy_folder, "--follow-links")
    assert code == 0 and "56 images: 8 encoded" in out
    assert _shown(tmp_path / "i", "linked/red/002.png") == other / "red" / "002.png"
    assert "0 encoded, 56 unchanged" in build(toy_folder)[1]


def test_heic_photos_are_indexed_and_found(run, build, toy_folder, tmp_path):
    pytest.importorskip("pi_heif")
    shutil.copy(HEIC, toy_folder / "red" / "IMG_0001.HEIC")
    code, out, _ = build(toy_folder)
    assert code == 0 and "49 images: 49 encoded" in out
    code, out, _ = run("search", tmp_path / "i", toy_folder / "red" / "IMG_0001.HEIC", "-k", 1)
    assert code == 0 and "red/IMG_0001.HEIC" in out


def test_a_dry_run_writes_nothing(build, toy_folder, tmp_path):
    code, out, err = build(toy_folder, "--dry-run")
    assert code == 0 and out.count("encode  ") == 48 and "48 to encode" in err
    assert not (tmp_path / "i").exists()


def test_export(run, build, toy_folder, tmp_path):
    pytest.importorskip("pyarrow")
    build(toy_folder)
    out = tmp_path / "x.parquet"
    code, text, _ = run("index", "export", tmp_path / "i", "--to", "parquet", "--out", out)
    assert (code, text) == (0, f"48 codes of 16 bits in {out}\n") and out.exists()
    code, _, err = run("index", "export", tmp_path / "i", "--to", "csv", "--out", out)
    assert code == 2 and "Unknown export 'csv'" in err and err.count("\n") == 1
