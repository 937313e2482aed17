"""Passes on the ranks' reports about their data, to this member's log and in part to the master.

Every report gets a line in the log. All ranks resume at the same position, so the master gets that from rank 0 alone;
of warnings, and of their end, it gets those of each member's first rank. A new master gets all of it again.
"""

from __future__ import annotations

from outrider.sidecar.core import outbox
from outrider.sidecar.core.actions import Action, Announce
from outrider.sidecar.core.events import DataTold
from outrider.sidecar.core.state import State
from outrider.wire.messages.data_position import DATA_KINDS, DataSaid

MOST = 64
"""Most reports of a generation that are repeated after a Welcome."""


def reported(state: State, event: DataTold) -> list[Action]:
    report = event.said
    work = state.work
    if work is None or work.generation != report.generation:
        return []
    severity = "warning" if report.warning else "normal"
    line = Announce(DATA_KINDS[report.word], report.sentence, report.generation, severity, event.detail)
    if report.rank != 0 and not ((report.warning or report.word == "atomic") and event.local_rank == 0):
        return [line]
    state.data_notes = (*state.data_notes, report)[-MOST:]
    return [line, *_send(state, report)]


def again(state: State) -> list[Action]:
    """Repeats the reports after a Welcome."""
    return [action for report in state.data_notes for action in _send(state, report)]


def _send(state: State, report: DataSaid) -> list[Action]:
    return outbox.say(state, report, f"data of rank {report.rank}: {report.sentence}", report.generation)
