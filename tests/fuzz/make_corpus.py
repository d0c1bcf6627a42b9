"""Write tests/fuzz/corpus: small valid files of every format that is parsed.

python tests/fuzz/make_corpus.py
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "src")]


def main() -> None:
    from hadahash.codes import Codes
    from hadahash.index import Index
    from hadahash.index.dismissed import Dismissed
    from hadahash.index.engines import routed
    from hadahash.ranking import Ranking

    shutil.rmtree(CORPUS, ignore_errors=True)
    CORPUS.mkdir()
    routed._MIN_ROUTED_BYTES, routed._MAX_COMPARED = 0, np.inf
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (20, 4), np.uint8)
    names = [f"d/{number}.jpg" for number in range(20)]
    two = Codes(packed, 32, names, (), packed[:, :2].copy(), 16)
    words = np.where(np.eye(3, 32), 1, -1)
    ranking = Ranking(words, classes=("a", "b", "c"))
    index = Index.build(two, ["a", "b"] * 10, names, engine="routed", ranking=ranking)
    index.save(CORPUS / "text.index")
    index.remove(names[:3])
    index.save(CORPUS / "text.index")
    Index.build(Codes(packed, 32), np.arange(20) % 3).save(CORPUS / "numbers.index")
    for folder in CORPUS.glob("*.index"):
        (folder / ".lock").unlink(missing_ok=True)
    for suffix in ("npz", "parquet"):
        two.save(CORPUS / f"codes-text.{suffix}")
        Codes(packed, 32).save(CORPUS / f"codes-numbers.{suffix}")
    Dismissed([["a", "b"], ["c", "d", "e"]]).save(CORPUS / "dismissed.json")
    _tables()
    _embeddings(rng)
    _images()
    _model()
    _archives()
    print(sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()), "bytes")


def _tables() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (CORPUS / "table.csv").write_text("path,labels\na.jpg,cat\nb.jpg,dog\nc.jpg,cat dog\n")
    (CORPUS / "table.tsv").write_text('path\tlabels\tsplit\n"a.jpg"\tcat\tquery\n')
    table = pa.table({"path": ["a.jpg", "b.jpg"], "labels": [["cat"], ["cat", "dog"]]})
    pq.write_table(table, CORPUS / "table.parquet")


def _embeddings(rng: np.random.Generator) -> None:
    import pyarrow as pa
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    values = rng.standard_normal((6, 5)).astype(np.float32)
    np.save(CORPUS / "vectors.npy", values)
    np.savez(CORPUS / "vectors.npz", embeddings=values, ids=np.array(list("abcdef")))
    table = pa.table({"id": list("abcdef"), "vector": values.tolist()})
    pq.write_table(table, CORPUS / "vectors.parquet")
    feather.write_feather(table, CORPUS / "vectors.feather")


def _images() -> None:
    from make_images import encode, exif, picture

    image = picture(8, 12)
    for fmt in ("JPEG", "PNG", "TIFF", "GIF", "WEBP", "BMP"):
        options = {"exif": exif(6)} if fmt in ("JPEG", "PNG", "TIFF", "WEBP") else {}
        (CORPUS / f"image.{fmt.lower()}").write_bytes(encode(image, fmt, **options))


def _model() -> None:
    import pytest
    import toys

    from hadahash import files
    from hadahash.onnx_files import export_onnx, load_for_export
    from hadahash.runs import DataSpec, evaluate_run, train_run

    toys.use_smallest_backbone(pytest.MonkeyPatch())
    os.chdir(CORPUS)
    photos = toys.write_folder(Path("photos"), *toys.make_toy(16, seed=2, side=8))
    shutil.copy(photos / "red" / "002.png", photos / "red" / "copy.png")
    config = toys.tiny_config(backbone="smallest", epochs=1, batch_size=8, size=20, content_bits=16)
    train_run(config, DataSpec(str(photos)), Path("run"))
    evaluate_run(Path("run"))
    record = files.read_json("run/run.json")
    files.write_json("run/run.json", record | {"data_path": "/photos", "command": "hadahash train"})
    export_onnx(load_for_export("run"), Path("exported"))
    for path in [*CORPUS.glob("run/.*"), *CORPUS.glob("exported/.*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _archives() -> None:
    """A few photos in every kind of archive; the .tar file has labels."""
    from storages import image_files, parquet_bytes, tar_bytes, zip_bytes

    some = dict(list(image_files(CORPUS / "photos").items())[::5])
    labels = {f"{name.partition('.')[0]}.cls": b"cat\n" for name in some}
    (CORPUS / "archive.tar").write_bytes(tar_bytes(some | labels))
    (CORPUS / "archive.zip").write_bytes(zip_bytes(some))
    (CORPUS / "images.parquet").write_bytes(parquet_bytes(some))


if __name__ == "__main__":
    main()
