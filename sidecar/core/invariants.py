"""Invariants of a sidecar's state after every step; a violation is a bug in the step."""

from __future__ import annotations

from outrider.sidecar.core.state import Phase, State


class BrokenInvariant(AssertionError):
    """An invariant does not hold; the message names it."""


def check(state: State) -> None:
    for holds, law in _laws(state):
        if not holds:
            raise BrokenInvariant(f"{law} ({state.phase.name.lower()}, generation {state.generation})")


def _laws(state: State) -> list[tuple[bool, str]]:
    work, phase = state.work, state.phase
    idle = phase in (Phase.WAITING, Phase.READY)
    return [
        (idle == (work is None), "`work` is set exactly while a generation is being started, runs or is being stopped"),
        (
            (phase is Phase.STOPPING) == (state.stopping is not None),
            "`stopping` is set exactly while a stop is pending",
        ),
        (work is None or work.generation > state.stopped, "a stopped generation never runs again"),
        (work is None or work.generation <= state.highest, "the running generation is not above the highest known one"),
        (state.stopped <= state.highest, "the stopped generation is not above the highest known one"),
        (phase is Phase.READY or state.port == 0, "a port is offered only while the member is ready"),
        (phase is not Phase.READY or state.trainer is not None, "a member is ready only with a trainer"),
        (phase is not Phase.DONE or (work is not None and work.finished), "done means that all workers ended with 0"),
        (not state.link.welcomed or state.link.up, "a member is welcomed only while the link to the master is up"),
        (phase is not Phase.FORKING or (work is not None and work.start is not None), "forking follows only a Start"),
    ]
