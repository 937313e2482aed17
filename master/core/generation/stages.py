"""The stages of a job and all transitions between them (`state.job` says what each stage means).

`move` refuses a transition that is not in the table: an unforeseen one is a bug. `draw` prints the table as the diagram
of docs/contracts.md §14.
"""

from __future__ import annotations

from typing import Protocol

from outrider.master.core.state.job import COMMITTING, ENDED, FINISHING, GATHERING, REBUILDING, RUNNING, STOPPING

TABLE: dict[tuple[str, str], str] = {
    (GATHERING, "earlier master left a job"): REBUILDING,
    (GATHERING, "generation decided"): COMMITTING,
    (GATHERING, "job over"): FINISHING,
    (GATHERING, "was over before"): ENDED,
    (COMMITTING, "generation started"): RUNNING,
    (COMMITTING, "generation dropped"): GATHERING,
    (COMMITTING, "job over"): FINISHING,
    (RUNNING, "stop ordered"): STOPPING,
    (RUNNING, "nothing runs any more"): GATHERING,
    (RUNNING, "job over"): FINISHING,
    (STOPPING, "nothing runs any more"): GATHERING,
    (STOPPING, "job over"): FINISHING,
    (REBUILDING, "generation adopted"): RUNNING,
    (REBUILDING, "no generation adopted"): GATHERING,
    (REBUILDING, "job over"): FINISHING,
    (REBUILDING, "was over before"): ENDED,
    (FINISHING, "end acknowledged"): ENDED,
}


class Staged(Protocol):
    """An all-reduce job or a PS job."""

    stage: str


def move(job: Staged, cause: str) -> None:
    job.stage = TABLE[job.stage, cause]


def draw() -> str:
    """The table as a Mermaid state diagram."""
    rows = [f"    {a} --> {b}: {cause}" for (a, cause), b in TABLE.items()]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {GATHERING}", *rows])
