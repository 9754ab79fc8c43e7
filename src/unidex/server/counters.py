"""Metrics of the service for Prometheus. Several workers share them in files."""

from __future__ import annotations

import os
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
)

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of one process; gauges of several workers are their sum or their maximum."""

    def __init__(self) -> None:
        self._registry = own = CollectorRegistry()
        total = partial(Gauge, multiprocess_mode="livesum", registry=own)
        maximum = partial(Gauge, multiprocess_mode="livemax", registry=own)
        self._requests = Counter("unidex_requests", "Requests answered.", ["route", "status"], registry=own)
        self._seconds = Histogram(
            "unidex_request_seconds", "Time from a request to its answer.", ["route"], buckets=_SECONDS, registry=own
        )
        self._batch = Histogram("unidex_batch_texts", "Texts per batch.", buckets=_TEXTS, registry=own)
        self.rejected = Counter("unidex_rejected", "Requests refused by a limit or a token.", ["reason"], registry=own)
        self.changes = Counter("unidex_label_changes", "Labels changed by this service.", ["change"], registry=own)
        self.reloads = Counter("unidex_reloads", "Reloads of the model folder.", ["result"], registry=own)
        self._waiting = total("unidex_queue_requests", "Requests that wait for a batch.")
        self.running = total("unidex_running_requests", "Requests that run or wait.")
        self._model = maximum("unidex_model_info", "1 for the live model.", ["name", "version"])
        self._labels = maximum("unidex_labels", "Labels that can be predicted.")
        # Finding a metric by its labels costs more than counting.
        self._routes: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._live: tuple[str, str] | None = None

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        found = self._routes.get((route, status))
        if found is None:
            found = self._requests.labels(route, str(status)), self._seconds.labels(route)
            self._routes[route, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def batch(self, num_texts: int, num_waiting: int) -> None:
        """Count a batch, and set the number of requests that wait for the next."""
        if num_texts > 0:
            self._batch.observe(num_texts)
        self._waiting.set(num_waiting)

    def serves(self, name: str, version: str, num_labels: int) -> None:
        """Set the live model."""
        if self._live is not None and self._live != (name, version):
            self._model.labels(*self._live).set(0)
        self._live = name, version
        self._model.labels(name, version).set(1)
        self._labels.set(num_labels)

    def render(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
