"""How well each neighbour is reached: round trip, loss, and since when not at all. The looks that are made anyway tell
it.

The master is told in a report: of all neighbours every ten seconds, members taking turns, and of one that begins or
ceases to answer at once. What was asked before a pause of this process may come back unanswered after it, so a pause
speaks against nobody.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from outrider.sidecar.core.state import Neighbourhood, Place, Seen, State
from outrider.wire.messages.links import LinkSeen, Neighbour

WINDOW = 20
"""Looks at one neighbour: a minute of them where there are three."""
TELL_EVERY = 10.0
SETTLED = 3.0
"""Seconds until each neighbour has been looked at once."""
MOMENT = 0.001
"""Seconds; 0 would say that it answers."""


def told(state: State, now: float) -> None:
    """The neighbours may be others now; those that stay keep what was seen of them."""
    around, me = state.neighbourhood, state.me
    places = {(each.address, each.port) for each in around.neighbours}
    around.seen = {place: seen for place, seen in around.seen.items() if place in places}
    turn = sum(me.member.encode()) % int(TELL_EVERY) if me is not None else 0
    around.tell_at = now + SETTLED + turn


def note(state: State, neighbour: Neighbour, round_trip: float | None, lost: int, now: float) -> None:
    """One look: the seconds of its round trip, None where nobody answered; and the datagrams that brought nothing."""
    around, place = state.neighbourhood, (neighbour.address, neighbour.port)
    if neighbour not in around.neighbours or place in around.left:
        return
    seen = around.seen.setdefault(place, Seen(deque(maxlen=WINDOW)))
    seen.looks.append((round_trip, lost))
    if (seen.missing_since is None) != (round_trip is not None):
        seen.missing_since, seen.is_news = now if round_trip is None else None, True


def forget_doubts(around: Neighbourhood) -> None:
    """Nobody is missing any more until another look finds nobody."""
    for seen in around.seen.values():
        if seen.missing_since is not None:
            seen.missing_since, seen.is_news = None, True


def rest(around: Neighbourhood) -> None:
    """No generation runs here: nobody is looked at, so that somebody was missing means nothing from now on."""
    for seen in around.seen.values():
        seen.missing_since, seen.is_news = None, False


def forget(around: Neighbourhood, place: Place) -> None:
    """It has said that it goes."""
    around.seen.pop(place, None)


def to_tell(state: State, now: float) -> tuple[LinkSeen, ...]:
    """For the report that goes out now."""
    around = state.neighbourhood
    if state.work is None:
        rest(around)
    is_all = now >= around.tell_at and bool(around.seen)
    if is_all:
        around.tell_at = max(around.tell_at + TELL_EVERY, now + TELL_EVERY / 2)
    rows = []
    for neighbour in around.neighbours:
        seen = around.seen.get((neighbour.address, neighbour.port))
        if seen is not None and (is_all or seen.is_news):
            seen.is_news = False
            rows.append(_row(neighbour, seen, now))
    return tuple(rows)


def _row(neighbour: Neighbour, seen: Seen, now: float) -> LinkSeen:
    trips = [trip for trip, _lost in seen.looks if trip is not None]
    lost = sum(lost for _trip, lost in seen.looks)
    missing = 0.0 if seen.missing_since is None else max(now - seen.missing_since, MOMENT)
    return LinkSeen(neighbour.member, median(trips) if trips else 0.0, lost, lost + len(trips), missing)
