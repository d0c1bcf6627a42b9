"""Compare the minimum Hamming distance of codebook designs.

Run: python examples/codebooks.py
"""

import numpy as np

import hadahash as hh

DESIGNS = ("random", "csq", "paper", "far")

print("classes  bits  minimum distance:", *(f"{design:>7}" for design in DESIGNS))
for classes, bits in ((10, 16), (10, 64), (100, 16), (100, 32), (100, 64)):
    minimum = []
    for design in DESIGNS:
        codewords = hh.codebook(classes, bits, design=design, seed=0).astype(int)  # +1 and -1
        distances = (bits - codewords @ codewords.T) // 2
        minimum.append(distances[~np.eye(classes, dtype=bool)].min())
    print(f"{classes:7}  {bits:4}                   ", *(f"{distance:7}" for distance in minimum))
