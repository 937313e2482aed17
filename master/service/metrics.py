"""What Prometheus reads of a master: its jobs, and what it asks of the API server.

Everything is read from the cores at the moment of the scrape, so that nothing is kept twice. Counts of a job (faults,
lost seconds, generations) are part of its saved state: they do not begin again with another master.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from outrider.master.core.job_kinds import Job, parts, phase_of
from outrider.master.core.k8s.values.requests import Request
from outrider.master.core.state.job import State
from outrider.master.core.status import document as status_document

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PHASES = ("pending", "running", "restarting", "suspended", "succeeded", "failed", "stopped")
JOB = ("namespace", "job")
Reading = Callable[[State, float], float | None]
"""A value of a job at a moment; None where there is none."""
Merged = Callable[[list[float]], float]
"""Of the seats of a PS job together."""


def text(
    jobs: Sequence[Job],
    now: float,
    requests: Mapping[tuple[Request, int], int] | None = None,
    leads: bool | None = None,
    refused: Mapping[str, int] | None = None,
) -> bytes:
    """`now`: the cores' clock; `requests`, `leads` and the Hellos that were `refused` are a cluster's."""
    registry = CollectorRegistry()
    registry.register(_Jobs(jobs, now))
    registry.register(_Replica(requests or {}, leads, refused or {}))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Jobs(Collector):
    def __init__(self, jobs: Sequence[Job], now: float) -> None:
        self._jobs, self._now = jobs, now

    def collect(self) -> Iterator[Metric]:
        yield self._phases()
        yield self._members()
        for name, what, of, merged in GAUGES:
            yield _family(GaugeMetricFamily(f"outrider_{name}", what, labels=JOB), self._values(of, merged))
        for name, what, of in COUNTERS:
            yield _family(CounterMetricFamily(f"outrider_{name}", what, labels=JOB), self._values(of, sum))
        faults = CounterMetricFamily("outrider_faults", "Faults by kind.", labels=(*JOB, "kind"))
        yield _family(faults, ((*_job(job), kind, count) for job in self._jobs
                               for kind, count in sorted(_faults(job).items())))  # fmt: skip

    def _values(self, of: Reading, merged: Merged) -> Iterator[tuple[str | float, ...]]:
        for job in self._jobs:
            values = [value for part in parts(job) if (value := of(part, self._now)) is not None]
            if values:
                yield (*_job(job), merged(values))

    def _phases(self) -> Metric:
        family = GaugeMetricFamily("outrider_job_phase", "1 for the phase that the job is in.", labels=(*JOB, "phase"))
        return _family(family, ((*_job(job), phase, int(phase_of(job) == phase)) for job in self._jobs
                                for phase in PHASES))  # fmt: skip

    def _members(self) -> Metric:
        family = GaugeMetricFamily("outrider_members", "Members by state; those that are gone are not counted.",
                                   labels=(*JOB, "state"))  # fmt: skip
        for job in self._jobs:
            counts = Counter(
                status_document.member_state(part, each) for part in parts(job) for each in part.members.values()
            )
            _family(family, ((*_job(job), state, counts[state]) for state in status_document.LIVING_STATES))
        return family


class _Replica(Collector):
    def __init__(
        self, requests: Mapping[tuple[Request, int], int], leads: bool | None, refused: Mapping[str, int]
    ) -> None:
        self._requests, self._leads, self._refused = requests, leads, refused

    def collect(self) -> Iterator[Metric]:
        if self._leads is None:
            return
        yield GaugeMetricFamily("outrider_leader", "1: this replica is the master.", value=int(self._leads))
        family = CounterMetricFamily(
            "outrider_api_requests",
            "Requests to the API server, as RBAC names them; code 0: it was not reached.",
            labels=("verb", "group", "resource", "code"),
        )
        yield _family(family, ((*asked, str(code), count) for (asked, code), count in sorted(self._requests.items())))
        what = "Sidecars that the master rejected, by reason."
        rejected = CounterMetricFamily("outrider_sidecars_rejected", what, labels=("reason",))
        yield _family(rejected, sorted(self._refused.items()))


def _faults(job: Job) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in parts(job):
        total.update(part.faults.counts)
    return total


def _family(family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[tuple[str | float, ...]]) -> Metric:
    """A row: the values of the labels, and the value."""
    for *labels, value in rows:
        family.add_metric([str(label) for label in labels], float(value))
    return family


def _job(job: Job) -> tuple[str, str]:
    namespace, _, name = job.spec.name.rpartition("/")
    return namespace, name


GAUGES: tuple[tuple[str, str, Reading, Merged], ...] = (
    ("members_desired", "Members that the job is to have.", lambda job, now: job.target, sum),
    ("world_size", "Worker processes of the world, 0 where there is none.",
     lambda job, now: job.world.world_size if job.world is not None else 0, sum),
    ("step", "The highest step that was ever made.", lambda job, now: job.progress.high_step, max),
    ("round_trip_seconds", "Of probes between members, the quarter quantile.",
     lambda job, now: job.links.usual or None, max),
    ("links_down", "Pairs of members that cannot see each other.", lambda job, now: len(job.links.reported), sum),
    ("goodput_ratio", "New steps times the median step time, over the time since the job began.",
     status_document.goodput, max),
)  # fmt: skip
COUNTERS: tuple[tuple[str, str, Reading], ...] = (
    ("generations", "Worlds that were agreed on.", lambda job, now: job.number),
    ("restarts", "Generations after the first.", lambda job, now: max(0, job.number - 1)),
    (
        "seconds_lost",
        "From the last step before each fault to the first new one.",
        lambda job, now: job.progress.seconds_lost,
    ),
)
