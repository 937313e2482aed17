"""A member that is done, and whom no master tells to finish. It ends by itself, with 0, as it would without us.

A master's word would have been the same, unless it began again for the sake of others: it has some minutes for that.
One that is linked and serves this member ends the wait; one that refuses it is none.
"""

from __future__ import annotations

from outrider.sidecar.core import member_end
from outrider.sidecar.core.actions import Action
from outrider.sidecar.core.state import Phase, State


def look(state: State, now: float) -> None:
    """At the end of each step: since when does it wait?"""
    is_ending = state.ending is not None and state.ending.exit_code is not None
    if state.phase is not Phase.DONE or state.link.welcomed or is_ending:
        state.deserted_since = None
    elif state.deserted_since is None:
        state.deserted_since = now


def due(state: State) -> float | None:
    """When it ends; None where it does not wait."""
    if state.deserted_since is None or state.me is None:
        return None
    return state.deserted_since + state.me.done_after


def finish(state: State, now: float) -> list[Action]:
    assert state.deserted_since is not None
    waited = now - state.deserted_since
    reason = (
        f"all worker processes of generation {state.generation} have ended with 0, and no master was there to tell "
        f"this member to finish for {waited:.0f} s"
    )
    return member_end.end_trainer(state, 0, reason, now)
