"""Who is within reach. Signs of life of the master and of a few neighbours say it, and a rule says when a member is cut
off.

The master says nothing while all is well, so that it can serve ten thousand members; and a link may be up and dead. So
a member looks around by itself, at its neighbours: one of them a second, and all of them as soon as one look brings
nothing, and then it asks the master as well. Whoever answers, and whatever the master says, is a sign of life.

The laws: one sign of anybody is enough; only who has answered before can be missed, because datagrams between pods may
be forbidden altogether, and not when its last answer is long past, nor after it has said that it goes; a pause of this
process says nothing about others, so after it everybody is looked for anew, for the whole time. A short one,
as a busy machine has every few seconds, only does not count.
"""

from __future__ import annotations

from outrider.sidecar.core import peer_links
from outrider.sidecar.core.actions import Action
from outrider.sidecar.core.state import Neighbourhood, State
from outrider.wire.messages.links import Neighbour

LOOK_EVERY = 1.0
"""Seconds from a look that was answered to the next."""
LEAST_LOOKS = 3
LEAST_PATIENCE = 2.0
"""Seconds: whatever `silentAfter` is, a network that stops for one second does nothing."""
LONG_PAUSE = 1.0
LATELY = 300.0
"""Seconds between a neighbour's last answer and the last sign of anybody, above which it is not missed: that it cannot
be reached is then older than what happens now, as where a network policy came while the job ran."""


def told(state: State, neighbours: tuple[Neighbour, ...], now: float) -> None:
    """The neighbours of a new generation, or of the one that runs. Those that are known keep what was seen of them."""
    around = state.neighbourhood
    places = {_place(each) for each in neighbours}
    around.neighbours, around.left = neighbours, set()
    around.answered_at = {place: at for place, at in around.answered_at.items() if place in places}
    peer_links.told(state, now)
    look_again(state, now)


def heard(state: State, now: float) -> None:
    """A sign of life."""
    around = state.neighbourhood
    around.sign_at, around.unanswered = now, 0


def look_again(state: State, now: float) -> None:
    """The time without a sign of anybody begins anew."""
    heard(state, now)
    state.neighbourhood.look_at = now


def look_anew(state: State, now: float) -> None:
    """Nothing of what was seen so far counts against anybody."""
    look_again(state, now)
    peer_links.forget_doubts(state.neighbourhood)


def paused(state: State, seconds: float, now: float) -> None:
    """This process did not run for so long: what was asked then may have been answered in vain."""
    around = state.neighbourhood
    if seconds >= LONG_PAUSE:
        look_anew(state, now)
    else:
        around.sign_at, around.unanswered = min(now, around.sign_at + seconds), max(0, around.unanswered - 1)


def probed(state: State, neighbour: Neighbour, reachable: bool, now: float) -> list[Action]:
    """What came of one question. That nobody answers is judged by time alone, in `sidecar.core.self_fencing.look`: what
    was asked before a pause may come back unanswered after it."""
    around, place = state.neighbourhood, _place(neighbour)
    if reachable and place in map(_place, around.neighbours):
        heard(state, now)
        around.answered_at[place] = now
        around.look_at = around.looked_at + LOOK_EVERY
    return []


def left(state: State, place: tuple[str, int]) -> list[Action]:
    """That sidecar ends, as it was told to."""
    state.neighbourhood.left.add(place)
    peer_links.forget(state.neighbourhood, place)
    return []


def within_call(around: Neighbourhood) -> list[Neighbour]:
    """Those that are asked."""
    return [each for each in around.neighbours if _place(each) not in around.left]


def missed(around: Neighbourhood) -> list[Neighbour]:
    """Those whose silence means something."""
    answered = ((each, around.answered_at.get(_place(each))) for each in within_call(around))
    return [each for each, at in answered if at is not None and around.sign_at - at < LATELY]


def patience(state: State) -> float:
    """Seconds without a sign of anybody. As long as the master waits: when it forms a world without this member, or a
    moment later, nothing of the old one may run here."""
    return max(state.link.silent_after, LEAST_PATIENCE)


def is_cut_off(state: State, now: float) -> bool:
    around = state.neighbourhood
    is_long = now >= around.sign_at + patience(state) - 1e-6
    return is_long and around.unanswered >= LEAST_LOOKS and bool(missed(around))


def _place(neighbour: Neighbour) -> tuple[str, int]:
    return (neighbour.address, neighbour.port)
