"""`hadahash index build --bits`: an index of the first bits of longer codes."""

from __future__ import annotations

from hadahash import Index


def test_an_index_keeps_the_first_bits_and_is_synced_with_them(run, saved, toy_folder, tmp_path):
    out = tmp_path / "photos.index"
    command = ("index", "build", saved, toy_folder, "--out", out, "--device", "cpu")
    code, _, _ = run(*command, "--bits", 8)
    assert code == 0 and Index.open(out).bits == 8
    code, text, _ = run(*command)
    assert code == 0 and "0 encoded, 48 unchanged" in text
    photo = next(toy_folder.rglob("*.png"))
    code, text, _ = run("search", out, photo)
    assert code == 0 and len(text.splitlines()) == 11
    code, _, error = run(*command, "--bits", 16)
    assert code == 2 and "contains 8-bit codes" in error and error.count("\n") == 1
    code, _, error = run(*command, "--bits", 17)
    assert code == 2 and "bits must be >= 1 and <= 16, got 17." in error
