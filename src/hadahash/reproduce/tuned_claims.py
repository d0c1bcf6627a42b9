"""Judges of the paper's claims on tuned methods: each has settings of its own and several seeds.

A rival without a sound result does not count as beaten: the claim is then undecided, unless another
rival is ahead.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from .collected import Record
from .evidence import DEEP, RIVALS, SHALLOW, Evidence, Finding, Judge, at
from .forms import Measure
from .intervals import Interval, Values, paired_differences, short, signed, t_interval
from .names import display_name

PAPER_LAMBDA = {"cifar10": 1.0, "voc2012": 0.1, "tinyimagenet100": 0.01}  # NUS-WIDE, ImageNet
_BITS = 64
_RECALLS = np.arange(0.1, 0.95, 0.1)


def closest_rival(
    measure: Measure | None = None, bits: int | None = None, methods: Sequence[str] = RIVALS
) -> Judge:
    """Compare HCDH with the closest of several methods.

    Args:
        measure: Selects the value of a record; None: its mAP.
        bits: The code length; None: the mean over all lengths.
        methods: The methods.

    Returns:
        The judge.
    """

    def values(evidence: Evidence, method: str) -> Values:
        return at(evidence.tuned(method, measure), bits)

    def found(evidence: Evidence) -> Finding | None:
        return _closest(values(evidence, "hcdh"), {m: values(evidence, m) for m in methods})

    return found


def low_bits(evidence: Evidence) -> Finding | None:
    """The loss from 64 to 16 bits: that of the closest deep rival minus that of HCDH."""
    negated = {
        method: {key: -loss for key, loss in _losses(evidence.tuned(method)).items()}
        for method in ("hcdh", *DEEP)
    }
    return _closest(negated.pop("hcdh"), negated)


def curves(evidence: Evidence) -> Finding | None:
    """The smallest gap between the precision-recall curves of HCDH and of any rival."""
    own = _curves(evidence, "hcdh")
    rivals = {method: _curves(evidence, method) for method in RIVALS}
    missing = [method for method, found in rivals.items() if not set(own) & set(found)]
    gaps = {
        method: [float((own[seed] - found[seed]).min()) for seed in own if seed in found]
        for method, found in rivals.items()
        if method not in missing
    }
    return _finding(gaps, missing) if own else None


def deep_above_shallow(evidence: Evidence) -> Finding | None:
    """The mean of the paper's deep methods against the best shallow one."""
    values = {method: evidence.tuned(method) for method in ("hcdh", *RIVALS)}
    lengths = {bits for found in values.values() for bits, _ in found}
    missing = [
        name for name, found in values.items() if not found or lengths - {bits for bits, _ in found}
    ]
    deep = [values[name] for name in ("hcdh", *DEEP) if name not in missing]
    shallow = {name: values[name] for name in SHALLOW if name not in missing}
    if not deep or not shallow:
        return None
    best = max(shallow, key=lambda name: statistics.mean(shallow[name].values()))
    keys = set(shallow[best]).intersection(*deep)
    mean = {key: statistics.mean(found[key] for found in deep) for key in keys}
    differences = paired_differences(mean, shallow[best])
    if not differences:
        return None
    interval = t_interval(differences)
    if missing:
        return _without(missing, interval, best)
    return Finding(f"{interval} to {display_name(best)}", interval)


def balanced_batches(evidence: Evidence) -> Finding | None:
    """The gain of batches with equally many images of each class, between two equal trials."""
    random = {_without_sampler(own): own for own in evidence.trials if not _balanced(own)}
    gains: dict[str, list[float]] = {}
    for own in filter(_balanced, evidence.trials):
        other = random.get(_without_sampler(own), {})
        if "validation_map" in own and "validation_map" in other:
            gain = float(own["validation_map"] - other["validation_map"])
            gains.setdefault(own["method"], []).append(gain)
    if not gains:
        return None
    texts = (f"{display_name(name)} {signed(statistics.mean(own))}" for name, own in gains.items())
    return Finding(", ".join(texts), note="one seed; no DPSH, DSDH")


def by_a_margin(left: str, right: str, margin: float) -> Judge:
    """Judge whether one method is above another by more than a margin.

    Args:
        left: The method that is better according to the claim.
        right: The other.
        margin: The margin in mAP.

    Returns:
        The judge.
    """

    def found(evidence: Evidence) -> Finding | None:
        differences = paired_differences(evidence.tuned(left), evidence.tuned(right))
        if not differences:
            return None
        interval = t_interval([value - margin for value in differences])
        return Finding(f"{t_interval(differences)}", interval)

    return found


