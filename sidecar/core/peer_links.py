"""Measures the link to each neighbour: round trip, loss, and since when it gives no answer.

The numbers come from the probes of `peer_health`. Reports to the master contain all neighbours every ten seconds
(members take turns), and a neighbour that starts or stops answering at once. A probe sent before a pause of this
process may come back unanswered after it, so a pause is not evidence against any neighbour.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from outrider.sidecar.core.state import Neighbourhood, Place, Seen, State
from outrider.wire.messages.links import LinkSeen, Neighbour

WINDOW = 20
"""Number of probes of one neighbour that are kept: a minute's worth if there are three neighbours."""
REPORT_EVERY = 10.0
"""Seconds between two reports on all neighbours."""
SETTLED = 3.0
"""Seconds until each neighbour has been probed once."""
MOMENT = 0.001
"""Shortest reported time without an answer, in seconds; 0 would mean that the neighbour answers."""


def neighbours_changed(state: State, now: float) -> None:
    """Adopts the current neighbours; results of those that stay are kept."""
    around, me = state.neighbourhood, state.me
    places = {(each.address, each.port) for each in around.neighbours}
    around.seen = {place: seen for place, seen in around.seen.items() if place in places}
    turn = sum(me.member.encode()) % int(REPORT_EVERY) if me is not None else 0
    around.report_all_at = now + SETTLED + turn


def note(state: State, neighbour: Neighbour, round_trip: float | None, lost: int, now: float) -> None:
    """Notes one probe: its round trip in seconds (None: no answer) and the number of lost datagrams."""
    around, place = state.neighbourhood, (neighbour.address, neighbour.port)
    if neighbour not in around.neighbours or place in around.left:
        return
    seen = around.seen.setdefault(place, Seen(deque(maxlen=WINDOW)))
    seen.looks.append((round_trip, lost))
    if (seen.missing_since is None) != (round_trip is not None):
        seen.missing_since, seen.is_news = now if round_trip is None else None, True


def forget_missing(around: Neighbourhood) -> None:
    """Counts no neighbour as missing until another probe gets no answer."""
    for seen in around.seen.values():
        if seen.missing_since is not None:
            seen.missing_since, seen.is_news = None, True


def rest(around: Neighbourhood) -> None:
    """Discards missing answers while no generation runs here, as no neighbour is probed then."""
    for seen in around.seen.values():
        seen.missing_since, seen.is_news = None, False


def forget(around: Neighbourhood, place: Place) -> None:
    """Discards the results of a neighbour that has announced its end."""
    around.seen.pop(place, None)


def due_rows(state: State, now: float) -> tuple[LinkSeen, ...]:
    """The links to include in the report that is sent now."""
    around = state.neighbourhood
    if state.work is None:
        rest(around)
    is_all = now >= around.report_all_at and bool(around.seen)
    if is_all:
        around.report_all_at = max(around.report_all_at + REPORT_EVERY, now + REPORT_EVERY / 2)
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
