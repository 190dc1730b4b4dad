"""Counters in the form Prometheus reads, over all worker processes; no value of a query in them."""

from __future__ import annotations

import os
from pathlib import Path

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

#: Where the library keeps the counters of several processes; it reads this when it is imported.
VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """What is counted: requests by route and status, their seconds, and the state of the lake."""

    def __init__(self, several: bool) -> None:
        self._several = several
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            *("deepjoin_requests", "Requests answered", ("route", "method", "status")),
            registry=registry,
        )
        self._seconds = Histogram(
            *("deepjoin_request_seconds", "Seconds until a request was answered", ("route",)),
            registry=registry,
            buckets=_SECONDS,
        )
        self.waiting = Gauge(
            *("deepjoin_requests_held", "Requests that run or wait in the pools"),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.tables = Gauge(
            "deepjoin_tables", "Tables of the lake", registry=registry, multiprocess_mode="livemax"
        )
        self.renewals = Gauge(
            *("deepjoin_renewals", "How often a newer index was taken up, by the latest worker"),
            registry=registry,
            multiprocess_mode="livemax",
        )

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Write all counters."""
        if not self._several:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)


def share_counters(folder: Path) -> None:
    """Let processes started from now on count together, in a folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ[VARIABLE] = str(folder)