def statistic(method: str, measure: Measure, sign: int) -> Judge:
    """Compare a statistic of HCDH's codes at 64 bits with that of another method.

    Args:
        method: The other method.
        measure: Selects the statistic of a record.
        sign: 1 if larger is better, -1 if smaller is.

    Returns:
        The judge.
    """

    def value(record: Record) -> float:
        return sign * float(measure(record))

    def found(evidence: Evidence) -> Finding | None:
        sides = [at(evidence.tuned(name, value), _BITS) for name in ("hcdh", method)]
        differences = paired_differences(*sides)
        if not differences:
            return None
        own, other = (sign * statistics.mean(side.values()) for side in sides)
        text = f"HCDH {own:.3f}, {display_name(method)} {other:.3f} (n = {len(differences)})"
        return Finding(text, t_interval(differences))

    return found


def lambda_curve(evidence: Evidence) -> Finding | None:
    """Whether a weight between 0 and the largest is better than both, at the better rate."""
    means = _sweep(evidence)
    if len(means) < 3:
        return None
    first, *between, last = sorted(means)
    best = max(between, key=lambda lam: _mean(means[lam]))
    end = max((first, last), key=lambda lam: _mean(means[lam]))
    interval = t_interval(paired_differences(means[best], means[end]))
    text = f"best {short(_mean(means[best]))} at λ = {best:g}"
    ends = [f"{short(_mean(means[lam]))} at {lam:g}" for lam in (first, last)]
    return Finding(f"{text}; {', '.join(ends)}; {interval}", interval)


def best_lambda(evidence: Evidence) -> Finding | None:
    """The best weight against the paper's; the claim fails if they differ significantly."""
    means = _sweep(evidence)
    dataset = evidence.sweep[0]["dataset"] if evidence.sweep else ""
    paper = PAPER_LAMBDA.get(dataset)
    if paper not in means:
        return None
    best = max(means, key=lambda lam: _mean(means[lam]))
    text = f"best λ = {best:g}, the paper's {paper:g}"
    if best == paper:
        return Finding(text, note="the same")
    differences = paired_differences(means[paper], means[best])
    return Finding(f"{text}: {t_interval(differences)}", t_interval(differences))


def _closest(own: Values, rivals: Mapping[str, Values]) -> Finding | None:
    """The paired difference to the rival with the smallest mean difference."""
    if not own:
        return None
    lengths = {bits for bits, _ in own}
    missing = [name for name, found in rivals.items() if lengths - {bits for bits, _ in found}]
    gaps = {
        name: paired_differences(own, found)
        for name, found in rivals.items()
        if name not in missing
    }
    return _finding({name: gap for name, gap in gaps.items() if gap}, missing)


def _finding(gaps: Mapping[str, Sequence[float]], missing: Sequence[str]) -> Finding | None:
    """The gap to the closest rival; with missing rivals it can only refute the claim."""
    if not gaps:
        return None
    closest = min(gaps, key=lambda method: statistics.mean(gaps[method]))
    interval = t_interval(gaps[closest])
    if missing and interval.high >= 0:
        return _without(missing, interval, closest)
    text = f"{interval} to {display_name(closest)}"
    return Finding(text, interval, note=_names(missing) if missing else "")


def _without(missing: Sequence[str], interval: Interval, rival: str) -> Finding:
    """A finding that decides nothing, because methods are missing."""
    return Finding(f"{signed(interval.mean)} to {display_name(rival)}", note=_names(missing))


def _names(missing: Sequence[str]) -> str:
    return f"no {', '.join(map(display_name, missing))}"


def _losses(values: Values) -> dict[tuple[int, int], float]:
    """The loss in mAP from 64 to 16 bits by seed."""
    return {
        (0, seed): values[_BITS, seed] - values[16, seed]
        for bits, seed in values
        if bits == 16 and (_BITS, seed) in values
    }


def _curves(evidence: Evidence, method: str) -> dict[int, np.ndarray]:
    """Precision at fixed recalls by seed, at 64 bits."""
    return {
        record["seed"]: _precision(record["precision_recall"])
        for record in evidence.seeds
        if record["method"] == method and record["bits"] == _BITS and "map" in record
    }


def _precision(curve: Mapping[str, Sequence[float]]) -> np.ndarray:
    recall, precision = (np.asarray(curve[key], float) for key in ("recall", "precision"))
    return np.asarray(np.interp(_RECALLS, recall, precision))


def _sweep(evidence: Evidence) -> dict[float, Values]:
    """Values by weight, each at the rate with the better mean."""
    found: dict[float, dict[float, dict[tuple[int, int], float]]] = {}
    for record in evidence.sweep:
        if "map" in record:
            lam, rate = record["varied"]["lam"], record["varied"]["lr"]
            own = found.setdefault(lam, {}).setdefault(rate, {})
            own[record["bits"], record["seed"]] = float(record["map"])
    return {lam: max(rates.values(), key=_mean) for lam, rates in found.items()}


def _balanced(trial: Record) -> bool:
    return bool(trial["asked"].get("sampler") == "balanced")


def _without_sampler(trial: Record) -> str:
    asked = {key: value for key, value in trial["asked"].items() if key != "sampler"}
    return json.dumps([trial["method"], trial["bits"], asked], sort_keys=True)


def _mean(values: Values) -> float:
    return statistics.mean(values.values())
