"""The status of a PS job: one document for all tasks, with a row for each address."""

from __future__ import annotations

from typing import Any

from outrider.master.core.account import goodput as account_goodput
from outrider.master.core.ps import stalled_workers, tally
from outrider.master.core.ps.state import CHIEF, PsState, Task
from outrider.master.core.ps.tf_config import address
from outrider.master.core.spec import WORKER
from outrider.master.core.state.job import State
from outrider.master.core.state.member import in_order
from outrider.master.core.status import document as status_document

MOST_FAULTS = 100


def document(job: PsState, now: float) -> dict[str, Any]:
    """The status as users read it."""
    states = [task.state for task in job.tasks.values()]
    documents = [status_document.document(state, now) for state in states]
    faults = sorted((fault for each in documents for fault in each["faults"]), key=lambda fault: str(fault["time"]))
    modes: dict[str, int] = {}
    for each in documents:
        for mode, count in each["modes"].items():
            modes[mode] = modes.get(mode, 0) + count
    return {
        "version": 1,
        "job": str(job.spec.name),
        "phase": phase(job),
        "generation": "-",
        "world": sum(1 for task in job.tasks.values() if task.runs is not None),
        "step": step(job),
        "restarts": sum(max(0, state.number - 1) for state in states),
        **account_goodput.document([task.state for role in (CHIEF, WORKER) for task in job.of(role)], now),
        "goodput_by_steps": _goodput_by_steps(job, now),
        "replicated_step": None,
        "checkpoint_saved_at": max((at for each in documents if (at := each["checkpoint_saved_at"])), default=None),
        "message": message(job),
        "exit_code": job.exit_code,
        "modes": dict(sorted(modes.items())),
        "faults": faults[-MOST_FAULTS:],
        "dry_run": [*job.would.values()][-status_document.WOULD_SHOWN :] if job.spec.observed else None,
        "excluded_nodes": sorted({node for state in states for node in state.exclusion.avoiding}),
        "memory": {f"{s.name}": needed for s in job.tasks.values() for needed in s.state.faults.memory.values()},
        "seats": [_row(job, task) for task in job.tasks.values()],
        "members": [row for each in documents for row in sorted(each["members"], key=lambda row: _number(row["id"]))],
    }


def _number(member: str) -> int:
    number = member.rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def _row(job: PsState, task: Task) -> dict[str, Any]:
    """The status of one task: its address, and the member that has it."""
    state = task.state
    holders = [m.id for m in sorted(state.members.values(), key=in_order) if m.rank_index is not None]
    return {
        "role": str(task.role),
        "rank_index": task.index,
        "address": address(job.spec, (task.role, task.index)),
        "member": str(holders[0]) if holders else None,
        "phase": state.phase,
        "generation": str(state.generation),
        "step": state.progress.high_step,
    }


def step(job: PsState) -> int:
    """The highest step of any task: in TensorFlow's jobs all count the same global step."""
    return max((task.state.progress.high_step for task in job.tasks.values()), default=0)


def _goodput_by_steps(job: PsState, now: float) -> float | None:
    """The goodput of the task that represents the job: the chief, else worker 0."""
    found = next(iter([*job.of(CHIEF), *job.of(WORKER)]), None)
    return status_document.goodput_by_steps(found.state, now) if found is not None else None


def phase(job: PsState) -> str:
    """The job's phase: the final one, else `running` if any chief or worker is, else `restarting`, else `pending`."""
    if job.is_over:
        return job.phase
    if job.suspended:
        return "suspended"
    found = (word for word in ("running", "restarting") if tally.has(job, word, CHIEF, WORKER))
    return next(found, "pending")


def message(job: PsState) -> str:
    """The status's one sentence: how the job ended, which members are missing, or that all members run."""
    if job.is_over:
        return job.message
    unfinished = [task for task in job.tasks.values() if not task.removed and not _is_done(task.state)]
    absent = [_newest(task) for task in unfinished if task.runs is None]
    if absent:
        return f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not running"
    late = stalled_workers.late(job, job.now)
    if late:
        return f"all members run, but {', '.join(late)} {'has' if len(late) == 1 else 'have'} made no step yet"
    return "all members run"


def _newest(task: Task) -> str:
    """The name of the newest member of the task: the pod that a user looks for."""
    holders = [str(member.id) for member in task.state.members.values() if member.rank_index is not None]
    return max(holders, key=_number, default=task.name)


def _is_done(state: State) -> bool:
    return state.phase == "succeeded"
