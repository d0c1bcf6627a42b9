"""What /metrics tells Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "hadahash_requests",
            "Requests by route and status",
            ("route", "status"),
            registry=self._registry,
        )
        self.seconds = Histogram(
            "hadahash_request_seconds",
            "Time to answer",
            ("route",),
            registry=self._registry,
            buckets=_SECONDS,
        )
        self.stages = Histogram(
            "hadahash_stage_seconds",
            "Time of a stage, waiting included",
            ("stage",),
            registry=self._registry,
            buckets=_SECONDS,
        )
        self.batches = Histogram(
            "hadahash_batch_queries",
            "Queries worked on together",
            ("stage",),
            registry=self._registry,
            buckets=_SIZES,
        )
        self.items = Gauge("hadahash_index_items", "Items in the index", registry=self._registry)
        self.waiting = Gauge(
            "hadahash_queue_requests", "Searches at work or waiting", registry=self._registry
        )
        self.reloads = Counter(
            "hadahash_index_reloads", "Times the index was opened again", registry=self._registry
        )
        self.replaced = Gauge(
            "hadahash_decoders_replaced",
            "Decoding processes that had to be ended",
            registry=self._registry,
        )

    def text(self) -> bytes:
        return generate_latest(self._registry)
