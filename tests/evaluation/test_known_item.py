"""Known-item search and agreement with features, against counts over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from test_ranked import scene

from hadahash.errors import UsageError
from hadahash.evaluation.known_item import agreement, measure_places, search_known_items
from hadahash.queries import Queries
from hadahash.ranking import score


def slow(scores: np.ndarray, items: np.ndarray) -> dict[str, float]:
    """All measures by sorting: expected recall over ties, wrong pairs first in the pool."""
    recall = {1: [], 10: []}
    pool = []
    for row, item in zip(scores, items, strict=True):
        above, equal = (row > row[item]).sum(), (row == row[item]).sum()
        for k in recall:
            recall[k].append(np.mean([above + place < k for place in range(equal)]))
        pool += [(-value, place == item) for place, value in enumerate(row)]
    pool.sort()
    hits, total, best = 0, 0.0, 0.0
    for rank, (value, right) in enumerate(pool, start=1):
        hits += right
        total += right * hits / rank
        whole_tie = rank == len(pool) or pool[rank][0] != value
        if whole_tie and hits / rank >= 0.9:
            best = hits / len(items)
    return {
        "queries": len(items),
        "recall_1": np.mean(recall[1]),
        "recall_10": np.mean(recall[10]),
        "micro_ap": total / len(items),
        "recall_at_precision_90": best,
    }


@pytest.mark.parametrize("rank", ["hamming", "class", "photo"])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("multilabel", [False, True])
def test_measures_equal_those_over_all_pairs(rank, copies, multilabel):
    query, _, database, _, ranking = scene(8, multilabel=multilabel, copies=copies)
    items = np.random.default_rng(0).integers(0, len(database), len(query))
    found = search_known_items(query, items, database, rank=rank, ranking=ranking)
    expected = slow(score(query, database, ranking, rank), items)
    assert found.to_dict() == pytest.approx(expected, abs=1e-5)


def test_a_stored_image_finds_itself_by_content():
    _, _, database, _, ranking = scene(9, multilabel=False)
    found = search_known_items(
        database, np.arange(90), database, rank="photo", ranking=ranking, weight=50
    )
    assert found.recall_10 == 1.0 and found.recall_at_precision_90 <= found.recall_1
    assert found.micro_ap > search_known_items(database, np.arange(90), database).micro_ap


def test_a_threshold_that_separates_right_from_wrong_pairs_is_perfect():
    found = measure_places(*map(np.array, ([0, 0, 0], [1, 1, 1], [0, 1, 1], [1, 2])))
    assert found.recall_1 == found.micro_ap == found.recall_at_precision_90 == 1.0


def test_agreement_is_the_expected_share_of_the_nearest():
    query, _, database, _, ranking = scene(10, multilabel=False)
    rng = np.random.default_rng(3)
    features = [rng.normal(size=(count, 20)) for count in (len(query), len(database))]
    for rank in ("hamming", "photo"):
        found = agreement(query, features[0], database, features[1], rank=rank, ranking=ranking)
        scores = score(query, database, ranking, rank)
        shares = []
        for row, own in zip(scores, features[0], strict=True):
            cosine = features[1] @ own / np.linalg.norm(features[1], axis=1)
            for item in np.argsort(-cosine)[:10]:
                above, equal = (row > row[item]).sum(), (row == row[item]).sum()
                shares.append(np.mean([above + place < 10 for place in range(equal)]))
        assert found == pytest.approx(np.mean(shares), abs=1e-12)


def test_codes_that_follow_the_features_agree_with_them():
    rng = np.random.default_rng(4)
    features = rng.normal(size=(300, 64)).astype(np.float32)
    codes = Queries(np.clip(features, -1, 1)).codes()
    own = agreement(codes[:20], features[:20], codes, features)
    assert own > agreement(codes[:20], features[20:40], codes, features) + 0.3


def test_every_query_needs_its_item():
    query, _, database, _, _ = scene(11, multilabel=False)
    with pytest.raises(UsageError, match="12 queries need 12 items"):
        search_known_items(query, [1, 2], database)
