"""The whole way on handwritten digits, in seconds on a CPU: train, measure, search, save and load.

    python examples/digits.py

The network is tiny and starts at random. On photos take `backbone="efficientnet_lite0"`, which
starts from ImageNet weights.
"""

import tempfile

import hadahash as hh
from hadahash.data import make_split, open_dataset

data = open_dataset("digits")  # 1,797 images that come with scikit-learn
split = make_split(
    data, "holdout", seed=0
)  # a tenth of each class as queries, the rest to learn from and to search in

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
asked = hasher.encode(query)
print(f"{len(codes):,} images as {codes.packed.nbytes:,} bytes")

report = hh.evaluate(asked, query.labels, codes, database.labels)
print(f"mAP {report.map:.3f}")

hits = hh.Index.build(codes).search(asked, k=5)
names = dict(zip(database.ids.tolist(), database.labels.array.tolist(), strict=True))
for label, found, distances in zip(query.labels.array[:3], hits.ids, hits.distances, strict=False):
    digits = [names[each] for each in found.tolist()]
    print(f"a {label} found {digits}, {distances.tolist()} bits away")

with tempfile.TemporaryDirectory() as folder:
    hasher.save(folder)
    again = hh.Hasher.load(folder).encode(query)
print(
    "saved and loaded:", "the same codes" if (again.packed == asked.packed).all() else "other codes"
)
