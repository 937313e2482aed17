"""What is true of a sidecar's state after every step; where it is not, the step is a bug."""

from __future__ import annotations

from outrider.sidecar.core.state import Phase, State


class BrokenInvariant(AssertionError):
    """The sentence names the law that does not hold."""


def check(state: State) -> None:
    for holds, law in _laws(state):
        if not holds:
            raise BrokenInvariant(f"{law} ({state.phase.name.lower()}, generation {state.generation})")


def _laws(state: State) -> list[tuple[bool, str]]:
    work, phase = state.work, state.phase
    idle = phase in (Phase.WAITING, Phase.READY)
    return [
        (idle == (work is None), "there is a generation exactly while one is being started, runs or is being stopped"),
        ((phase is Phase.STOPPING) == (state.stopping is not None), "a stop is remembered exactly while it goes on"),
        (work is None or work.generation > state.stopped, "what was stopped never runs again"),
        (work is None or work.generation <= state.highest, "nothing runs that this member has not heard of"),
        (state.stopped <= state.highest, "nothing was stopped that this member has not heard of"),
        (phase is Phase.READY or state.port == 0, "a port is offered only while ready"),
        (phase is not Phase.READY or state.trainer is not None, "only a trainer makes a member ready"),
        (phase is not Phase.DONE or (work is not None and work.finished), "done means that all ended with 0"),
        (not state.link.welcomed or state.link.up, "only a master to whom there is a link has welcomed us"),
        (phase is not Phase.FORKING or (work is not None and work.start is not None), "what is forked was ordered"),
    ]
