"""Tracks signs of life of the master and of a few neighbours, and decides when this member is cut off.

While all is well the master sends nothing, so that it can serve ten thousand members; and a dead link may look up. So a
member probes its neighbours by itself: one of them a second. If a probe gets no answer, it probes all of them and pings
the master too. Any answer, and any message of the master, is a sign of life.

The rules: one sign of life from any of them is enough. A neighbour counts as missing only if it has answered before
(datagrams between pods may be forbidden altogether), if its last answer is not long past, and if it has not announced
its end. A pause of this process is not evidence against others: after a long pause all are probed again, for the full
time; a short one, as a busy machine has every few seconds, is only not counted.
"""

from __future__ import annotations

from outrider.sidecar.core import peer_links
from outrider.sidecar.core.actions import Action
from outrider.sidecar.core.state import Neighbourhood, State
from outrider.wire.messages.links import Neighbour

LOOK_EVERY = 1.0
"""Seconds from an answered probe to the next."""
LEAST_LOOKS = 3
"""Fewest rounds of probes without a sign of life before this member counts as cut off."""
LEAST_PATIENCE = 2.0
"""Shortest time in seconds without a sign of life, so that a network outage of one second has no effect whatever
`silentAfter` is."""
LONG_PAUSE = 1.0
"""Seconds from which a pause of this process counts as long."""
LATELY = 300.0
"""Seconds between a neighbour's last answer and the last sign of life of any, beyond which it does not count as
missing: it was unreachable before the present trouble, for example because of a network policy that was added while the
job ran."""


def neighbours_changed(state: State, neighbours: tuple[Neighbour, ...], now: float) -> None:
    """Takes the neighbours of a new or the running generation; earlier results of known neighbours are kept."""
    around = state.neighbourhood
    places = {_place(each) for each in neighbours}
    around.neighbours, around.left = neighbours, set()
    around.answered_at = {place: at for place, at in around.answered_at.items() if place in places}
    peer_links.neighbours_changed(state, now)
    look_again(state, now)


def heard(state: State, now: float) -> None:
    """Notes a sign of life."""
    around = state.neighbourhood
    around.sign_at, around.unanswered = now, 0


def look_again(state: State, now: float) -> None:
    """Restarts the time without a sign of life, and probes at once."""
    heard(state, now)
    state.neighbourhood.look_at = now


def start_over(state: State, now: float) -> None:
    """Discards all missing answers so far, and probes at once."""
    look_again(state, now)
    peer_links.forget_missing(state.neighbourhood)


def paused(state: State, seconds: float, now: float) -> None:
    """Discounts a pause of this process, during which answers may have arrived unread."""
    around = state.neighbourhood
    if seconds >= LONG_PAUSE:
        start_over(state, now)
    else:
        around.sign_at, around.unanswered = min(now, around.sign_at + seconds), max(0, around.unanswered - 1)


def probed(state: State, neighbour: Neighbour, reachable: bool, now: float) -> list[Action]:
    """Takes the result of one probe. A missing answer has no effect here: `sidecar.core.self_fencing.look` judges by
    time alone, as a probe sent before a pause may come back unanswered after it."""
    around, place = state.neighbourhood, _place(neighbour)
    if reachable and place in map(_place, around.neighbours):
        heard(state, now)
        around.answered_at[place] = now
        around.look_at = around.looked_at + LOOK_EVERY
    return []


def left(state: State, place: tuple[str, int]) -> list[Action]:
    """Notes that the sidecar at this place ends on order."""
    state.neighbourhood.left.add(place)
    peer_links.forget(state.neighbourhood, place)
    return []


def within_call(around: Neighbourhood) -> list[Neighbour]:
    """The neighbours that are probed."""
    return [each for each in around.neighbours if _place(each) not in around.left]


def missed(around: Neighbourhood) -> list[Neighbour]:
    """The neighbours whose silence counts."""
    answered = ((each, around.answered_at.get(_place(each))) for each in within_call(around))
    return [each for each, at in answered if at is not None and around.sign_at - at < LATELY]


def patience(state: State) -> float:
    """Seconds without a sign of life after which this member is cut off.

    They equal the master's wait: when it forms a generation without this member, the old one must have ended here, or
    end a moment later.
    """
    return max(state.link.silent_after, LEAST_PATIENCE)


def is_cut_off(state: State, now: float) -> bool:
    around = state.neighbourhood
    is_long = now >= around.sign_at + patience(state) - 1e-6
    return is_long and around.unanswered >= LEAST_LOOKS and bool(missed(around))


def _place(neighbour: Neighbour) -> tuple[str, int]:
    return (neighbour.address, neighbour.port)
