"""Joins the parts of a history, one of each master, into one timeline and one list of faults.

Times are tenths of a second since the job began. Rank indexes that did the same share a row. Of too many rows several
neighbours become one, which shows the one of them with the least new steps; of too many spans the short ones become
part of the one before them. `notes` are the sentences about what is missing, merged or contradictory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from outrider.report.documents import Decision, Event, Fault, GenerationBegan, Holder, Part, Range, Status, StatusFault
from outrider.report.reading import unix
from outrider.report.words import CAUSES, UNKNOWN, counted, seconds

MOST_ROWS, MOST_SPANS = 512, 20_000
MOST_CHANGES: Final = 2000
"""The most generations, and changes of members, that are drawn."""
MOST_INDEXES: Final = 32_768
"""The most rank indexes of a job."""
NEW_STEPS: Final = 0
"""The number of the cause `productive`."""
MOST_TENTHS: Final = 10**10
"""The longest timeline, 31 years: a greater number is a mistake."""
ABSENT: Final = ""
"""The cause of a rank index that is not desired at that time."""
MOST_FAULTS: Final = 200
JUMP: Final = 1.0
"""Seconds by which clocks may differ without a sentence."""
SOON: Final = 5.0
"""Seconds within which the first part of a whole history begins."""
SAME: Final = 1.0
"""Seconds within which a fault of the status and one of the history are the same."""
ROUTINE = ("GenerationStarted", "MemberReady", "MemberCreated", "CheckpointSaved", "CheckpointReplicated")
"""Events of each member, or of each save, that decide nothing."""
Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """What some rank indexes did: (beginning, cause) of each span, to `end`."""

    indexes: tuple[Range, ...]
    spans: Spans
    end: int


@dataclass(frozen=True, slots=True)
class Timeline:
    began: float = 0.0
    """Unix time."""
    end: int = 0
    causes: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    generations: tuple[GenerationBegan, ...] = ()
    holders: tuple[Holder, ...] = ()
    indexes: int = 0
    """The number of rank indexes."""
    host: str = ""
    """The machine of a local job."""


@dataclass(frozen=True, slots=True)
class Case:
    """A fault; `is_recorded`: a history has it, with its evidence."""

    fault: Fault
    is_recorded: bool


# -- the timeline -------------------------------------------------------------------------------------------------
def joined(parts: Sequence[Part], notes: list[str]) -> Timeline:
    """The timeline of all masters."""
    parts = sorted(parts, key=lambda part: part.term)
    if not parts:
        return Timeline()
    _compare_clocks(parts, notes)
    began = min((part.began_at for part in parts if part.began_at > 0), default=0.0)
    shifts = [max(0, round(10 * (part.began_at - began))) for part in parts]
    causes = tuple(dict.fromkeys([*CAUSES, *(cause for part in parts for cause in part.causes), ABSENT]))
    newer = [cause for cause in causes if cause and cause not in CAUSES]
    if newer:
        notes.append(f"This release does not know the causes {', '.join(newer[:10])}: a newer one wrote the history.")
    rows, indexes = _rows(parts, shifts, causes, notes)
    generations, holders = _moved(parts, shifts)
    return Timeline(
        began,
        max([row.end for row in rows], default=0),
        causes,
        reduced(rows, MOST_ROWS, MOST_SPANS, notes),
        generations,
        holders,
        indexes,
        next((part.host for part in reversed(parts) if part.host), ""),
    )


def _compare_clocks(parts: Sequence[Part], notes: list[str]) -> None:
    if _late(parts) > SOON:
        notes.append(
            f"There is no history of the first {seconds(_late(parts))}, before master {parts[0].term}: that part was "
            "dropped, or never written."
        )
    for before, part in pairwise(parts):
        if 0 in (before.until, part.since, before.began_at, part.began_at):
            continue  # the reader has reported that it is missing or wrong
        if part.term > before.term + 1:
            notes.append(f"There is no history between master {before.term} and master {part.term}.")
        back = before.until - part.since
        if -back > SOON and part.term == before.term + 1:
            notes.append(
                f"The timeline lacks the {seconds(-back)} before master {part.term}: master {before.term} had not "
                "written them when it ended, or there was none. The account may know some of them."
            )
        if back > JUMP:
            notes.append(
                f"The clock of master {part.term} is at least {seconds(back)} behind that of master {before.term}: "
                "times from then on are earlier than they were."
            )
        if abs(part.began_at - before.began_at) > JUMP:
            notes.append(
                f"Master {part.term} says that the job began {seconds(abs(part.began_at - before.began_at))} "
                f"{'later' if part.began_at > before.began_at else 'earlier'} than master {before.term} says: "
                "one of the clocks was set."
            )
    for part in parts:
        if not part.tracks:
            notes.append(
                f"The part of master {part.term} has no timeline: it was dropped for its size, or never written."
            )


def _late(parts: Sequence[Part]) -> float:
    """Seconds from the beginning of the job to the first part."""
    return parts[0].since - parts[0].began_at


def _rows(parts: Sequence[Part], shifts: list[int], causes: tuple[str, ...], notes: list[str]) -> tuple[list[Row], int]:
    """The rows in the order of their first rank index, and the number of rank indexes."""
    tracks: dict[int, list[int]] = {}
    beyond = 0
    for number, part in enumerate(parts):
        for place, track in enumerate(part.tracks):
            for first, last in track.seats:
                beyond += last >= MOST_INDEXES or first < 0
                for index in range(max(0, first), min(last, MOST_INDEXES - 1) + 1):
                    tracks.setdefault(index, [-1] * len(parts))[number] = place
    if beyond:
        notes.append(f"Rank indexes above {MOST_INDEXES - 1:,} or below 0 are left out.")
    groups: dict[tuple[int, ...], list[Range]] = {}
    for index in sorted(tracks):
        ranges = groups.setdefault(tuple(tracks[index]), [])
        if ranges and ranges[-1].last == index - 1:
            ranges[-1] = Range(ranges[-1].first, index)
        else:
            ranges.append(Range(index, index))
    numbers = {cause: number for number, cause in enumerate(causes)}
    known = [[numbers[cause] for cause in part.causes] for part in parts]
    rows = [_row(parts, shifts, known, numbers, key, tuple(ranges)) for key, ranges in groups.items()]
    return [row for row in rows if row.spans], len(tracks)


def _row(
    parts: Sequence[Part],
    shifts: list[int],
    known: list[list[int]],
    numbers: dict[str, int],
    key: tuple[int, ...],
    ranges: tuple[Range, ...],
) -> Row:
    spans: list[tuple[int, int]] = []
    end = 0
    for part, shift, of, place in zip(parts, shifts, known, key, strict=True):
        if place < 0:
            continue
        track = part.tracks[place]
        ends = [span.at for span in track.spans[1:]] + [track.end]
        for span, until in zip(track.spans, ends, strict=False):
            at, until = max(end, span.at + shift), min(until + shift, MOST_TENTHS)
            if until <= at:
                continue
            if at > end:
                is_first = not spans and part is parts[0] and _late(parts) <= SOON
                spans.append((end, numbers[ABSENT if is_first else UNKNOWN]))
            cause = of[span.cause] if 0 <= span.cause < len(of) else numbers[UNKNOWN]
            if not spans or spans[-1][1] != cause:
                spans.append((at, cause))
            end = until
    return Row(ranges, tuple(spans), end)


def _moved(parts: Sequence[Part], shifts: list[int]) -> tuple[tuple[GenerationBegan, ...], tuple[Holder, ...]]:
    """Generations and holders of all parts; a holder only if it is another one than before."""
    generations, holders, latest = [], [], dict[int, tuple[str, str]]()
    for part, shift in zip(parts, shifts, strict=True):
        generations += [each._replace(at=each.at + shift) for each in part.generations]
        for each in part.holders:
            if latest.get(each.rank_index) != (each.member, each.node):
                latest[each.rank_index] = each.member, each.node
                holders.append(each._replace(at=each.at + shift))
    return tuple(generations[-MOST_CHANGES:]), tuple(holders[-MOST_CHANGES:])


# -- fewer rows and spans -----------------------------------------------------------------------------------------
def reduced(rows: Sequence[Row], most_rows: int, most_spans: int, notes: list[str] | None = None) -> tuple[Row, ...]:
    """At most so many rows and, if possible, spans."""
    notes = [] if notes is None else notes
    merged = -(-len(rows) // most_rows)
    if merged > 1:
        notes.append(
            f"{len(rows):,} rows are drawn as {-(-len(rows) // merged):,}: of each {merged} neighbours the one "
            "with the least new steps is shown."
        )
        rows = [_worst(rows[place : place + merged]) for place in range(0, len(rows), merged)]
    shortest = 1
    while sum(len(row.spans) for row in rows) > max(most_spans, 2 * len(rows)):
        shortest *= 2
        rows = [replace(row, spans=_coarse(row, shortest)) for row in rows]
    if shortest > 1:
        notes.append(f"Spans below {seconds(shortest / 10)} are drawn as part of the one before them.")
    return tuple(rows)


def _worst(rows: Sequence[Row]) -> Row:
    worst = min(rows, key=lambda row: spent(row).get(NEW_STEPS, 0))
    ranges = sorted(each for row in rows for each in row.indexes)
    together = [ranges[0]]
    for each in ranges[1:]:
        if each.first <= together[-1].last + 1:
            together[-1] = Range(together[-1].first, max(each.last, together[-1].last))
        else:
            together.append(each)
    return replace(worst, indexes=tuple(together))


def spent(row: Row) -> dict[int, int]:
    """Tenths of seconds by the number of the cause."""
    found: dict[int, int] = {}
    for (at, cause), until in zip(row.spans, [*(at for at, _ in row.spans[1:]), row.end], strict=True):
        found[cause] = found.get(cause, 0) + until - at
    return found


def _coarse(row: Row, shortest: int) -> Spans:
    kept: list[tuple[int, int]] = []
    for (at, cause), until in zip(row.spans, [*(at for at, _ in row.spans[1:]), row.end], strict=True):
        if not kept or (until - at >= shortest and kept[-1][1] != cause):
            kept.append((at, cause))
    return tuple(kept)


# -- the faults ---------------------------------------------------------------------------------------------------
def cases_of(status: Status, parts: Sequence[Part], events: Sequence[Event], notes: list[str]) -> list[Case]:
    """The faults of the history, and those of the status that it lacks, in the order of time."""
    found = [Case(fault, True) for part in sorted(parts, key=lambda part: part.term) for fault in part.faults]
    for listed in status.faults:
        at = unix(listed.time)
        place = next((i for i, case in enumerate(found) if _is_same(case, listed, at)), None)
        if place is None:
            found.append(Case(_bare(status, listed, at or 0.0, events), False))
        elif found[place].fault.seconds_lost is None:
            fault = replace(found[place].fault, seconds_lost=listed.seconds_lost, stages=listed.stages)
            found[place] = Case(fault, True)
    found.sort(key=lambda case: case.fault.at)
    if len(found) > MOST_FAULTS:
        notes.append(f"Of {len(found):,} faults the newest {MOST_FAULTS} are shown.")
    return found[-MOST_FAULTS:]


def _is_same(case: Case, listed: StatusFault, at: float | None) -> bool:
    fault = case.fault
    is_alike = case.is_recorded and (fault.kind, fault.member) == (listed.kind, listed.member)
    return is_alike and at is not None and abs(fault.at - at) < SAME


def _bare(status: Status, listed: StatusFault, at: float, events: Sequence[Event]) -> Fault:
    """A fault of which only the status is known, and the events that followed it."""
    member = next((each for each in status.members if listed.member and each.id == listed.member), None)
    following = [event for event in events if at and event.at >= at and event.kind not in ROUTINE][:30]
    rank = rank_in(listed.reason, listed.member)
    last = next((i for i, event in enumerate(following) if event.kind == "Recovered"), len(following) - 1)
    return Fault(
        at=at,
        kind=listed.kind,
        member=listed.member,
        reason=listed.reason,
        rank_index=None if member is None else member.rank_index,
        ranks=() if rank is None else (rank,),
        node="" if member is None else member.node,
        seconds_lost=listed.seconds_lost,
        stages=listed.stages,
        decisions=tuple(Decision(event.at, event.kind, event.sentence) for event in following[: last + 1]),
    )


def rank_in(reason: str, member: str | None) -> int | None:
    """The first rank that a sentence names on this member."""
    found = re.search(rf"\b[Rr]ank (\d{{1,6}}) on {re.escape(member)}(?![-\w])", reason) if member else None
    return int(found[1]) if found else None


def shown(indexes: Sequence[Range]) -> str:
    """`0–3, 7`."""
    texts = [f"{first}–{last}" if last > first else f"{first}" for first, last in indexes]
    more = f", and {counted(len(texts) - 12, 'more range')}" if len(texts) > 12 else ""
    return ", ".join(texts[:12]) + more
