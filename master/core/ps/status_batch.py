"""Writes one status for all tasks: at most once a second, and at once if a start waits for it.

A write has the newest state of every task, so each task receives StatusSaved for its own newest status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.master.core.actions import SaveStatus
from outrider.master.core.events import StatusSaved
from outrider.master.core.ps import status, tally
from outrider.master.core.ps.state import Key, PsState, has_ended
from outrider.master.core.ps.task_adapter import catch_up, tell
from outrider.master.core.state.job import ENDED
from outrider.master.core.status import document as one_world
from outrider.master.core.status import persist as status_persist

LEAST_APART = 1.0


def flush(job: PsState) -> None:
    """At the end of a step."""
    if not job.save_wanted or not (job.listed or job.is_over):
        return
    if job.save_due or job.now >= job.saved_at + LEAST_APART - 1e-6:
        _save(job)
    else:
        job.deadlines.set(("save", ""), job.saved_at + LEAST_APART)


def _save(job: PsState) -> None:
    if job.is_over:
        reason = "No member is left." if job.stage == ENDED else job.message
    else:
        reason = "A start waits for this status." if job.save_due else "The status has changed."
    job.version += 1
    job.saved_at, job.save_wanted, job.save_due = job.now, False, False
    job.deadlines.cancel(("save", ""))
    job.saves = {**{v: of for v, of in job.saves.items() if v > job.version - 16}, job.version: _versions(job)}
    for task in job.tasks.values():
        catch_up(job, task)
        one_world.written(task.state)
        tally.note_deadline(job, task)
    kept = status.document(job, job.now) | {"saved": _saved(job)}
    job.actions.append(SaveStatus(job.version, kept, job.generation, reason))


def _versions(job: PsState) -> dict[Key, int]:
    return {key: task.state.status.version for key, task in job.tasks.items()}


def saved(job: PsState, event: StatusSaved) -> None:
    """Passes on to each task that its own status is saved."""
    for key, version in job.saves.pop(event.version, {}).items():
        if key in job.tasks:
            tell(job, job.tasks[key], StatusSaved(version))


def failed(job: PsState, error: str) -> None:
    job.save_wanted = True
    text = (
        f"The status could not be saved: {error}. No generation starts until it is saved; the master retries "
        f"in {LEAST_APART:.0f} s."
    )
    job.announce("StatusWriteFailed", text, warning=True)
    job.saved_at, job.save_due = job.now, False


# -- for the next master ------------------------------------------------------------------------------------------
def _saved(job: PsState) -> dict[str, Any]:
    return {
        "term": job.term,
        "version": job.version,
        "target": job.target,
        "began_at": job.began_at + job.unix_offset,
        "next_id": {str(role): number for role, number in sorted(job.next_id.items())},
        "seats": {task.name: status_persist.saved(task.state) for task in job.tasks.values()},
        "ended": [job.phase, job.exit_code, job.message] if job.is_over else None,
        "done": {task.name: [task.state.phase, task.state.exit_code, task.state.message]
                 for task in job.tasks.values() if has_ended(task)},
    }  # fmt: skip


def left(saved: Mapping[str, object] | None) -> dict[str, Any]:
    """The part of a saved status about a PS job; empty if there is none."""
    kept = saved.get("saved") if saved is not None else None
    return kept if isinstance(kept, dict) and isinstance(kept.get("seats"), dict) else {}
