"""Self-fencing: a member that reaches neither the master nor any neighbour stops its worker processes itself.

The other members may continue without it, and two generations of one job must not train, and save, side by side. So a
generation is a lease: it is valid while the master or any neighbour gives a sign of life, and ends `silent_after` after
the last one, when the master may have replaced this member. Losing the master alone never stops a member; nor does a
member without neighbours stop itself; a network outage that ends in time has no effect.

The next generation may be saving by then, so an unfinished save of this one is not waited for. Once the link is back,
the next Hello reports the reason to the master, and the member is ready for the next generation.
"""

from __future__ import annotations

from outrider.sidecar.core import outbox, peer_health, supervision
from outrider.sidecar.core.actions import Action, Announce, ProbeNeighbour
from outrider.sidecar.core.state import Neighbourhood, Phase, State
from outrider.wire.ids import NO_ORDER
from outrider.wire.messages.generation import Stop
from outrider.wire.messages.links import Neighbour, Ping

LOOK_AGAIN = 0.5
"""Seconds to the next round of probes while the last one is unanswered."""
LOOK_FOR_ONE = 5.0
"""Seconds between rounds of probes while no neighbour counts: none has ever answered, or all have left."""
PROBE_SECONDS = 0.4
"""Time-out of one probe in seconds."""


def due(state: State) -> float | None:
    """When to probe next; None without worker processes to stop, or without neighbours."""
    return state.neighbourhood.look_at if _is_watched(state) and not state.hands_off else None


def _is_watched(state: State) -> bool:
    work, end = state.work, state.ending
    if work is None or not state.neighbourhood.neighbours or (end is not None and end.exit_code is not None):
        return False
    return state.phase is Phase.FORKING or (state.phase is Phase.RUNNING and work.alive > 0)


def look(state: State, now: float) -> list[Action]:
    """Sends one round of probes, or stops the worker processes if this member is cut off."""
    around = state.neighbourhood
    if now > around.looked_at + 2 * LOOK_FOR_ONE:
        peer_health.start_over(state, now)  # nothing ran here for a while, so that no neighbour was probed
    if peer_health.is_cut_off(state, now):
        return _stop(state, now)
    targets, is_unanswered = _targets(around), around.unanswered > 0
    around.looked_at, around.unanswered, around.turn = now, around.unanswered + 1, around.turn + 1
    around.look_at = _next_look(state, now)
    reason = "the last probe got no answer" if is_unanswered else "is this member still connected?"
    probes: list[Action] = [ProbeNeighbour(each, PROBE_SECONDS, state.generation, reason) for each in targets]
    return [*probes, *_ping_the_master(state)] if is_unanswered else probes


def _next_look(state: State, now: float) -> float:
    """The time of the next round; the moment at which this member counts as cut off, if that is near."""
    around = state.neighbourhood
    if not peer_health.missed(around):
        return now + LOOK_FOR_ONE
    beyond = around.sign_at + peer_health.patience(state) - now - LOOK_AGAIN
    return now + LOOK_AGAIN + (beyond if 0 < beyond < LOOK_AGAIN / 2 else 0.0)


def _targets(around: Neighbourhood) -> list[Neighbour]:
    """The neighbours to probe: one in turn while all is well, otherwise all."""
    reachable = peer_health.within_call(around)
    if around.unanswered or not peer_health.missed(around):
        return reachable
    return [reachable[around.turn % len(reachable)]]


def _ping_the_master(state: State) -> list[Action]:
    if not peer_health.missed(state.neighbourhood):
        return []
    return outbox.say(state, Ping(state.neighbourhood.turn), "no neighbour answers: does the master?")


def _stop(state: State, now: float) -> list[Action]:
    around = state.neighbourhood
    names = ", ".join(sorted(each.member for each in peer_health.missed(around)))
    why = (
        f"this member was cut off: neither the master nor {names} could be reached for {now - around.sign_at:.1f} s; "
        f"it stopped its worker processes, because the other members may have continued training without it"
    )
    generation = state.generation
    state.isolated = why
    state.link.welcomed = state.link.report_due = False  # the link may be dead though up: a Hello starts it afresh
    state.link.report_at = None
    grace, handler_grace, _ = state.link.graces
    order = Stop(NO_ORDER, generation, grace, handler_grace, 0.0, why)
    line = Announce("Isolated", why, generation, "warning")
    return [line, *supervision.begin_stop(state, order, now), *outbox.hello(state, now)]
