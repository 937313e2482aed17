"""The metrics of jobs, read from their cores at the time of a scrape.

Labels have bounded sets of values: member metrics exist for the first MOST_MEMBERS rank indexes of a job, and the core
bounds nodes and fault kinds (`state.counters`). A scrape costs O(jobs), and O(members) only to count their states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from outrider.master.core import job_kinds
from outrider.master.core.account import goodput as account_goodput
from outrider.master.core.account.causes import CAUSES, PRODUCTIVE
from outrider.master.core.job_kinds import Job, accounts, parts, phase_of
from outrider.master.core.state.counters import BOUNDS, STEP_BOUNDS, Histogram
from outrider.master.core.state.job import RUNNING, State
from outrider.master.core.state.member import Member
from outrider.master.core.status import document as status_document

PHASES = ("pending", "running", "restarting", "suspended", "succeeded", "failed", "stopped")
FAULT_KINDS = (
    "HangDetected", "LogRuleMet", "MemberExcluded", "MemberFailed", "MemberIsolated", "MemberLeftEarly", "MemberLost",
    "MemberSilent", "NetworkPartition", "SessionStuck", "SidecarExited", "StartFailed", "StartOverdue", "TrainerLost",
    "WorkerExited", "WorkersGone",
)  # fmt: skip
"""The kinds that a job has from its beginning, with 0, so that a rate shows the first fault."""
MODES = ("fork", "relaunch")
MOST_MEMBERS = 512
"""The number of members of a job that have metrics of their own."""
JOB = ("namespace", "job")
MEMBER = (*JOB, "rank_index", "pod")
Reading = Callable[[State, float], float | None]
"""Maps a job's state and the time to a value; None if there is none."""
Merged = Callable[[list[float]], float]
"""Combines the values of a PS job's tasks."""
Row = tuple[object, ...]
"""The values of the labels, then the metric's value."""


class Jobs(Collector):
    def __init__(self, jobs: Sequence[Job], now: float) -> None:
        self._jobs, self._now = jobs, now

    def collect(self) -> Iterator[Metric]:
        yield self._phases()
        yield from self._members()
        yield from self._goodput()
        for name, what, of, merged in GAUGES:
            yield family(GaugeMetricFamily(f"outrider_{name}", what, labels=JOB), self._values(of, merged))
        for name, what, of in COUNTERS:
            yield family(CounterMetricFamily(f"outrider_{name}", what, labels=JOB), self._values(of, sum))
        for name, what, labels, counts in COUNTED:
            rows = ((*_job(job), *labelled) for job in self._jobs for labelled in counts(job))
            yield family(CounterMetricFamily(f"outrider_{name}", what, labels=(*JOB, *labels)), rows)
        for name, what, labels, bounds, durations in HISTOGRAMS:
            yield self._histogram(f"outrider_{name}", what, labels, bounds, durations)

    def _values(self, of: Reading, merged: Merged) -> Iterator[Row]:
        for job in self._jobs:
            values = [value for part in parts(job) if (value := of(part, self._now)) is not None]
            if values:
                yield (*_job(job), merged(values))

    def _phases(self) -> Metric:
        found = GaugeMetricFamily("outrider_job_phase", "1 for the job's present phase.", labels=(*JOB, "phase"))
        return family(found, ((*_job(job), phase, int(phase_of(job) == phase)) for job in self._jobs
                              for phase in PHASES))  # fmt: skip

    def _members(self) -> Iterator[Metric]:
        states = GaugeMetricFamily("outrider_members", "Members by state, without those that are gone.",
                                   labels=(*JOB, "state"))  # fmt: skip
        about = GaugeMetricFamily("outrider_member_info", "1 for each member with a rank index: where and how it runs.",
                                  labels=(*MEMBER, "role", "node", "mode"))  # fmt: skip
        trains = GaugeMetricFamily("outrider_member_running", "1 if the ranks of this member run.", labels=MEMBER)
        for job in self._jobs:
            counts = Counter(status_document.member_state(part, each)
                             for part in parts(job) for each in part.members.values())  # fmt: skip
            family(states, ((*_job(job), state, counts[state]) for state in status_document.LIVING_STATES))
            shown = [*islice(_shown(job), MOST_MEMBERS)]
            family(about, ((*_job(job), m.rank_index, m.id, m.role, m.node, m.mode if m.mode in MODES else "", 1)
                           for _, m in shown))  # fmt: skip
            family(trains, ((*_job(job), m.rank_index, m.id, int(_runs(part, m))) for part, m in shown))
        yield from (states, about, trains)

    def _goodput(self) -> Iterator[Metric]:
        documents = [(_job(job), account_goodput.document(accounts(job), self._now)) for job in self._jobs]
        for name, field, what in GOODPUT:
            rows = ((*job, document[field]) for job, document in documents if document[field] is not None)
            yield family(GaugeMetricFamily(f"outrider_{name}", what, labels=JOB), rows)

    def _histogram(self, name: str, what: str, labels: Sequence[str], bounds: Sequence[float],
                   of: Callable[[State], Iterable[tuple[tuple[str, ...], Histogram]]]) -> Metric:  # fmt: skip
        found = HistogramMetricFamily(name, what, labels=(*JOB, *labels))
        edges = [*map(str, bounds), "+Inf"]
        for job in self._jobs:
            counts: dict[tuple[str, ...], list[int]] = {}
            totals: Counter[tuple[str, ...]] = Counter()
            for labelled, each in (row for part in parts(job) for row in of(part)):
                if len(each.counts) == len(edges):
                    known = counts.get(labelled, [0] * len(edges))
                    counts[labelled] = [a + b for a, b in zip(known, each.counts, strict=True)]
                    totals[labelled] += each.total  # type: ignore[assignment]
            for labelled, buckets in counts.items():
                cumulated = [*zip(edges, accumulate(buckets), strict=True)]
                found.add_metric(_texts((*_job(job), *labelled)), cumulated, totals[labelled])
        return found


