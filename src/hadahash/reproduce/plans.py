"""Plans: ordered lists of cells that are run in one process and collected in one file per data set.

A plan is the name of a built-in one (`PLANS`) or a JSON file:

    {"name": "small", "cells": [
        {"dataset": "digits", "method": "hcdh", "bits": 16, "backbone": "test_efficientnet",
         "seed": 0, "settings": {"epochs": 1}, "varied": {"codebook": "paper"}, "mark": ""}]}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from .. import files
from ..data import find_dataset
from ..errors import DataError, UsageError, unknown
from . import recipe_trials, tuning
from .collected import Collected
from .forms import FROZEN
from .recipes import Cell, mark_of, read_recipe

# The plans of experiments.toml. Most of their cells take the settings that tuning chose.
_ON_IMAGES = (
    "seeds",
    "lengths",
    "unseen",
    "halves",
    "prefixes",
    "lambda-seeds",
    "as-printed",
)
EXPERIMENTS = (*_ON_IMAGES, "alexnet-seeds", *(f"{name}{FROZEN}" for name in _ON_IMAGES))
FACTORIALS = ("factorial", f"factorial{FROZEN}")
CONTENT = ("content", "content-frozen")  # content bits beside class bits
PLANS = (*FACTORIALS, *tuning.NAMES, *CONTENT, *EXPERIMENTS, *recipe_trials.STAGES)


Choices = dict[tuple[str, str], tuning.Choice]  # by data set and method


@dataclass(frozen=True)
class Plan:
    """Cells in the order in which they are run.

    Attributes:
        name: Name of the plan.
        cells: Its cells.
        notes: Why further cells cannot be run yet, and what is doubtful about others.
    """

    name: str
    cells: list[Cell]
    notes: tuple[str, ...] = ()


def read_plan(source: str | Path, results: Path) -> Plan:
    """Read a plan.

    Args:
        source: Name of a built-in plan, or path of a JSON file.
        results: Folder of the results; its trials choose the settings of a built-in plan. Results
            of tuning add cells to the plan "tuning" and to those of experiments.toml.

    Returns:
        The plan, with the settings of every cell complete.

    Raises:
        UsageError: If there is no such plan.
        DataError: If the file does not contain a plan.
    """
    if source in EXPERIMENTS:
        return _experiment(str(source), results)
    if source in recipe_trials.STAGES:
        cells = recipe_trials.read_trials(results).stage(str(source))
        return Plan(recipe_trials.NAME, cells)
    if source in CONTENT:
        return _content(str(source), results)
    if source in FACTORIALS:
        return _factorial(str(source), results)
    if source in tuning.NAMES:
        return _tuning(str(source), results)
    path = Path(source)
    if path.suffix != ".json":
        raise unknown("plan", str(source), PLANS)
    stored = files.read_json(path)
    try:
        return Plan(stored["name"], [_cell(str(source), entry) for entry in stored["cells"]])
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} does not contain a plan: {error}.") from error


def _cell(plan: str, entry: dict[str, Any]) -> Cell:
    protocol = entry.get("protocol") or find_dataset(entry["dataset"]).protocol
    varied = entry.get("varied", {})
    mark = mark_of(entry.get("mark", ""), varied)
    content = entry.get("content", "")
    if content not in ("", "default", "sweep"):
        raise TypeError(f'content must be "", "default" or "sweep", got {content!r}')
    return Cell(**{**entry, "protocol": protocol, "mark": mark, "varied": varied, "recipe": plan})


def _factorial(name: str, results: Path) -> Plan:
    content = files.read_toml(resources.files(__package__) / "factorial.toml")
    chosen: Choices = {}
    if name.endswith(FROZEN):
        grids = tuning.read_tuning(f"tuning{FROZEN}")
        chosen = _ready(tuning.load_choices(results, grids.name))
        content |= {key: grids.content[key] for key in ("settings", "mark")}
    else:
        arms = content["arms"]
        for key in product(content["datasets"], [*arms["losses"], *arms["without_codebook"]]):
            chosen[key] = tuning.Choice(*key, point=_chosen(content, *key, results))
    return Plan(
        name,
        [
            cell
            for dataset in content["datasets"]
            for cell in _cells_of(name, content, dataset, chosen)
        ],
    )


def _cells_of(name: str, content: dict[str, Any], dataset: str, chosen: Choices) -> Iterator[Cell]:
    """All arms of one seed before the next; permutations and repeats after their own seed."""

    def cell(method: str, bits: int, seed: int, varied: dict[str, Any], note: str = "") -> Cell:
        entry = {
            "dataset": dataset,
            "method": method,
            "bits": bits,
            "backbone": content["backbone"],
            "seed": seed,
            "settings": {**content["settings"], **chosen[dataset, method].at(bits)},
            "varied": varied,
            "mark": content["mark"],
        }
        own = _cell(name, entry)
        return replace(own, mark=f"{own.mark}-{note}") if note else own

    arms = content["arms"]
    losses = [method for method in arms["losses"] if (dataset, method) in chosen]
    others = [method for method in arms["without_codebook"] if (dataset, method) in chosen]
    for seed in content["seeds"]:
        for book, method, bits in product(arms["codebooks"], losses, content["bits"]):
            yield cell(method, bits, seed, {"codebook": book})
        for method, bits in product(others, content["bits"]):
            yield cell(method, bits, seed, {})
        own = content["permutations"]
        if seed == own["seed"] and own["method"] in losses:
            for number, bits in product(range(1, own["count"] + 1), content["bits"]):
                varied = {"codebook": own["codebook"], "codebook_permutation": number}
                yield cell(own["method"], bits, seed, varied)
        own = content["repeats"]
        if seed == own["seed"] and own["method"] in losses:
            varied = {"codebook": own["codebook"]}
            for number in range(1, own["count"] + 1):
                yield cell(own["method"], own["bits"], seed, varied, f"repeat{number}")
            for number in range(1, own["deterministic"] + 1):
                exact = {**varied, "deterministic": True}
                yield cell(own["method"], own["bits"], seed, exact, f"repeat{number}")


def _tuning(name: str, results: Path) -> Plan:
    records = Collected(results / name).records()
    return Plan(name, tuning.trials(tuning.read_tuning(name), records))


def _ready(choices: Iterable[tuning.Choice]) -> Choices:
    """The choices whose trials are complete."""
    return {(own.dataset, own.method): own for own in choices if own.complete}


def _without_tuning(keys: Iterable[tuple[str, str]]) -> Choices:
    """Choices of nothing: settings are the defaults, or those of a group."""
    return {key: tuning.Choice(*key) for key in keys}


def _experiment(name: str, results: Path) -> Plan:
    """A plan of experiments.toml; a method is there when its tuning is complete."""
    content = files.read_toml(resources.files(__package__) / "experiments.toml")
    frozen = name.endswith(FROZEN)
    groups = content[name.removesuffix(FROZEN)]
    grids = tuning.read_tuning(f"tuning{FROZEN}" if frozen else groups[0].get("trials", "tuning"))
    choices = tuning.load_choices(results, grids.name)
    ready = _ready(choices)
    if frozen:
        groups = [_fixed(group, grids) for group in groups]
    else:
        ready |= _without_tuning(product(grids.content["datasets"], content["untuned"]))
    cells = [cell for group in groups for cell in _group_cells(name, group, grids, ready)]
    waiting = [group for group in groups if not group.get("untuned")]
    used = {key for group in waiting for key in product(_datasets(group, grids), group["methods"])}
    notes = tuple(
        _note(choice)
        for choice in choices
        if (choice.dataset, choice.method) in used and (choice.extend or not choice.complete)
    )
    return Plan(name, cells, notes)


def _fixed(group: dict[str, Any], grids: tuning.Tuning) -> dict[str, Any]:
    """A group with a fixed backbone: its deep methods, without content bits."""
    methods = [method for method in group["methods"] if method in grids.methods]
    return {**group, "methods": methods, "content": "", **group.get("frozen", {})}


def _datasets(group: dict[str, Any], grids: tuning.Tuning) -> list[str]:
    return list(group.get("datasets", grids.content["datasets"]))


def _group_cells(
    name: str,
    group: dict[str, Any],
    grids: tuning.Tuning,
    ready: Choices,
) -> Iterator[Cell]:
    """The cells of a group whose method is ready on the data set."""
    vary = group.get("vary", {})
    datasets = _datasets(group, grids)
    if group.get("untuned"):
        ready = _without_tuning(product(datasets, group["methods"]))
    order = product(datasets, group["seeds"], group["methods"], group["bits"])
    for dataset, seed, method, bits in order:
        if (dataset, method) not in ready:
            continue
        point = ready[dataset, method].at(bits)
        settings = {**grids.content["settings"], **point, **group.get("settings", {})}
        for values in product(*vary.values()):
            varied = dict(zip(vary, values, strict=True))
            yield Cell(
                dataset=dataset,
                method=method,
                bits=bits,
                backbone=group.get("backbone", grids.content["backbone"]),
                seed=seed,
                protocol=group.get("protocol", find_dataset(dataset).protocol),
                mark=mark_of(group.get("mark", grids.content["mark"]), varied),
                settings={key: value for key, value in settings.items() if key not in varied},
                varied=varied,
                choose=False,
                recipe=name,
                content=group.get("content", ""),
            )


def _content(name: str, results: Path) -> Plan:
    """The trials that choose the weights, then all cells of a data set, seed by seed."""
    content = files.read_toml(resources.files(__package__) / f"{name}.toml")
    common = files.read_toml(resources.files(__package__) / "factorial.toml")
    keys = list(product(content["datasets"], content["methods"]))
    chosen = {key: content.get("settings", {}) for key in keys}
    if "settings_of" in content:
        chosen = {key: _chosen(common, key[0], content["settings_of"], results) for key in keys}
    marks = (common["mark"], content.get("mark", ""))

    def cell(dataset: str, method: str, bits: int, seed: int, **others: Any) -> Cell:
        entry = {"protocol": find_dataset(dataset).protocol, **others}
        return Cell(
            dataset=dataset,
            method=method,
            bits=bits,
            backbone=common["backbone"],
            seed=seed,
            mark="-".join(filter(None, marks)),
            settings={**common["settings"], **chosen[dataset, method]},
            choose=False,
            recipe=name,
            content="sweep",
            **entry,
        )

    methods, lengths, trial = content["methods"], content["bits"], content["trials"]
    cells = [
        cell(*key, bits, trial["seed"], validation=trial["share"])
        for key in keys
        for bits in lengths
    ]
    order = product(content["datasets"], content["seeds"], methods, lengths)
    cells += [cell(dataset, method, bits, seed) for dataset, seed, method, bits in order]
    own = content.get("unseen", {"datasets": (), "seeds": (), "bits": ()})
    order = product(own["datasets"], own["seeds"], methods, own["bits"])
    cells += [
        cell(dataset, method, bits, seed, protocol="unseen")
        for dataset, seed, method, bits in order
    ]
    return Plan(name, cells)


def _note(choice: tuning.Choice) -> str:
    name = f"{choice.dataset} {choice.method}"
    if choice.missing:
        return f"{name} waits for tuning: {len(choice.missing)} trials missing."
    if not choice.complete:
        return f"{name} waits for tuning: all trials diverged."
    return f"{name}: the chosen point is at an edge of its grid: extend {', '.join(choice.extend)}."


def _chosen(content: dict[str, Any], dataset: str, method: str, results: Path) -> dict[str, Any]:
    ranking = read_recipe(content["trials_of"]).ranking(dataset, method, results)
    return ranking[0][0] if ranking else {}


def take_shard(cells: list[Cell], shard: tuple[int, int]) -> list[Cell]:
    """Every n-th cell of a plan, from the i-th on.

    Args:
        cells: The cells of a plan.
        shard: (i, n), 1 <= i <= n.

    Returns:
        The cells of this shard, in the order of the plan.

    Raises:
        UsageError: If i is not in 1..n.
    """
    number, count = shard
    if not 1 <= number <= count:
        raise UsageError(f"shard must be i/n with 1 <= i <= n, got {number}/{count}.")
    return cells[number - 1 :: count]
