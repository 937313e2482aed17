"""A member that is cut off: it reaches neither the master nor any neighbour, and stops its worker processes itself.

The others may be told to go on without it, and two worlds of one job must not train, and save, side by side. So its
generation is a lease: it holds for as long as anybody gives a sign of life, and is over `silent_after` after the last
one, when the master may have given its place away. Losing the master alone costs nothing, for ever; a member without
neighbours never stops itself; a network that comes back in time is not noticed.

The next world may be saving by then: a save of this one that is not ready is not waited for.

When it is back the master is told why in the next Hello, and the member is ready for the next generation.
"""

from __future__ import annotations

from outrider.sidecar.core import outbox, peer_health, supervision
from outrider.sidecar.core.actions import Action, Announce, ProbeNeighbour
from outrider.sidecar.core.state import Neighbourhood, Phase, State
from outrider.wire.ids import NO_ORDER
from outrider.wire.messages.generation import Stop
from outrider.wire.messages.links import Neighbour, Ping

LOOK_AGAIN = 0.5
"""Seconds to the next look as long as this one is not answered."""
LOOK_FOR_ONE = 5.0
"""Seconds between looks while no neighbour counts: none ever answered, or all have gone."""
PROBE_SECONDS = 0.4


def due(state: State) -> float | None:
    """When to look around; None where there is nothing to stop, or nobody to look for."""
    return state.neighbourhood.look_at if _is_watched(state) and not state.hands_off else None


def _is_watched(state: State) -> bool:
    work, end = state.work, state.ending
    if work is None or not state.neighbourhood.neighbours or (end is not None and end.exit_code is not None):
        return False
    return state.phase is Phase.FORKING or (state.phase is Phase.RUNNING and work.alive > 0)


def look(state: State, now: float) -> list[Action]:
    """One look around, or the end of patience."""
    around = state.neighbourhood
    if now > around.looked_at + 2 * LOOK_FOR_ONE:
        peer_health.look_anew(state, now)  # nothing ran here for a while, and nobody was looked for
    if peer_health.is_cut_off(state, now):
        return _stop(state, now)
    asked, doubtful = _asked(around), around.unanswered > 0
    around.looked_at, around.unanswered, around.turn = now, around.unanswered + 1, around.turn + 1
    around.look_at = _next_look(state, now)
    reason = "nobody has answered" if doubtful else "is this member still in touch?"
    probes: list[Action] = [ProbeNeighbour(each, PROBE_SECONDS, state.generation, reason) for each in asked]
    return [*probes, *_ask_the_master(state)] if doubtful else probes


def _next_look(state: State, now: float) -> float:
    """At the end of patience where that is near."""
    around = state.neighbourhood
    if not peer_health.missed(around):
        return now + LOOK_FOR_ONE
    beyond = around.sign_at + peer_health.patience(state) - now - LOOK_AGAIN
    return now + LOOK_AGAIN + (beyond if 0 < beyond < LOOK_AGAIN / 2 else 0.0)


def _asked(around: Neighbourhood) -> list[Neighbour]:
    """Each in its turn while all is well, else all."""
    everybody = peer_health.within_call(around)
    if around.unanswered or not peer_health.missed(around):
        return everybody
    return [everybody[around.turn % len(everybody)]]


def _ask_the_master(state: State) -> list[Action]:
    if not peer_health.missed(state.neighbourhood):
        return []
    return outbox.say(state, Ping(state.neighbourhood.turn), "no neighbour answers: is the master there?")


def _stop(state: State, now: float) -> list[Action]:
    around = state.neighbourhood
    names = ", ".join(sorted(each.member for each in peer_health.missed(around)))
    why = (
        f"neither the master nor {names} could be reached for {now - around.sign_at:.1f} s: this member is cut off and "
        f"stops its worker processes, because others may train on in its place"
    )
    generation = state.generation
    state.isolated = why
    state.link.welcomed = state.link.report_due = False  # the link may be up and dead: all is said anew after a Hello
    state.link.report_at = None
    grace, handler_grace, _ = state.link.graces
    order = Stop(NO_ORDER, generation, grace, handler_grace, 0.0, why)
    line = Announce("Isolated", why, generation, "warning")
    return [line, *supervision.begin_stop(state, order, now), *outbox.hello(state, now)]
