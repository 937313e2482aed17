"""The history of a PS job: one part for all tasks (docs/contracts.md §15).

Rank indexes are places in the list of the tasks that train, the chief before the workers: only these have an account.
"""

from __future__ import annotations

from typing import Any

from outrider.master.core.actions import SaveHistory
from outrider.master.core.history import document
from outrider.master.core.ps.state import ROLES, PsState
from outrider.master.core.ps.task_adapter import OF_THE_JOB
from outrider.master.core.state.history import CASES, EVENTS, GENERATIONS, HOLDERS
from outrider.master.core.state.job import ENDED

MOST = {"generations": GENERATIONS, "holders": HOLDERS, "faults": CASES, "events": EVENTS}
"""The most entries of each list, the newest."""


def flush(job: PsState) -> None:
    """Writes the history at the end of a step if a task would, at most every ten seconds, and at the end."""
    is_due = job.history_wanted and job.now - job.history_at >= document.SOON
    if job.tasks and job.listed and (is_due or job.stage == ENDED):
        job.history_wanted, job.history_at = False, job.now
        job.actions.append(SaveHistory(part(job, job.now), job.generation, "The history of the job is saved."))


def part(job: PsState, now: float) -> dict[str, Any]:
    tasks = [task for role in ROLES for task in job.tasks.values() if task.role == role]
    places = {task.key: place for place, task in enumerate(task for task in tasks if task.trains)}
    most_spans = max(2, document.MOST_SPANS // max(1, len(places)))
    began = min(task.state.began_at for task in tasks)
    found: dict[str, Any] = document.head(tasks[0].state, now) | {
        "began_at": round(began + job.unix_offset, 3),
        "tracks": [], **{name: [] for name in MOST},
    }  # fmt: skip
    for task in tasks:
        place, later = places.get(task.key), round(10 * (task.state.began_at - began))
        rows = document.rows(task.state, now, most_spans=most_spans)
        found["faults"] += [fault | {"rank_index": place, "ranks": []} for fault in rows["faults"]]
        found["events"] += [event for event in rows["events"] if event[1] not in OF_THE_JOB]
        if place is None:
            continue
        for track in rows["tracks"]:
            spans = [[at + later, cause] for at, cause in track["spans"]]
            found["tracks"].append({"seats": [[place, place]], "spans": spans, "end": track["end"] + later})
        found["generations"] += [[at + later, *rest] for at, *rest in rows["generations"]]
        found["holders"] += [[at + later, place, *rest] for at, _index, *rest in rows["holders"]]
    found["events"] += [[round(each.at + job.unix_offset, 3), *each[1:]] for each in job.said]
    found["numbers"] = next((drawn for task in tasks if (drawn := document.numbers(task.state))), [])
    for name, most in MOST.items():
        found[name] = sorted(found[name], key=_moment)[-most:]
    return found


def _moment(entry: Any) -> float:
    moment: float = entry["at"] if isinstance(entry, dict) else entry[0]
    return moment