def family(of: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[Row]) -> Metric:
    """Adds rows to the family."""
    for *labels, value in rows:
        of.add_metric(_texts(labels), float(value))  # type: ignore[arg-type]
    return of


def _texts(labels: Iterable[object]) -> list[str]:
    """Labels as UTF-8 can write them; prometheus_client escapes quotes, backslashes and line ends."""
    return [str(label).encode(errors="replace").decode() for label in labels]


def _job(job: Job) -> tuple[str, str]:
    namespace, _, name = job.spec.name.rpartition("/")
    return namespace, name


def _shown(job: Job) -> Iterator[tuple[State, Member]]:
    return ((part, m) for part in parts(job) for m in part.members.values()
            if m.rank_index is not None and m.rank_index < MOST_MEMBERS)  # fmt: skip


def _runs(state: State, member: Member) -> bool:
    world = state.world
    return world is not None and state.stage == RUNNING and member.id in world.started


# -- what is counted by labels ------------------------------------------------------------------------------------
def _faults(job: Job) -> Iterator[Row]:
    total = Counter(dict.fromkeys(FAULT_KINDS, 0))
    for part in parts(job):
        total.update(part.faults.counts)
    return ((kind, count) for kind, count in sorted(total.items()))


def _incidents(job: Job) -> Iterator[Row]:
    total: Counter[tuple[str, str]] = Counter()
    for part in parts(job):
        total.update({(node, kind): n for node, kinds in part.counters.incidents.items() for kind, n in kinds.items()})
    return ((*pair, count) for pair, count in sorted(total.items()))


def _productive(job: Job) -> Iterator[Row]:
    yield (sum(account_goodput.settled(state)[PRODUCTIVE] for state in accounts(job)),)


def _badput(job: Job) -> Iterator[Row]:
    settled = [account_goodput.settled(state) for state in accounts(job)]
    return ((cause, sum(each[cause] for each in settled)) for cause in CAUSES if cause != PRODUCTIVE)


def _newest_save(job: State) -> float | None:
    return next(reversed(job.progress.saves.values()), None)


def _since(moment: float | None, now: float) -> float | None:
    return None if moment is None else max(0.0, now - moment)


def _stragglers(job: State) -> float:
    return 0 if job.world is None else len(job.world.comparison.named)


