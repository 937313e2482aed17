"""Decides from the members' own probes which members cannot reach each other, and which links are slow.

A member that does not answer another one may be gone, stopped or cut off from all: that is the business of
`membership.failure_detector`. Two members cannot reach each other if neither has reached the other for some seconds
while other members still reach each of them. A generation of two has no other members, so both must have reached each
other before: datagrams between pods may be forbidden altogether. If only one of the two does not reach the other, that
is reported and nothing more.

A link is slow or lossy compared with the job's other links. A busy machine makes round trips long as well, so a slow
link is reported and nothing is done. Old reports do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from statistics import median

from outrider.master.core.state.links import Cut, Links, Pair, Row, Slow, pair_of
from outrider.wire.ids import MemberId
from outrider.wire.messages.links import LinkSeen

CUT_AFTER = 3.0
"""Seconds for which neither member has reached the other; each probes two or three times in them."""
ONE_WAY_AFTER = 10.0
"""Seconds for which one member has not reached another that reaches it."""
CONFIRMED_AFTER = 2.0
"""Seconds since the master first heard of it: delayed reports arrive together and may show what is already over."""
FRESH = 25.0
"""Seconds for which a report of a link counts; two reports may be lost in them."""
SLOW_TIMES, SLOW_BY = 5.0, 0.02
"""Factor and seconds by which the round trip of a slow link exceeds the usual one."""
LOSSY, LEAST_LOST = 0.1, 3
"""Share of its datagrams that a lossy link loses at least, and how many of the last ones."""
AGAIN = 2
"""Checks in a row at which a link is slow before it is reported."""


# -- reports of members -------------------------------------------------------------------------------------------
def note(links: Links, observer: MemberId, report: Iterable[LinkSeen], now: float) -> bool:
    """Notes a report of links. True if the observer no longer reaches a member. O(the report)."""
    is_news = False
    rows = links.rows.setdefault(observer, {})
    for each in report:
        row = rows.setdefault(each.member, Row(now))
        row.at, row.round_trip = now, max(each.round_trip, 0.0)
        row.lost, row.sent = max(each.lost, 0), max(each.sent, each.lost, 0)
        row.was_found = row.was_found or row.round_trip > 0
        since = now - each.missing if each.missing > 0 else None
        is_news = _missing(links, observer, each.member, row, since, now) or is_news
    return is_news


def probed(links: Links, observer: MemberId, target: MemberId, reachable: bool, asked_for: float, now: float) -> bool:
    """Notes the result of a probe that the master requested, after `asked_for` seconds. Returns what `note` does."""
    row = links.rows.setdefault(observer, {}).setdefault(target, Row(now))
    row.at, row.was_found = now, row.was_found or reachable
    return _missing(links, observer, target, row, None if reachable else now - asked_for, now)


def _missing(links: Links, observer: MemberId, target: MemberId, row: Row, since: float | None, now: float) -> bool:
    is_new = since is not None and row.missing_since is None
    if since is None:
        row.missing_since = None
        links.missing.discard((observer, target))
    elif is_new:
        row.missing_since, row.noted_at = since, now
        links.missing.add((observer, target))
    return is_new


def forget(links: Links, members: Collection[MemberId]) -> None:
    """Forgets all reports except those by and about these members."""
    for observer in [m for m in links.rows if m not in members]:
        del links.rows[observer]
    for rows in links.rows.values():
        for target in [m for m in rows if m not in members]:
            del rows[target]
    links.missing = {pair for pair in links.missing if pair[0] in members and pair[1] in members}
    links.asked = {number: pair for number, pair in links.asked.items() if pair[0] in members and pair[1] in members}


def is_fresh(links: Links, observer: MemberId, target: MemberId, now: float) -> bool:
    """Whether the observer has probed the target recently."""
    row = links.rows.get(observer, {}).get(target)
    return row is not None and now - row.at < FRESH


# -- members that cannot reach each other -------------------------------------------------------------------------
def cuts(links: Links, heard: Collection[MemberId], size: int, now: float) -> list[Cut]:
    """Pairs of heard members that cannot reach each other, in a generation of `size`. O(missing links)."""
    found: dict[Pair, Cut] = {}
    for one, other in sorted(links.missing):
        if one in heard and other in heard and pair_of(one, other) not in found:
            cut = _cut(links, one, other, size, now)
            if cut is not None:
                found[cut.pair] = cut
    return list(found.values())


def _cut(links: Links, one: MemberId, other: MemberId, size: int, now: float) -> Cut | None:
    there, back = _row(links, one, other, now), _row(links, other, one, now)
    if there is None or there.missing_since is None or not _is_confirmed(there, now):
        return None
    if back is not None and back.missing_since is not None:
        since = max(there.missing_since, back.missing_since)
        if now - since < CUT_AFTER or not _is_confirmed(back, now):
            return None
        is_known = _are_found(links, one, other, now) if size > 2 else there.was_found and back.was_found
        return Cut(*pair_of(one, other), since, True) if is_known else None
    is_one_way = back is not None and back.at > there.missing_since + CUT_AFTER and there.was_found
    if is_one_way and now - there.missing_since >= ONE_WAY_AFTER:
        return Cut(one, other, there.missing_since, False)
    return None


def _row(links: Links, observer: MemberId, target: MemberId, now: float) -> Row | None:
    row = links.rows.get(observer, {}).get(target)
    return row if row is not None and now - row.at < FRESH else None


def _is_confirmed(row: Row, now: float) -> bool:
    return now - row.noted_at >= CONFIRMED_AFTER - 1e-6


def _are_found(links: Links, one: MemberId, other: MemberId, now: float) -> bool:
    """Whether each of the two reaches a third member; a round trip shows that both of its ends work."""
    return all(
        any(target != but and row.missing_since is None and now - row.at < FRESH
            for target, row in links.rows.get(member, {}).items())
        for member, but in ((one, other), (other, one))
    )  # fmt: skip


def to_replace(
    cuts: Iterable[Cut], age: dict[MemberId, float], spared: Collection[MemberId], most: int
) -> list[MemberId]:
    """The members to replace so that the others reach each other: the one with the most broken links first, of equals
    the younger, and never one of `spared`. Empty if that takes more than `most`, or if no member of a pair may go."""
    left = {cut.pair for cut in cuts if cut.is_both}
    gone: list[MemberId] = []
    while left:
        count = {m: sum(m in pair for pair in left) for pair in left for m in pair}
        candidates = [m for m in count if m not in spared]
        if not candidates or len(gone) >= most:
            return []
        worst = max(candidates, key=lambda m: (count[m], -age.get(m, 0.0), m))
        gone.append(worst)
        left = {pair for pair in left if worst not in pair}
    return gone


# -- slow links ---------------------------------------------------------------------------------------------------
def look_for_slow(links: Links, now: float) -> list[Slow]:
    """Links that are slow or lossy for the second time in a row. O(links)."""
    trips, losses = _measured(links, now)
    if len(trips) < 3:
        links.doubts.clear()
        return []
    links.usual = sorted(trips.values())[len(trips) // 4]  # of three members, a slow one has two of the three links
    bad = {pair for pair in trips.keys() | losses.keys()
           if _is_slow(trips.get(pair, 0.0), links.usual) or losses.get(pair, 0.0) >= LOSSY}  # fmt: skip
    named = [_slow(links, members, trips, losses) for members in _whose(bad, trips.keys() | losses.keys())]
    links.doubts = {slow.members: links.doubts.get(slow.members, 0) + 1 for slow in named}
    return [slow for slow in named if links.doubts[slow.members] >= AGAIN]


def _measured(links: Links, now: float) -> tuple[dict[Pair, float], dict[Pair, float]]:
    """Round trip and loss by link. If both ends have measured, the better value counts: the other end was busy."""
    trips: dict[Pair, float] = {}
    losses: dict[Pair, float] = {}
    for observer, rows in links.rows.items():
        for target, row in rows.items():
            if now - row.at >= FRESH or row.missing_since is not None or not row.sent:
                continue
            pair = pair_of(observer, target)
            loss = row.lost / row.sent if row.lost >= LEAST_LOST else 0.0
            trips[pair] = min(row.round_trip, trips.get(pair, row.round_trip))
            losses[pair] = min(loss, losses.get(pair, loss))
    return trips, losses


def _is_slow(trip: float, usual: float) -> bool:
    return trip >= SLOW_TIMES * usual and trip - usual >= SLOW_BY


def _whose(bad: set[Pair], links: Collection[Pair]) -> list[tuple[MemberId, ...]]:
    """A member if it has two or more links and all are bad; for any other bad link, its two members."""
    of: dict[MemberId, list[Pair]] = {}
    for pair in links:
        for member in pair:
            of.setdefault(member, []).append(pair)
    wholly = {m for m, own in of.items() if len(own) > 1 and bad.issuperset(own)}
    if wholly and 2 * len(wholly) >= len(of):
        return []  # half of the members or more: slow links are usual here, and `usual` does not show it yet
    found: list[tuple[MemberId, ...]] = [(member,) for member in sorted(wholly)]
    return found + [pair for pair in sorted(bad) if not wholly & set(pair)]


def _slow(links: Links, members: tuple[MemberId, ...], trips: dict[Pair, float], losses: dict[Pair, float]) -> Slow:
    own = [pair for pair in trips if (members[0] in pair if len(members) == 1 else pair == members)]
    return Slow(members, median(trips[p] for p in own), links.usual, median(losses[p] for p in own))
