"""What ranks tell of their data. Each gets a line in this member's log, and the master is told what the job's user
reads.

Each rank goes on behind the same position, so the master hears it of rank 0 alone; of warnings, and of
their end, it hears the first of each member. A new master hears all of it again.
"""

from __future__ import annotations

from outrider.sidecar.core import outbox
from outrider.sidecar.core.actions import Action, Announce
from outrider.sidecar.core.events import DataTold
from outrider.sidecar.core.state import State
from outrider.wire.messages.data_position import DATA_KINDS, DataSaid

MOST = 64
"""Of a generation's that are said again."""


def told(state: State, event: DataTold) -> list[Action]:
    said = event.said
    work = state.work
    if work is None or work.generation != said.generation:
        return []
    severity = "warning" if said.warning else "normal"
    line = Announce(DATA_KINDS[said.word], said.sentence, said.generation, severity, event.detail)
    if said.rank != 0 and not ((said.warning or said.word == "atomic") and event.local_rank == 0):
        return [line]
    state.data_notes = (*state.data_notes, said)[-MOST:]
    return [line, *_say(state, said)]


def again(state: State) -> list[Action]:
    """After a Welcome."""
    return [action for said in state.data_notes for action in _say(state, said)]


def _say(state: State, said: DataSaid) -> list[Action]:
    return outbox.say(state, said, f"rank {said.rank} tells of its data: {said.sentence}", said.generation)
