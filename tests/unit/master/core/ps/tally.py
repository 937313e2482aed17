"""What a PS job keeps of all its seats is what a walk over them finds."""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.ps import stalled_workers, tally
from outrider.master.core.ps.state import PsState
from outrider.master.core.step import next_deadline


def assert_tallied(job: PsState) -> None:
    anew = PsState(seats={key: replace(seat, marks=frozenset()) for key, seat in job.seats.items()})
    for seat in anew.seats.values():
        tally.note(anew, seat)
        assert job.seat_deadlines.at((seat.role, str(seat.index))) == next_deadline(seat.state), seat.name
    tally.settle(anew)
    stalled_workers.recount(anew)
    assert {key: seats for key, seats in job.marked.items() if seats} == anew.marked
    assert (job.ring, job.description, job.trained_at) == (anew.ring, anew.description, anew.trained_at)
    assert job.late <= job.seats.keys()
