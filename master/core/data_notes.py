"""What ranks have told of their data: each thing once a generation, as an event, and the newest in the status.

Samples that are trained on again are counted from the checkpoint: what lies between it and the fault is repeated too,
but the model went back with it, so nothing has been learnt twice.
"""

from __future__ import annotations

from master.core import status
from master.core.member import Member
from master.core.state import DataNote, State
from wire.messages import DATA_KINDS, DataSaid

SHOWN = 32


def said(state: State, member: Member, message: DataSaid) -> None:
    kind = DATA_KINDS.get(message.word)
    note = DataNote(str(message.generation), kind or "", message.sentence, message.samples)
    is_of_now = state.world is not None and state.world.generation == message.generation
    if kind is None or not is_of_now or note in state.data_notes:
        return
    if message.word == "repeated":
        state.samples_repeated += message.samples
    _add(state, note)
    sentence = message.sentence[:1].upper() + message.sentence[1:]
    state.announce(kind, f"{sentence}.", member.id, warning=message.warning)


def add(state: State, kind: str, sentence: str) -> None:
    """What the master itself knows of them."""
    _add(state, DataNote(str(state.generation), kind, sentence, 0))


def _add(state: State, note: DataNote) -> None:
    state.data_notes = [*state.data_notes, note][-SHOWN:]
    status.mark(state)
