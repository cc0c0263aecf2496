"""What a server counts and times, for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MODEL = ("model", "version")


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "tinycomp_requests", "Requests for inference, by status", (*_MODEL, "code"), registry=self.registry
        )
        self._latency = self._histogram("tinycomp_request_seconds", "From the request's head to the response")
        self._queue = self._histogram("tinycomp_queue_seconds", "What requests wait for others and for the model")
        self._run = self._histogram("tinycomp_run_seconds", "Runs of the model")
        self._batch = self._histogram("tinycomp_batch_rows", "Rows of a run", _ROWS)
        self.in_flight = Gauge("tinycomp_in_flight", "Requests that are read, wait or run", registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float] = _SECONDS) -> Histogram:
        return Histogram(name, text, _MODEL, buckets=buckets, registry=self.registry)

    def request(self, model: str, version: str, code: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(model, version, str(code)).inc()
        self._latency.labels(model, version).observe(seconds)

    def of(self, model: str, version: str) -> Observer:
        """Return what the batches of a model are told to."""
        labels = (model, version)
        return Observer(self._queue.labels(*labels), self._run.labels(*labels), self._batch.labels(*labels))

    def text(self) -> bytes:
        """Return what Prometheus reads."""
        return generate_latest(self.registry)


class Observer:
    """Notes the batches of one model."""

    def __init__(self, queue: Histogram, run: Histogram, rows: Histogram) -> None:
        self._queue, self._run, self._rows = queue, run, rows

    def batch(self, rows: int, waited: Sequence[float]) -> None:
        """Note a batch, and how long its requests have waited."""
        self._rows.observe(rows)
        for seconds in waited:
            self._queue.observe(seconds)

    def run(self, seconds: float) -> None:
        """Note how long a run took."""
        self._run.observe(seconds)
