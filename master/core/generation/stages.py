"""The stages of a job, and every way from one to another (`state.job` says what each stage means).

The table is the program: `move` refuses what is not in it, because a change that nobody thought of is a bug. `draw`
gives the table as the diagram of docs/contracts.md §14.
"""

from __future__ import annotations

from typing import Protocol

from outrider.master.core.state.job import COMMITTING, ENDED, FINISHING, GATHERING, REBUILDING, RUNNING, STOPPING

TABLE: dict[tuple[str, str], str] = {
    (GATHERING, "earlier master left a job"): REBUILDING,
    (GATHERING, "world decided"): COMMITTING,
    (GATHERING, "job over"): FINISHING,
    (GATHERING, "was over before"): ENDED,
    (COMMITTING, "world started"): RUNNING,
    (COMMITTING, "world dropped"): GATHERING,
    (COMMITTING, "job over"): FINISHING,
    (RUNNING, "stop ordered"): STOPPING,
    (RUNNING, "nothing runs any more"): GATHERING,
    (RUNNING, "job over"): FINISHING,
    (STOPPING, "nothing runs any more"): GATHERING,
    (STOPPING, "job over"): FINISHING,
    (REBUILDING, "world adopted"): RUNNING,
    (REBUILDING, "no world adopted"): GATHERING,
    (REBUILDING, "job over"): FINISHING,
    (REBUILDING, "was over before"): ENDED,
    (FINISHING, "everyone knows"): ENDED,
}


class Staged(Protocol):
    """A job of either kind."""

    stage: str


def move(job: Staged, cause: str) -> None:
    job.stage = TABLE[job.stage, cause]


def draw() -> str:
    """The table in Mermaid's words."""
    rows = [f"    {a} --> {b}: {cause}" for (a, cause), b in TABLE.items()]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {GATHERING}", *rows])
