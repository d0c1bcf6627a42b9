"""The part of the report about rankings and known-item search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ...evaluation import Report
from .formatting import Content, mean_text, named
from .groups import Group

_ORDER = ("hamming", "class", "photo")
_TRAINING = ("seen", "unseen")
_MEANINGS = {
    "hamming": "Hamming distance of the class bits: the ranking of the paper.",
    "class": "the probability that query and image share a class, from the same stored bits; for "
    "methods without codewords the dot product of the real-valued query and the code.",
    "photo": "this probability and the content bits: the same photo before others of its kind.",
}


def rankings_content(groups: Sequence[Group]) -> Content:
    """Measures of each group under each ranking, and known-item search by alteration.

    Args:
        groups: The groups of one comparison.

    Returns:
        Variables of the template. Runs that were evaluated by an earlier version have one ranking.
    """
    rows, copies = [], []
    shown = dict.fromkeys(rank for group in groups for rank in _ranks(group))
    alterations = list(dict.fromkeys(name for group in groups for name in _alterations(group)))
    for number, group in enumerate(groups):
        for rank in _ranks(group):
            name = named(number, group)
            rows.append((name, rank, *_cells(group, rank)))
            if alterations and any(rank in report.known_item for report in group.reports):
                copies.append((name, rank, *_recalls(group, rank, alterations)))
    return {
        "head": (
            *("", "ranking", "mAP", "P@1", "P@10", "copy first", "copy in ten"),
            *("first ten tie", "agreement"),
        ),
        "rows": rows,
        "meanings": [(rank, _MEANINGS[rank]) for rank in _ORDER if rank in shown],
        "copies": copies,
        "copy_head": ("", "ranking", *alterations, "micro AP"),
        "searched": max((_searched(group) for group in groups), default=0),
        **_training_content(groups),
    }


def _training_content(groups: Sequence[Group]) -> Content:
    """mAP of queries of classes that were trained on and of others, where there are others."""
    rows = [
        (named(number, group), *_by_training(group))
        for number, group in enumerate(groups)
        if any(report.map_by_training for report in group.reports)
    ]
    return {"training": rows, "training_head": ("", *(f"mAP, {name}" for name in _TRAINING))}


def _by_training(group: Group) -> Iterable[str]:
    for name in _TRAINING:
        found = (report.map_by_training.get(name, math.nan) for report in group.reports)
        yield _mean(list(found), ".4f")


def _ranks(group: Group) -> list[str]:
    """Rankings that all runs of a group have."""
    first = ["hamming", *(rank for rank in _ORDER if rank in group.reports[0].rankings)]
    return [rank for rank in first if all(_under(own, rank) for own in group.reports)]


def _under(report: Report, rank: str) -> Report | None:
    return report if rank == "hamming" else report.rankings.get(rank)


def _cells(group: Group, rank: str) -> Iterable[str]:
    found = [own for own in (_under(report, rank) for report in group.reports) if own]
    yield mean_text([own.map for own in found], ".4f")
    for k in (1, 10):
        yield mean_text([own.precision_at[k] for own in found if k in own.precision_at], ".4f")
    recalls = [report.known_item_recall(rank) for report in group.reports]
    for place in (0, 1):
        yield _mean([own[place] for own in recalls], ".3f")
    yield _mean([own.first_ten_tie for own in found], ".1%")
    yield _mean([own.agreement for own in found], ".3f")


def _recalls(group: Group, rank: str, alterations: Sequence[str]) -> Iterable[str]:
    """recall@1 / recall@10 of each alteration, and the mean micro average precision."""
    found = [report.known_item[rank] for report in group.reports if rank in report.known_item]
    for name in alterations:
        own = [each[name] for each in found if name in each]
        first, ten = ([item.recall_1 for item in own], [item.recall_10 for item in own])
        yield f"{mean_text(first, '.2f')} / {mean_text(ten, '.2f')}"
    altered = [item.micro_ap for each in found for name, item in each.items() if name != "none"]
    yield mean_text(altered, ".3f")


def _alterations(group: Group) -> list[str]:
    return [
        name for report in group.reports for found in report.known_item.values() for name in found
    ]


def _searched(group: Group) -> int:
    items = (own for report in group.reports for own in report.known_item.values())
    return max((item.queries for own in items for item in own.values()), default=0)


def _mean(values: Sequence[float], form: str) -> str:
    """The mean of the numbers that were measured."""
    return mean_text([value for value in values if not math.isnan(value)], form)
