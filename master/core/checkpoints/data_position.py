"""What ranks report about their data position: each report is one Event per generation, the newest are in the status.

Repeated samples are counted up to the loaded checkpoint. Samples between the checkpoint and the fault are trained on
again too, but the model was reset with them, so it has not learnt from them twice.
"""

from __future__ import annotations

from outrider.master.core.state.checkpoints import DataNote
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.state.occurrences import RankSaves
from outrider.wire.messages.data_position import DATA_KINDS, DataSaid

SHOWN = 32
"""The most reports that the status has."""
ROOM = ("not atomic", "atomic")
"""The messages about saves that find no room beside the old file, and about saves that find it again."""


def reported(state: State, member: Member, message: DataSaid) -> None:
    kind = DATA_KINDS.get(message.word)
    note = DataNote(str(message.generation), kind or "", message.sentence, message.samples)
    is_of_now = state.world is not None and state.world.generation == message.generation
    if kind is None or not is_of_now:
        return
    if message.word in ROOM:
        member.in_place = (message.generation, message.sentence) if message.word == ROOM[0] else None
        state.mark_status()
    if note in state.checkpoints.data_notes:
        return
    if message.word == "repeated":
        state.checkpoints.samples_repeated += message.samples
    _add(state, note)
    sentence = message.sentence[:1].upper() + message.sentence[1:]
    state.announce(kind, f"{sentence}.", member.id, warning=message.warning)


def saved(state: State, saves: RankSaves) -> None:
    """Clears a member's report of in-place saves from an earlier generation, once one of its ranks saves in this one.

    A rank reports that it saves in place before it does, so without a report the file is replaced atomically again.
    """
    member, generation = state.members.get(saves.member), saves.generation
    if member is not None and member.in_place is not None and member.in_place[0] != generation:
        member.in_place = None
        state.mark_status()


def add(state: State, kind: str, sentence: str) -> None:
    """Adds a report by the master itself."""
    _add(state, DataNote(str(state.generation), kind, sentence, 0))


def _add(state: State, note: DataNote) -> None:
    state.checkpoints.data_notes = [*state.checkpoints.data_notes, note][-SHOWN:]
    state.mark_status()
