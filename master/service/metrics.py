"""A master's metrics for Prometheus: its jobs, and its requests to the API server.

All values are read from the cores at the time of the scrape, so that nothing is stored twice. Counters of a job
(faults, lost seconds, generations) are part of its saved state, and so continue with another master.
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
"""Maps a job's state and the time to a value; None if there is none."""
Merged = Callable[[list[float]], float]
"""Combines the values of a PS job's tasks."""


def text(
    jobs: Sequence[Job],
    now: float,
    requests: Mapping[tuple[Request, int], int] | None = None,
    leads: bool | None = None,
    refused: Mapping[str, int] | None = None,
) -> bytes:
    """The metrics as text. `now`: time of the cores' clock. `requests`, `leads` and `refused` exist only in a
    cluster."""
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
        family = GaugeMetricFamily("outrider_job_phase", "1 for the job's present phase.", labels=(*JOB, "phase"))
        return _family(family, ((*_job(job), phase, int(phase_of(job) == phase)) for job in self._jobs
                                for phase in PHASES))  # fmt: skip

    def _members(self) -> Metric:
        family = GaugeMetricFamily("outrider_members", "Members by state, without those that are gone.",
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
        yield GaugeMetricFamily("outrider_leader", "1 if this replica is the master.", value=int(self._leads))
        family = CounterMetricFamily(
            "outrider_api_requests",
            "Requests to the API server, as RBAC names them; code 0 if it was not reached.",
            labels=("verb", "group", "resource", "code"),
        )
        rows = ((*request, str(code), count) for (request, code), count in sorted(self._requests.items()))
        yield _family(family, rows)
        what = "Sidecars that the master rejected, by reason."
        rejected = CounterMetricFamily("outrider_sidecars_rejected", what, labels=("reason",))
        yield _family(rejected, sorted(self._refused.items()))


def _faults(job: Job) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in parts(job):
        total.update(part.faults.counts)
    return total


def _family(family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[tuple[str | float, ...]]) -> Metric:
    """Adds rows to the family; a row has the values of the labels, then the metric's value."""
    for *labels, value in rows:
        family.add_metric([str(label) for label in labels], float(value))
    return family


def _job(job: Job) -> tuple[str, str]:
    namespace, _, name = job.spec.name.rpartition("/")
    return namespace, name


GAUGES: tuple[tuple[str, str, Reading, Merged], ...] = (
    ("members_desired", "Desired number of members.", lambda job, now: job.target, sum),
    ("world_size", "Number of ranks of the running generation, 0 if none runs.",
     lambda job, now: job.world.world_size if job.world is not None else 0, sum),
    ("step", "Highest step reached.", lambda job, now: job.progress.high_step, max),
    ("round_trip_seconds", "Lower quartile of the round-trip times between members.",
     lambda job, now: job.links.usual or None, max),
    ("links_down", "Pairs of members that cannot reach each other.", lambda job, now: len(job.links.reported), sum),
    ("goodput_ratio", "New steps times the median step time, divided by the time since the job started.",
     status_document.goodput_by_steps, max),
)  # fmt: skip
COUNTERS: tuple[tuple[str, str, Reading], ...] = (
    ("generations", "Generations formed.", lambda job, now: job.number),
    ("restarts", "Generations after the first.", lambda job, now: max(0, job.number - 1)),
    (
        "seconds_lost",
        "Seconds from the last step before each fault to the first new step.",
        lambda job, now: job.progress.seconds_lost,
    ),
)
