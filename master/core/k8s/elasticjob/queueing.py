"""Admission: if several jobs lack room for their minimum size, the oldest job goes first.

Only a job that lacks room itself is queued, so a job that fits is always placed. A job is queued only behind a job that
has got part of its room, or that has not tried for long: a job that gets nothing for a while occupies no room, and may
fit no node whatever becomes free. A queued job tries again when the job ahead has all its room, one job per namespace
at a time in their order. It also tries from time to time, because room that is too little for the older job may be
enough for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.replica_specs import pod_templates
from outrider.wire.ids import JobName

PATIENCE = 15.0
"""Seconds without room after which a job lacks room: longer than a scheduler takes to place pods that fit."""
AGAIN, SLOWEST = 60.0, 900.0
"""First and longest interval in seconds after which a queued job tries again; it doubles each time."""
ELSEWHERE = (
    "kueue.x-k8s.io/queue-name",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "scheduling.k8s.io/group-name",
    "volcano.sh/queue-name",
)
"""Labels and annotations of pods that another scheduler or queue places together or in order."""
IN_VAIN = 45.0
"""Seconds without room after which a job none of whose pods has a node no longer blocks other jobs."""


def is_queued_elsewhere(job: Document) -> bool:
    """Whether the job's pods use another scheduler, a queue or a pod group, whose order Outrider does not change."""
    for template in pod_templates(job).values():
        metadata, spec = mapping(template.get("metadata")), mapping(template.get("spec"))
        marks = {*mapping(metadata.get("labels")), *mapping(metadata.get("annotations"))}
        is_others = spec.get("schedulerName") not in (None, "", "default-scheduler") or bool(
            spec.get("schedulingGates") or spec.get("schedulingGroup")
        )
        if is_others or marks & {*ELSEWHERE}:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that wants room."""

    name: JobName
    created: str
    """RFC 3339 time of the job's creation, which is the order of admission."""
    lacks_room: bool
    behind: str
    """The job that this one is queued behind; empty if it is not queued."""
    placed: int = 1
    """Number of the job's pods that have a node."""


def _is_after(job: Candidate, first: Candidate) -> bool:
    return (job.created, job.name) > (first.created, first.name)


@dataclass(slots=True)
class Queue:
    """The admission queue of all jobs."""

    _since: dict[JobName, float] = field(default_factory=dict)
    _again: dict[JobName, float] = field(default_factory=dict)
    _tries: dict[JobName, int] = field(default_factory=dict)

    def look(self, candidates: Iterable[Candidate], now: float) -> list[tuple[JobName, str]]:
        """Each job whose admission changes, with the job that it is queued behind from now on; empty if it may try."""
        jobs = sorted(candidates, key=lambda job: (job.created, job.name))
        self._note(jobs, now)
        lacking = [job for job in jobs if now - self._since.get(job.name, now) >= PATIENCE]
        ahead = {job.name for job in jobs if job.lacks_room and not self._is_in_vain(job, now)}
        first = next((job for job in lacking if job.name in ahead), None)
        turns = [
            self._wait(job.name, first.name, now) for job in lacking if first is not None and _is_after(job, first)
        ]
        free: dict[str, Candidate] = {}
        for job in jobs:
            if job.behind and (job.behind not in ahead or now >= self._again.get(job.name, now)):
                free.setdefault(job.name.partition("/")[0], job)
        return turns + [(job.name, "") for job in free.values()]

    def _is_in_vain(self, job: Candidate, now: float) -> bool:
        """Whether the job has had its time and got no room."""
        return not job.placed and now - self._since.get(job.name, now) >= IN_VAIN

    def _note(self, jobs: list[Candidate], now: float) -> None:
        names = {job.name for job in jobs}
        self._since = {job.name: self._since.get(job.name, now) for job in jobs if job.lacks_room}
        self._again = {name: at for name, at in self._again.items() if name in names}
        self._tries = {name: tries for name, tries in self._tries.items() if name in names}

    def _wait(self, name: JobName, behind: JobName, now: float) -> tuple[JobName, str]:
        tries = self._tries.get(name, 0)
        self._tries[name] = tries + 1
        self._again[name] = now + min(AGAIN * 2**tries, SLOWEST)
        return name, behind
