"""Marks what is true of which tasks, so that no message costs a walk over all of them.

`note` is called after each step of a task, and wherever else its marks may change. Rules look at the tasks that have
changed since they last looked, and use the marks for all others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from outrider.master.core import step as core_step
from outrider.master.core.ps.state import ROLES, Key, PsState, Task, has_ended
from outrider.wire.ids import RankIndex, Role

WANTED, UNDONE, ABSENT, UNSTEADY, MOVES, UNFIT = "wanted", "undone", "absent", "unsteady", "moves", "unfit"
"""Marks of tasks that the job has not removed, besides the task's phase.

WANTED: all of them. UNDONE: has not succeeded. ABSENT: no member runs. UNSTEADY: no member runs, or it has to leave.
MOVES: its member serves until it is moved. UNFIT: its member does not have the requested resources.
"""
WAITS, LIVES, STAYS = "waits", "lives", "stays"
"""Marks of any task. WAITS: `waits_since` is set. LIVES: its own job is not over. STAYS: it has not ended."""


def _marks(task: Task) -> Iterator[str]:
    state, member = task.state, task.runs
    if task.waits_since is not None:
        yield WAITS
    if not state.is_over:
        yield LIVES
    if not has_ended(task):
        yield STAYS
    if task.removed:
        return
    yield from (WANTED, state.phase)
    if state.phase != "succeeded":
        yield UNDONE
    if member is None:
        yield ABSENT
    if member is None or member.leaving:
        yield UNSTEADY
    if member is not None and member.stays_until_saved:
        yield MOVES
    if member is not None and not member.deleting and not task.fits(member):
        yield UNFIT


# -- updates ------------------------------------------------------------------------------------------------------
def note(job: PsState, task: Task) -> None:
    """Updates what is known of a task that may have changed."""
    job.touched.add(task.key)
    _mark(job, task, frozenset(_marks(task)))
    member = task.runs
    _update_ring(job, task, member is not None and not task.removed and bool(member.address and member.probe_port))
    note_deadline(job, task)
    text = f"{task.name} {core_step.describe(task.state)}"
    if job.descriptions.get(task.key) != text:
        job.descriptions[task.key], job.description = text, None


def note_deadline(job: PsState, task: Task) -> None:
    """Updates the deadline of a task in which nothing else can have changed."""
    due, key = core_step.next_deadline(task.state), (task.role, str(task.index))
    if due is None:
        job.task_deadlines.cancel(key)
    else:
        job.task_deadlines.set(key, due)


def settle(job: PsState) -> None:
    """At the end of a step: rebuilds the job's description if a part of it has changed."""
    if job.description is None:
        job.description = ", ".join(job.descriptions.values())


def forget(job: PsState, task: Task) -> None:
    """Drops a task from the job."""
    _mark(job, task, frozenset())
    _update_ring(job, task, False)
    job.task_deadlines.cancel((task.role, str(task.index)))
    job.late.discard(task.key)
    del job.tasks[task.key], job.descriptions[task.key]
    job.description = None


def sort(job: PsState) -> None:
    """Sorts tasks by role and rank index, after some were added."""
    job.tasks = {key: job.tasks[key] for key in sorted(job.tasks, key=_place)}
    job.descriptions = {key: job.descriptions[key] for key in job.tasks}
    job.description = None


def _mark(job: PsState, task: Task, marks: frozenset[str]) -> None:
    for mark in task.marks ^ marks:
        marked = job.marked.setdefault((task.role, mark), set())
        (marked.add if mark in marks else marked.discard)(task.key)
    task.marks = marks


def _update_ring(job: PsState, task: Task, in_ring: bool) -> None:
    """Puts a task into the ring of those whose sidecars answer probes of others, or takes it out."""
    place = _place(task.key)
    at = bisect_left(job.ring, place)
    is_there = job.ring[at : at + 1] == [place]
    if in_ring and not is_there:
        job.ring.insert(at, place)
    elif is_there and not in_ring:
        del job.ring[at]


# -- queries ------------------------------------------------------------------------------------------------------
def has(job: PsState, mark: str, *roles: Role) -> bool:
    return any(job.marked.get((role, mark)) for role in roles or ROLES)


def count(job: PsState, mark: str, *roles: Role) -> int:
    return sum(len(job.marked.get((role, mark), ())) for role in roles or ROLES)


def those(job: PsState, mark: str, *roles: Role) -> list[Task]:
    """The tasks with this mark, in their order."""
    return _tasks(job, (key for role in roles or ROLES for key in job.marked.get((role, mark), ())))


def changed(job: PsState, *roles: Role) -> list[Task]:
    """The tasks that have changed since the rules last looked, or in this step; with roles, without removed ones."""
    found = _tasks(job, job.looked_at | job.touched)
    return [task for task in found if not task.removed and task.role in roles] if roles else found


def look_again(job: PsState, name: str) -> list[Task]:
    """Has the rules look at a task whose deadline has passed; returns it, or no task if it was removed."""
    role, _, index = name.rpartition("-")
    task = job.tasks.get((Role(role), RankIndex(int(index))))
    if task is None or task.removed:
        return []
    job.touched.add(task.key)
    return [task]


def due(job: PsState) -> list[Task]:
    """The tasks whose deadline has passed, and which need the event `Woke`."""
    keys = job.task_deadlines.take_due(job.now)
    return _tasks(job, ((Role(role), RankIndex(int(index))) for role, index in keys))


def after(job: PsState, task: Task, most: int) -> list[Task]:
    """The next `most` tasks in the ring of those whose members answer probes of others."""
    ring, place = job.ring, _place(task.key)
    first = bisect_right(ring, place)
    found = (ring[(first + n) % len(ring)] for n in range(min(most, len(ring))))
    return [job.tasks[ROLES[role], index] for role, index in found if (role, index) != place]


def _tasks(job: PsState, keys: Iterable[Key]) -> list[Task]:
    return [job.tasks[key] for key in sorted(keys, key=_place) if key in job.tasks]


def _place(key: Key) -> tuple[int, RankIndex]:
    return ROLES.index(key[0]), key[1]
