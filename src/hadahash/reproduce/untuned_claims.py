"""Judges of the paper's claims for data sets on which HCDH has no tuned runs.

HCDH has the seeds of the factorial; a rival has its tuned runs, or else its one seed of table 1.
Such values are not paired, so most of these findings decide nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .collected import Record
from .evidence import DEEP, RIVALS, Evidence, Finding, Judge, at
from .forms import Measure
from .intervals import Values, short, signed, t_interval
from .names import display_name

_BITS = 64
_BALANCED = 0.1


def best_rival(
    measure: Measure | None = None, bits: int | None = None, methods: Sequence[str] = RIVALS
) -> Judge:
    """Compare HCDH with the best of several methods; a missing one is named.

    Args:
        measure: Selects the value of a record; None: its mAP.
        bits: The code length; None: the mean over all lengths of HCDH.
        methods: The methods.

    Returns:
        The judge.
    """

    def found(evidence: Evidence) -> Finding | None:
        own = at(evidence.arm("hcdh", "paper", measure), bits)
        lengths = {length for length, _ in own}
        values = {method: at(evidence.rival(method, measure), bits) for method in methods}
        known = {m: v for m, v in values.items() if lengths <= {length for length, _ in v}}
        if not own or not known:
            return None
        means = {method: _mean(found, lengths) for method, found in known.items()}
        best = max(means, key=lambda method: means[method])
        notes = [_about(evidence, best, known[best])]
        missing = [display_name(method) for method in methods if method not in known]
        if missing:
            where = "" if bits else " at every length"
            notes.append(f"{', '.join(missing)} without a sound result{where}")
        gap = _mean(own, lengths) - means[best]
        return Finding(f"{signed(gap)} to {display_name(best)}", note="; ".join(notes))

    return found


def low_bits(evidence: Evidence) -> Finding | None:
    """The loss from 64 to 16 bits, against the paper's deep methods."""
    values = {method: evidence.rival(method) for method in DEEP}
    drops = {method: drop for method, own in values.items() if (drop := _drop(own)) is not None}
    own = _drop(evidence.arm("hcdh", "paper"))
    if own is None or not drops:
        return None
    least = min(drops, key=lambda method: drops[method])
    notes = [_about(evidence, least, values[least])]
    missing = [display_name(method) for method in DEEP if method not in drops]
    if missing:
        notes.append(f"no {', '.join(missing)}")
    text = f"loses {short(own)}; the smallest loss of the others is {short(drops[least])}"
    return Finding(f"{text} ({display_name(least)})", note="; ".join(notes))


def balance(evidence: Evidence) -> Finding | None:
    """The largest deviation of a bit's fraction of ones from one half."""
    worst = at(evidence.arm("hcdh", "paper", _worst_bit), _BITS)
    if not worst:
        return None
    interval = t_interval([_BALANCED - value for value in worst.values()])
    mean = statistics.mean(worst.values())
    return Finding(f"largest deviation {mean:.3f} (n = {len(worst)})", interval)


def statistic(method: str, measure: Measure) -> Judge:
    """Compare a statistic of HCDH's codes with that of another method, at 64 bits.

    Args:
        method: The other method.
        measure: Selects the statistic of a record.

    Returns:
        The judge.
    """

    def found(evidence: Evidence) -> Finding | None:
        own = at(evidence.arm("hcdh", "paper", measure), _BITS)
        rival = at(evidence.rival(method, measure), _BITS)
        if not own:
            return None
        text = f"HCDH {statistics.mean(own.values()):.3f} (n = {len(own)})"
        if not rival:
            return Finding(text, note=f"{display_name(method)} has no sound result")
        mean = statistics.mean(rival.values())
        text += f", {display_name(method)} {mean:.3f} (n = {len(rival)})"
        return Finding(text, note=_about(evidence, method, rival))

    return found


def lambda_curve(evidence: Evidence) -> Finding | None:
    """Whether a weight between 0 and the largest is better than both."""
    values: dict[float, list[float]] = {}
    for cell in evidence.cells:
        if cell.method == "hcdh" and "lam" in cell.varied:
            found = evidence.table("hcdh", **cell.varied)
            values[cell.varied["lam"]] = [v for (bits, _), v in found.items() if bits == _BITS]
    means = {lam: sum(own) / len(own) for lam, own in values.items() if own}
    if len(means) < 3:
        return None
    first, *between, last = sorted(means)
    best = max(between, key=lambda lam: means[lam])
    ends = f"{short(means[first])} at {first}, {short(means[last])} at {last}"
    return Finding(f"best {short(means[best])} at λ = {best:g}; {ends}", note="one seed")


def _about(evidence: Evidence, method: str, values: Values) -> str:
    """Why the values of a rival are not paired with those of HCDH."""
    seeds = len({seed for _, seed in values})
    kind = "tuned" if evidence.tuned(method) else "not tuned"
    return f"{display_name(method)} is {kind}, {seeds} other seed{'s' * (seeds > 1)}"


def _mean(values: Values, lengths: set[int]) -> float:
    """Mean over the seeds of each length, then over the lengths."""
    return statistics.mean(statistics.mean(at(values, bits).values()) for bits in lengths)


def _drop(values: Values) -> float | None:
    """The mean loss from 64 to 16 bits, paired by seed."""
    seeds = [seed for bits, seed in values if bits == _BITS and (16, seed) in values]
    if not seeds:
        return None
    return statistics.mean(values[_BITS, seed] - values[16, seed] for seed in seeds)


def _worst_bit(record: Record) -> float:
    return float(max(abs(share - 0.5) for share in record["bit_balance"]))
