"""Train, evaluate, search, save and load on handwritten digits, in seconds on a CPU.

    python examples/digits.py

The network is tiny and starts from random weights. For photos use the default backbone,
"efficientnet_lite0", which starts from ImageNet weights.
"""

import tempfile

import hadahash as hh
from hadahash.data import make_split, open_dataset

data = open_dataset("digits")  # 1,797 images that come with scikit-learn
split = make_split(data, "holdout", seed=0)  # a tenth of each class are queries

hasher = hh.Hasher(
    "hcdh",
    bits=32,
    backbone="test_efficientnet",
    weights="none",
    seed=0,
    size=32,
    epochs=15,
    lr=0.1,
    backbone_lr=1.0,
    ema=0.9,
    crop_area=0.8,
    flip=0,
)
hasher.fit(data.take(split.train))
query, database = data.take(split.query), data.take(split.database)
codes = hasher.encode(database)
queries = hasher.encode(query)
print(f"{len(codes):,} images as {codes.packed.nbytes:,} bytes")

report = hh.evaluate(queries, query.labels, codes, database.labels)
print(f"mAP {report.map:.3f}")

hits = hh.Index.build(codes).search(queries, k=5)
digit_of = dict(zip(database.ids, database.labels.array.tolist(), strict=True))
for row in range(3):
    found = [digit_of[name] for name in hits.ids[row]]
    print(f"a {query.labels.array[row]} found {found} at distances {hits.distances[row].tolist()}")

with tempfile.TemporaryDirectory() as folder:
    hasher.save(folder)
    again = hh.Hasher.load(folder).encode(query)
same = (again.packed == queries.packed).all()
print("saved and loaded:", "the same codes" if same else "other codes")
