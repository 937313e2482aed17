"""A master's metrics for Prometheus: its jobs, and its requests to the API server.

All values are read from the cores at the time of the scrape, so that nothing is stored twice. Counters and histograms
of a job are part of its saved state, and so continue with another master.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import outrider
from outrider.master.core.job_kinds import Job
from outrider.master.core.k8s.values.requests import Request
from outrider.master.service.job_metrics import Jobs, family

VERSION = outrider.__version__
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Scrape(Collector):
    """The metrics of one moment: collected at once, and written as text in any thread, which takes longer."""

    def __init__(
        self,
        jobs: Sequence[Job],
        now: float,
        requests: Mapping[tuple[Request, int], int] | None = None,
        leads: bool | None = None,
        refused: Mapping[str, int] | None = None,
    ) -> None:
        """`now`: time of the cores' clock. `requests`, `leads` and `refused` exist only in a cluster."""
        registry = CollectorRegistry()
        registry.register(Jobs(jobs, now))
        registry.register(_Replica(requests or {}, leads, refused or {}))
        ProcessCollector(registry=registry)
        self._families = [*registry.collect()]

    def collect(self) -> Iterable[Metric]:
        return self._families

    def text(self) -> bytes:
        return generate_latest(self)


class _Replica(Collector):
    def __init__(
        self, requests: Mapping[tuple[Request, int], int], leads: bool | None, refused: Mapping[str, int]
    ) -> None:
        self._requests, self._leads, self._refused = requests, leads, refused

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("outrider_build_info", "1 for the running version.", labels=("version", "python"))
        yield family(build, [(VERSION, platform.python_version(), 1)])
        if self._leads is None:
            return
        yield GaugeMetricFamily("outrider_leader", "1 if this replica is the master.", value=int(self._leads))
        requests = CounterMetricFamily(
            "outrider_api_requests",
            "Requests to the API server, as RBAC names them; code 0 if it was not reached.",
            labels=("verb", "group", "resource", "code"),
        )
        yield family(requests, ((*request, code, count) for (request, code), count in sorted(self._requests.items())))
        what = "Sidecars that the master rejected, by reason."
        rejected = CounterMetricFamily("outrider_sidecars_rejected", what, labels=("reason",))
        yield family(rejected, sorted(self._refused.items()))
