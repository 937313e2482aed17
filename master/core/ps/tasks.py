"""Creates and removes tasks: at the start, under a new master, and when the user scales the workers.

The other tasks are not disturbed: the parameter servers already know the address of a new worker, and a surplus worker
is stopped alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from outrider.master.core.events import Began, PodsListed, SpecChanged, StopAsked
from outrider.master.core.generation import stages
from outrider.master.core.ps import stalled_workers, tally, tf_config
from outrider.master.core.ps import status_batch as ps_status_batch
from outrider.master.core.ps.state import Key, PsState, Task
from outrider.master.core.ps.task_adapter import catch_up, tell
from outrider.master.core.spec import WORKER
from outrider.master.core.state.job import State
from outrider.master.core.state.membership import Membership
from outrider.master.core.text import counted, requested
from outrider.wire.ids import MemberId


def begin(job: PsState, event: Began) -> None:
    """Starts every task, with the state that an earlier master has saved of it."""
    kept = ps_status_batch.left(event.saved)
    job.term, job.spec, job.unix_offset = event.term, event.spec, event.unix_time - job.now
    job.target = int(kept.get("target", event.spec.replicas))
    job.began_at = float(kept.get("began_at", event.unix_time)) - job.unix_offset
    job.restarts.since = job.now
    job.version = int(kept.get("version", 0))
    for role, number in kept.get("next_id", {}).items():
        job.next_id[role] = int(number)
    for key in tf_config.keys(event.spec, job.target):
        _add(job, key, event, kept)
    if kept.get("ended"):
        job.phase, job.exit_code, job.message = kept["ended"]
        stages.move(job, "job over")
        stop_all(job, job.message)
    elif kept:
        text = f"A new master (term {job.term}) waits for the members that an earlier master started."
        job.announce("MasterStarted", text)
    else:
        job.announce("JobStarted", f"Job {event.spec.name} starts with {_counts(job)}.")
        _warn_of_own_tf_config(job)


def _counts(job: PsState) -> str:
    """`2 ps, 1 chief and 2 workers`."""
    counts: dict[str, int] = {}
    for task in job.tasks.values():
        counts[task.role] = counts.get(task.role, 0) + 1
    parts = [f"{number} ps" if role == "ps" else counted(number, role) for role, number in counts.items()]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _warn_of_own_tf_config(job: PsState) -> None:
    if job.spec.tf_config_from:
        text = f"TF_CONFIG is set in {job.spec.tf_config_from}: members use it, and Outrider does not set TF_CONFIG."
        job.announce("UserTfConfigFound", text, warning=True)


def _add(job: PsState, key: Key, event: Began, kept: dict[str, Any]) -> Task:
    task = job.tasks[key] = Task(*key, State(next_order=job.next_order, membership=Membership(crowd=job.crowd)))
    left = kept.get("seats", {}).get(task.name)
    for member in (left or {}).get("members", {}):
        job.members[MemberId(member)] = key
    spec = tf_config.task_spec(event.spec, key)
    tell(job, task, replace(event, spec=spec, saved={"saved": left} if left else None))
    _share(job, task, is_first=len(job.tasks) == 1)
    if done := kept.get("done", {}).get(task.name):
        task.state.phase, task.state.exit_code, task.state.message = done
        stages.move(task.state, "was over before")
        tally.note(job, task)
    return task


def _share(job: PsState, task: Task, *, is_first: bool) -> None:
    """Has the task share the ids and the restart budget of the job."""
    state = task.state
    for role, number in state.placement.next_id.items():
        job.next_id[role] = max(job.next_id.get(role, 0), number)
    state.placement.next_id = job.next_id
    if is_first:
        job.restarts.used, job.restarts.since = state.faults.restarts.used, state.faults.restarts.since
    state.faults.restarts = job.restarts


# -- another size -------------------------------------------------------------------------------------------------
def scale(job: PsState, workers: int) -> None:
    """Changes the number of workers that the user requests."""
    spec = job.spec
    if job.is_over or not spec.min_members <= workers <= spec.max_members:
        range_ = f"{spec.min_members} to {spec.max_members}"
        text = f"Invalid size: {counted(workers, 'worker')}: job {spec.name} runs with {range_}."
        job.announce("ScaleRejected", text, warning=True)
    elif workers == job.target:
        job.announce("ScaleRequested", f"{requested(workers, 'worker')} already.")
    else:
        job.announce("ScaleRequested", f"{requested(workers, 'worker')} instead of {job.target}.")
        job.target = workers
        job.save_wanted = True
        _fit(job)


def _fit(job: PsState) -> None:
    """Removes surplus tasks, and adds missing ones."""
    desired = tf_config.keys(job.spec, job.target)
    for key, task in list(job.tasks.items()):
        if key not in desired and not task.removed:
            catch_up(job, task)
            task.removed = True
            tell(job, task, StopAsked(f"the job has only {counted(job.target, WORKER)} now"))
    for key in desired:
        if key not in job.tasks:
            began = Began(job.term, job.spec, None, job.unix_offset + job.now)
            task = _add(job, key, began, {})
            if job.listed:
                tell(job, task, PodsListed(()))
    tally.sort(job)
    stalled_workers.recount(job)


def edited(job: PsState, event: SpecChanged) -> None:
    """Passes an edited spec to all tasks, and scales the workers if their number was edited."""
    job.spec, job.suspended = event.spec, event.suspended
    for key, task in list(job.tasks.items()):
        tell(job, task, replace(event, spec=tf_config.task_spec(event.spec, key)))
    if event.spec.replicas != job.target:
        scale(job, event.spec.replicas)


def stop_all(job: PsState, why: str) -> None:
    for task in list(job.tasks.values()):
        tell(job, task, StopAsked(why))
