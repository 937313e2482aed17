"""What masters of the simulation have done is replayed from their recordings, without a text that is not allowed: the
core decides the same. So what a placeholder hides changes no decision."""

from __future__ import annotations

import json

import pytest

from outrider.master.recording import codec, reading, recorder, replay
from outrider.runtime.journal import text
from tests.simulation.recorded import RecordedOutageWorld, RecordedPsWorld, RecordedWorld
from tests.unit.master.recording.open_scrubber import Open

FOUND = (2, 37, 125)
"""Seeds by which a field was found whose text the core compares with others."""


@pytest.mark.parametrize("kind", [RecordedWorld, RecordedPsWorld, RecordedOutageWorld])
def test_the_core_decides_the_same_without_the_texts(kind: type[RecordedWorld]) -> None:
    for seed in (*range(4), *(FOUND if kind is RecordedWorld else ())):
        assert replays(kind(seed)) > 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(0, 120, 20))
@pytest.mark.parametrize("kind", [RecordedWorld, RecordedPsWorld, RecordedOutageWorld])
def test_and_of_further_seeds(kind: type[RecordedWorld], first: int) -> None:
    for seed in range(first, first + 20):
        assert replays(kind(seed)) > 0


def replays(world: RecordedWorld) -> int:
    """The number of events that were replayed."""
    world.run()
    count = 0
    for journal in world.journals:
        lines = [line for line in recorder.lines(journal.taken()) if line]
        for found in replay.replayed(reading.read(lines)) if lines else ():
            where = f"seed {world.seed}, event {found.step.number}: {text(found.step.event)}"
            assert not found.failure, f"{where}\n{found.failure}"
            assert not found.differs, f"{where}\nrecorded {found.recorded}\nnow {found.actions}"
            count += 1
        same_again(journal.begins_with())
    return count


def same_again(state: object) -> None:
    """A state is equal after a way through JSON, but for the reasons of orders, which are left out."""
    if state is not None:
        written = json.loads(json.dumps(codec.encoded(type(state), state, Open())))
        assert codec.encoded(type(state), codec.decoded(type(state), written), Open()) == written
