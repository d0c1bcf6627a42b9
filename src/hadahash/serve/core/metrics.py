"""Prometheus metrics."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters, gauges and histograms of one service.

    Gauges are set when their values change, not when they are read: of several worker processes,
    one answers /metrics, with the values that the others have set.
    """

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "hadahash_requests",
            "Requests by route and status",
            ("route", "status"),
            registry=registry,
        )
        self.seconds = _histogram(registry, "request_seconds", "Response time", "route", _SECONDS)
        self.stages = _histogram(
            registry, "stage_seconds", "Time per stage, waiting included", "stage", _SECONDS
        )
        self.batches = _histogram(registry, "batch_queries", "Jobs per batch", "stage", _SIZES)
        self.items = Gauge(
            "hadahash_index_items",
            "Items in the index",
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self.waiting = Gauge(
            "hadahash_queue_requests",
            "Searches running or waiting",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.reloads = Counter(
            "hadahash_index_reloads", "Times the index was reopened", registry=registry
        )
        self.replaced = Gauge(
            "hadahash_decoders_replaced",
            "Decoder processes that were replaced",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format, of all worker processes together."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def _histogram(
    registry: CollectorRegistry, name: str, text: str, label: str, buckets: tuple[float, ...]
) -> Histogram:
    return Histogram(f"hadahash_{name}", text, (label,), registry=registry, buckets=buckets)