def _by_kind(durations: Mapping[str, Histogram]) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    return (((kind,), each) for kind, each in durations.items())


GAUGES: tuple[tuple[str, str, Reading, Merged], ...] = (
    ("members_desired", "Desired number of members.", lambda job, now: job.target, sum),
    ("world_size", "Number of ranks of the running generation, 0 if none runs.",
     lambda job, now: job.world.world_size if job.world is not None else 0, sum),
    ("step", "Highest step reached.", lambda job, now: job.progress.high_step, max),
    ("step_age_seconds", "Seconds since the highest step was reached.",
     lambda job, now: _since(job.progress.high_step_at, now), min),
    ("checkpoint_age_seconds", "Seconds since the newest checkpoint was finished.",
     lambda job, now: _since(job.counters.saved_at, now), min),
    ("checkpoint_step", "Step of the newest finished checkpoint.", lambda job, now: _newest_save(job), max),
    ("replicated_step", "Newest step that every rank has in memory.",
     lambda job, now: job.checkpoints.replicated_step, max),
    ("stragglers", "Members that are slower than the others now.", lambda job, now: _stragglers(job), sum),
    ("excluded_nodes", "Nodes that new pods of the job avoid.", lambda job, now: len(job.exclusion.avoiding), max),
    ("round_trip_seconds", "Lower quartile of the round-trip times between members.",
     lambda job, now: job.links.usual or None, max),
    ("links_down", "Pairs of members that cannot reach each other.", lambda job, now: len(job.links.reported), sum),
    ("goodput_by_steps_ratio", "New steps times the median step time, divided by the time since the job started.",
     status_document.goodput_by_steps, max),
)  # fmt: skip
GOODPUT = (
    ("goodput_ratio", "goodput", "Share of new steps in the time of all members since the job started."),
    ("goodput_1h_ratio", "goodput_1h", "The same of the last hour."),
    ("goodput_1d_ratio", "goodput_1d", "The same of the last day."),
    ("mtbf_seconds", "mtbf_seconds", "Seconds since the job started, divided by the number of faults."),
)
"""Gauges of the time account: the name, the field of the status document, and what it is."""
COUNTERS: tuple[tuple[str, str, Reading], ...] = (
    ("generations", "Generations formed.", lambda job, now: job.number),
    ("restarts", "Generations after the first.", lambda job, now: max(0, job.number - 1)),
    (
        "seconds_lost",
        "Seconds from the last step before each fault to the first new step.",
        lambda job, now: job.progress.seconds_lost,
    ),
    ("steps_repeated", "Steps that were made again.", lambda job, now: job.all_repeated),
)
COUNTED: tuple[tuple[str, str, tuple[str, ...], Callable[[Job], Iterable[Row]]], ...] = (
    ("productive_seconds", "Seconds of members in which new steps were made.", (), _productive),
    ("badput_seconds", "Seconds of members by every other cause.", ("cause",), _badput),
    ("faults", "Faults by kind.", ("kind",), _faults),
    ("events", "Events by kind.", ("kind",), lambda job: sorted(job_kinds.events(job).items())),
    ("node_incidents", "Faults for which a node is suspect.", ("node", "kind"), _incidents),
)
HISTOGRAMS: tuple[
    tuple[
        str,
        str,
        tuple[str, ...],
        tuple[float, ...],
        Callable[[State], Iterable[tuple[tuple[str, ...], Histogram]]],
    ],
    ...,
] = (
    ("step_seconds", "Seconds of each new step, without the first one of a generation.", (), STEP_BOUNDS,
     lambda job: [((), job.counters.steps)]),
    ("fault_lost_seconds", "Seconds that one fault cost.", ("kind",), BOUNDS,
     lambda job: _by_kind(job.counters.faults)),
    ("recovery_seconds", "Seconds of each stage of a recovery.", ("kind", "stage"), BOUNDS,
     lambda job: (((kind, stage), each) for kind, stages in job.counters.stages.items()
                  for stage, each in stages.items())),
    ("checkpoint_seconds", "Seconds of operations on checkpoints.", ("op",), BOUNDS,
     lambda job: _by_kind(job.counters.checkpoints)),
)  # fmt: skip
