"""How much a cell differs when it is trained again: one number per data set, from stored runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Standard deviation of mAP when a cell is trained again with other kernels. With the same kernels,
# all stored repeats are equal to the bit.
NOISE = {
    # Two runs of one cell of table 1, in eight and in two processes on one GPU: .8815 and .8717.
    "cifar10": 0.007,
    # 44 trials with a fixed backbone that ran on a GPU and on a CPU (tuning, tuning-frozen).
    "voc2012": 0.005,
    # No run with other kernels is stored: the larger of the two others.
    "tinyimagenet100": 0.007,
}
_REPEATED = 0.002  # tolerance where all stored repeats, also of other processes, are equal


def rerun_noise(dataset: str) -> float:
    """Standard deviation of mAP when a cell is trained again.

    Args:
        dataset: Name of the data set; others than the three get the largest value.

    Returns:
        The standard deviation.

    Example:
        >>> rerun_noise("voc2012"), rerun_noise("photos")
        (0.005, 0.007)
    """
    return NOISE.get(dataset, max(NOISE.values()))


def tolerance(stored: Mapping[str, Any], *, same_machine: bool) -> float:
    """How far a repetition may be from a stored result.

    Args:
        stored: The result.
        same_machine: Whether hardware and versions are those of the result.

    Returns:
        Three times the rerun noise (2.1 standard deviations of a difference), or .002 with a fixed
        backbone on a machine of the same kind.
    """
    fixed = stored["settings"].get("frozen") or stored["settings"].get("backbone_lr") == 0
    return _REPEATED if fixed and same_machine else 3 * rerun_noise(stored["dataset"])
