"""Rank by the probability of sharing a class, and by content.

A code is stored as bits. A ranking decides what is compared: Hamming distances (`hamming`), the
probability of sharing a class (`class`), or this and what the photo shows (`photo`).
"""

from .fitting import fit_ranking as fit_ranking
from .model import RANKS as RANKS
from .model import Rank as Rank
from .model import Ranking as Ranking
from .preparing import Prepared as Prepared
from .preparing import prepare as prepare
from .search import RankedHits as RankedHits
from .search import ranked_search as ranked_search
from .search import score as score
from .similarity import similarities as similarities
from .walk import Fetched as Fetched
from .walk import WalkHits as WalkHits
from .walk import ranked_walk as ranked_walk
