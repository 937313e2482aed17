"""Ends a member that is done but gets no Finish from a master, with exit code 0 as without Outrider.

A master would order the same, unless it restarts this member because of others; it has some minutes for that. A master
that serves this member stops the timer; one that refuses it does not.
"""

from __future__ import annotations

from outrider.sidecar.core import member_end
from outrider.sidecar.core.actions import Action
from outrider.sidecar.core.state import Phase, State


def look(state: State, now: float) -> None:
    """Updates, at the end of each step, since when the member waits."""
    is_ending = state.ending is not None and state.ending.exit_code is not None
    if state.phase is not Phase.DONE or state.link.welcomed or is_ending:
        state.deserted_since = None
    elif state.deserted_since is None:
        state.deserted_since = now


def due(state: State) -> float | None:
    """When the member ends by itself; None if it does not wait."""
    if state.deserted_since is None or state.me is None:
        return None
    return state.deserted_since + state.me.done_after


def finish(state: State, now: float) -> list[Action]:
    assert state.deserted_since is not None
    waited = now - state.deserted_since
    reason = (
        f"all worker processes of generation {state.generation} have ended with 0, but no master has ordered this "
        f"member to finish for {waited:.0f} s, so it ends with 0"
    )
    return member_end.end_trainer(state, 0, reason, now)
