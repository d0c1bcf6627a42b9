"""How far apart codewords are: the paper's construction beside `far`.

python examples/codebooks.py
"""

import numpy as np

import hadahash as hh

print("classes  bits  smallest distance: paper  far")
for classes, bits in ((10, 16), (10, 64), (100, 16), (100, 32), (100, 64)):
    least = []
    for design in ("paper", "far"):
        book = hh.codebook(classes, bits, design=design, seed=0).astype(
            int
        )  # +1 and -1, a row for each class
        distances = (bits - book @ book.T) // 2
        least.append(distances[~np.eye(classes, dtype=bool)].min())
    print(f"{classes:7}  {bits:4}  {least[0]:24}  {least[1]:3}")
