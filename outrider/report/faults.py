"""One fault as the report shows it: facts, evidence, stages, decisions and cost, in a bounded number of bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import escape

from outrider.report import history
from outrider.report.documents import Decision, Evidence, Fault, Range
from outrider.report.drawing import Piece, account, stages
from outrider.report.history import Case, shown
from outrider.report.job import OVER, Job
from outrider.report.words import seconds

EFFECT: Final = "as an effect"
"""The end of the sentence of a rank that ended because another one had."""
OF_A_RANK: Final = ("WorkerExited", "HangDetected", "StartFailed")
"""Faults whose cause is one rank."""
EVIDENCE_BYTES: Final = 150_000
"""The most bytes of all evidence and decisions of a report, as HTML."""


@dataclass(frozen=True, slots=True)
class Exit:
    who: str
    sentence: str
    error: str
    frame: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that did the same."""

    who: str
    state: str
    collective: str
    stack: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A fault for the template."""

    number: int
    fault: Fault
    is_recorded: bool
    facts: list[tuple[str, str]]
    exits: list[Exit]
    groups: list[Group]
    lines: list[tuple[str, str]]
    decisions: list[tuple[str, Decision]]
    """Each with the time since the fault."""
    stages: list[Piece]
    cost: list[Piece]
    verdict: str
    """What it cost, as a sentence."""
    is_cut: bool
    """Whether evidence was left out."""


class _Room:
    """The bytes that are left for the evidence of one fault."""

    def __init__(self, bytes_: int) -> None:
        self.left = bytes_
        self.is_cut = False

    def take(self, text: str, *, keep_end: bool = False) -> str:
        """The text, or what fits of it."""
        needed = _bytes(text)
        while needed > self.left and text:
            self.is_cut = True
            fits = min(len(text) - 1, len(text) * self.left // needed)
            text = text[len(text) - fits :] if keep_end else text[:fits]
            needed = _bytes(text)
        self.left -= needed
        return text


def _bytes(text: str) -> int:
    return len(escape(text).encode())


def faults(job: Job) -> list[Shown]:
    """All faults, in the order of time."""
    each = EVIDENCE_BYTES // max(1, len(job.cases))
    return [_shown(job, case, number, _Room(each)) for number, case in enumerate(job.cases, 1)]


def _shown(job: Job, case: Case, number: int, room: _Room) -> Shown:
    fault = case.fault
    exits = list(_exits([each for each in fault.evidence if each.what == "exit"], room))
    groups = list(_groups([each for each in fault.evidence if each.what == "rank"], room))
    lines = [(_who(each), room.take(each.line)) for each in fault.evidence if each.what not in ("exit", "rank")]
    decisions = [
        (_since(fault, each), Decision(each.at, each.kind, sentence))
        for each in fault.decisions
        if (sentence := room.take(each.sentence))
    ]
    return Shown(
        number=number,
        fault=fault,
        is_recorded=case.is_recorded,
        facts=list(_facts(job, fault)),
        exits=exits,
        groups=groups,
        lines=[(who, line) for who, line in lines if line],
        decisions=decisions,
        stages=stages(fault.stages),
        cost=account(fault.cost),
        verdict=_verdict(job, fault),
        is_cut=room.is_cut,
    )


def _since(fault: Fault, decision: Decision) -> str:
    after = decision.at - fault.at
    return f"+{seconds(after)}" if after >= 0 else f"−{seconds(-after)}"


def _exits(exits: Sequence[Evidence], room: _Room) -> Iterator[Exit]:
    """The ends of ranks; those that are effects of another at the same place are one, with the words of the first."""
    alike: dict[tuple[object, ...], list[Evidence]] = {}
    for number, each in enumerate(exits):
        is_effect = each.sentence.endswith(EFFECT)
        place = (each.sentence, each.error.partition(":")[0], each.frame) if is_effect else (number,)
        alike.setdefault(place, []).append(each)
    for group in alike.values():
        first = group[0]
        yield Exit(
            who=_who(first) if len(group) == 1 else room.take(_together(group)),
            sentence=room.take(first.sentence),
            error=room.take(first.error),
            frame=room.take(first.frame),
            traceback=room.take(first.traceback, keep_end=True),
        )


def _groups(ranks: Sequence[Evidence], room: _Room) -> Iterator[Group]:
    alike: dict[tuple[str, str, tuple[str, ...]], list[Evidence]] = {}
    for each in ranks:
        alike.setdefault((each.state, each.collective, each.stack), []).append(each)
    for (state, collective, stack), group in alike.items():
        who = room.take(_together(group))
        yield Group(who, room.take(state), room.take(collective), room.take("\n".join(stack)))


def _together(group: Sequence[Evidence]) -> str:
    """`ranks 0–2, 4 on worker-0, worker-1`."""
    numbers = sorted(each.rank for each in group if each.rank is not None)
    members = list(dict.fromkeys(each.member for each in group if each.member))
    named = ", ".join(members[:4]) + (", …" if len(members) > 4 else "")
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {_numbers(numbers)} on {named or 'an unnamed member'}"


def _who(evidence: Evidence) -> str:
    rank = "a rank" if evidence.rank is None else f"rank {evidence.rank}"
    return f"{rank} on {evidence.member}" if evidence.member else rank


def _numbers(numbers: Sequence[int]) -> str:
    ranges: list[Range] = []
    for each in numbers:
        if ranges and each <= ranges[-1].last + 1:
            ranges[-1] = Range(ranges[-1].first, each)
        else:
            ranges.append(Range(each, each))
    return shown(ranges) or "not known"


def rank_of(fault: Fault) -> str:
    """The rank that is the cause of a fault; of one that is a whole member's, its ranks."""
    own = [each for each in fault.evidence if each.member == fault.member and each.rank is not None]
    ended = [each.rank for each in own if each.what == "exit" and not each.sentence.endswith(EFFECT)]
    named = history.rank_in(fault.reason, fault.member)
    if fault.kind in OF_A_RANK and (ended or named is not None):
        return str(named if named is not None else ended[0])
    return _numbers(sorted(fault.ranks) or sorted({each.rank for each in own if each.rank is not None}))


