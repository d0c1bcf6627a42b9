"""Judges of the paper's claims on tuned methods: each has settings of its own and several seeds.

A rival without a sound result does not count as beaten: the claim is then undecided.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .collected import Record
from .evidence import Evidence, Finding, Judge
from .intervals import Values, paired_differences, short, signed, t_interval
from .names import display_name

SHALLOW = ("lsh", "itq", "ksh", "sdh")
DEEP = ("ssdh", "dpsh", "dsdh", "hashnet", "mihash")
PAPER_LAMBDA = {"cifar10": 1.0, "voc2012": 0.1, "tinyimagenet100": 0.01}  # NUS-WIDE, ImageNet
_BITS = 64
_RECALLS = np.arange(0.1, 0.95, 0.1)


def above_best_rival(evidence: Evidence) -> Finding | None:
    """HCDH against the closest of the paper's nine methods."""
    return _closest(evidence, evidence.tuned("hcdh"), evidence.tuned)


def low_bits(evidence: Evidence) -> Finding | None:
    """The loss from 64 to 16 bits: that of the closest deep rival minus that of HCDH."""
    own = _losses(evidence.tuned("hcdh"))
    negated = {key: -value for key, value in own.items()}

    def gains(method: str) -> Values:
        return {key: -value for key, value in _losses(evidence.tuned(method)).items()}

    return _closest(evidence, negated, gains, DEEP)


def curves(evidence: Evidence) -> Finding | None:
    """The smallest gap between the precision-recall curves of HCDH and of any rival."""
    own = _curves(evidence, "hcdh")
    rivals = {method: _curves(evidence, method) for method in (*SHALLOW, *DEEP)}
    missing = [method for method, found in rivals.items() if not set(own) & set(found)]
    gaps = {
        method: [float((own[seed] - found[seed]).min()) for seed in own if seed in found]
        for method, found in rivals.items()
        if method not in missing
    }
    return _finding(gaps, missing) if own else None


def deep_above_shallow(evidence: Evidence) -> Finding | None:
    """The mean of the paper's deep methods against the best shallow one."""
    deep = [values for method in ("hcdh", *DEEP) if (values := evidence.tuned(method))]
    shallow = {method: values for method in SHALLOW if (values := evidence.tuned(method))}
    if not deep or not shallow:
        return None
    best = max(shallow, key=lambda method: statistics.mean(shallow[method].values()))
    keys = set(shallow[best]).intersection(*deep)
    mean = {key: statistics.mean(values[key] for values in deep) for key in keys}
    differences = paired_differences(mean, shallow[best])
    if not differences:
        return None
    interval = t_interval(differences)
    return Finding(f"{interval} to {display_name(best)}, {len(deep)} deep methods", interval)


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


def statistic(method: str, group: str, key: str, sign: int) -> Judge:
    """Compare a statistic of HCDH's codes at 64 bits with that of another method.

    Args:
        method: The other method.
        group: Entry of the record.
        key: Entry of the group.
        sign: 1 if larger is better, -1 if smaller is.

    Returns:
        The judge.
    """

    def value(record: Record) -> float:
        return sign * float(record[group][key])

    def found(evidence: Evidence) -> Finding | None:
        sides = [_at(evidence.tuned(name, value), _BITS) for name in ("hcdh", method)]
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


def _closest(
    evidence: Evidence,
    own: Values,
    rival: Callable[[str], Values],
    methods: Sequence[str] = (*SHALLOW, *DEEP),
) -> Finding | None:
    """The paired difference to the rival with the smallest mean difference."""
    if not own:
        return None
    lengths = {bits for bits, _ in own}
    values = {method: rival(method) for method in methods}
    missing = [name for name, found in values.items() if lengths - {bits for bits, _ in found}]
    gaps = {
        method: paired_differences(own, found)
        for method, found in values.items()
        if method not in missing
    }
    return _finding({method: gap for method, gap in gaps.items() if gap}, missing)


def _finding(gaps: Mapping[str, Sequence[float]], missing: Sequence[str]) -> Finding | None:
    if not gaps:
        return None
    closest = min(gaps, key=lambda method: statistics.mean(gaps[method]))
    interval = t_interval(gaps[closest])
    text = f"{interval} to {display_name(closest)}"
    if missing:
        names = ", ".join(map(display_name, missing))
        return Finding(f"{signed(interval.mean)} to {display_name(closest)}", note=f"no {names}")
    return Finding(text, interval)


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


def _at(values: Values, bits: int) -> Values:
    return {key: value for key, value in values.items() if key[0] == bits}


def _mean(values: Values) -> float:
    return statistics.mean(values.values())
