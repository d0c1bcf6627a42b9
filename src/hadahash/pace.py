"""How fast images are encoded, and how long the network waits for pixels.

`measured` counts every encoding inside a block, in this thread; `Encoder` reports to it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

_SHORT = 3.0  # seconds; the network's fraction of less says little


@dataclass
class Pace:
    """Images and seconds, added up.

    Attributes:
        images: Number of images that were encoded.
        computed: Those of them that went through the network; the features of others were known.
        seconds: Time of reading, decoding and resizing images and of the network, overlapping.
        network_seconds: Time in which a batch was in the network.
        last_stop: When the last batch left it.
    """

    images: int = 0
    computed: int = 0
    seconds: float = 0.0
    network_seconds: float = 0.0
    last_stop: float = field(default=-math.inf, repr=False)

    @property
    def images_per_second(self) -> float:
        """Images that went through the network, per second."""
        return self.computed / self.seconds if self.seconds else 0.0

    @property
    def network_busy(self) -> float:
        """Fraction of the time in which a batch was in the network; else it waited for pixels."""
        return self.network_seconds / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        if not self.computed:
            return f"{self.images:,} images, with features from the cache"
        text = (
            f"{self.computed:,} images went through the network in {self.seconds:,.1f} s: "
            f"{self.images_per_second:,.1f} images/s"
        )
        if self.seconds <= _SHORT:
            return text
        return f"{text}; the network was busy {self.network_busy:.0%} of the time"


_CURRENT: ContextVar[Pace | None] = ContextVar("pace", default=None)


@contextmanager
def measured() -> Iterator[Pace]:
    """Measure the encodings inside a block.

    Yields:
        The measurement, which grows. An encoding is counted by the innermost block.
    """
    pace = Pace()
    token = _CURRENT.set(pace)
    try:
        yield pace
    finally:
        _CURRENT.reset(token)


@contextmanager
def total_time() -> Iterator[Pace]:
    """Count the time of a block as time of an encoding.

    Yields:
        Where images are counted.
    """
    pace, started = _CURRENT.get() or Pace(), time.perf_counter()
    try:
        yield pace
    finally:
        pace.seconds += time.perf_counter() - started


class NetworkTimer:
    """Counts the time of a batch in the network, from now on. Batches may overlap.

    Args:
        images: Number of images in the batch.
    """

    def __init__(self, images: int) -> None:
        self._pace, self._images = _CURRENT.get() or Pace(), images
        self._started = time.perf_counter()

    def stop(self) -> None:
        """Count the batch, and its time since the end of the last one."""
        pace, now = self._pace, time.perf_counter()
        pace.computed += self._images
        pace.network_seconds += now - max(self._started, pace.last_stop)
        pace.last_stop = now