def node_of(job: Job, fault: Fault) -> str:
    return fault.node or job.timeline.host or ("this machine" if job.where == "this machine" else "not known")


def _facts(job: Job, fault: Fault) -> Iterator[tuple[str, str]]:
    yield "Kind", fault.kind or "not known"
    yield "Rank", rank_of(fault)
    yield "Rank index", "not known" if fault.rank_index is None else str(fault.rank_index)
    yield "Member", fault.member or "none"
    yield "Node", node_of(job, fault)
    if fault.generation:
        yield "Generation", fault.generation
    if fault.step is not None:
        yield "Highest step before", f"{fault.step:,}"
    pod = [fault.pod.phase, fault.pod.reason]
    if fault.pod.exit_code is not None:
        pod.append(f"exit code {fault.pod.exit_code}")
    if any(pod):
        yield "Pod", ", ".join(filter(None, pod))


def _verdict(job: Job, fault: Fault) -> str:
    if fault.seconds_lost is None:
        is_over = job.status.phase in OVER
        return "No new step was made after it." if is_over else "No new step has been made since."
    lost = f"It cost {seconds(fault.seconds_lost)}, from the last step before it to the first new one."
    known = {name: each for name, each in fault.stages.items() if each > 0}
    if known:
        slowest = max(known, key=lambda name: known[name])
        what = next(piece.what for piece in stages(known) if piece.name == slowest)
        lost += f" The longest stage was {slowest} ({what}): {seconds(known[slowest])}."
    if fault.cost:
        lost += f" Added up over all members, that is {seconds(sum(fault.cost.values()))} without a new step."
    return lost
