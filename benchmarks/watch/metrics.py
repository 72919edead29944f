"""The metrics of a sweep for Prometheus, on loopback: `--metrics PORT`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.watch.state import RunState
from core.errors import UsageError

LOOPBACK = "127.0.0.1"


@contextmanager
def metrics_at(port: int | None, now: Callable[[], RunState]) -> Iterator[None]:
    """Answers GET /metrics on `port` while the context is open; None: nothing.

    Raises:
        UsageError: the port is taken.
    """
    if port is None:
        yield
        return
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(_Collector(now))
    try:
        server, thread = start_http_server(port, addr=LOOPBACK, registry=registry)
    except OSError as error:
        raise UsageError(f"--metrics {port}: {error.strerror}; give another port") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Collector:
    """What prometheus_client asks at each scrape."""

    def __init__(self, now: Callable[[], RunState]) -> None:
        self._now = now

    def collect(self) -> Iterator[Any]:
        """One family a figure."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        state = self._now()
        for name, text, value in (
            ("cells", "Cells of the run.", state.cells),
            ("cells_done", "Cells whose samples have all ended.", state.cells_done),
            ("samples", "Samples of the run.", state.samples),
            ("samples_done", "Samples that have ended.", state.samples_done),
            ("samples_failed", "Samples that failed since this start.", state.errors),
            ("turns_per_second", "Mean since the first turn of this start.", state.turns_per_s),
            ("tokens_per_second", "Prompt and reply tokens, likewise.", state.tokens_per_s),
        ):
            yield GaugeMetricFamily(f"longmem_{name}", text, value=value)
        yield CounterMetricFamily("longmem_turns", "Turns since this start.", value=state.turns)
        if state.left_s is not None:
            yield GaugeMetricFamily("longmem_left_seconds", "Time left.", value=state.left_s)
        for place, (name, text) in enumerate(
            (("running", "Replicas that run."), ("wanted", "Replicas that should run."))
        ):
            family = GaugeMetricFamily(f"longmem_replicas_{name}", text, labels=["model"])
            for model, counts in state.replicas.items():
                family.add_metric([model], counts[place])
            yield family
