"""Finds the member that caused a hang, from the evidence of the ranks, and explains it in a sentence.

This is a pure function. The evidence, strongest first:

1. *The process.* A stopped process (SIGSTOP, a debugger) does nothing, whatever else is true.
2. *The numbers of the collectives.* All ranks of a process group number its collectives alike. If some ranks wait in
   number 14, a rank that is at 13 or has called none is late. The late ranks that wait in no collective themselves are
   the root cause. If all are at 14 but call different collectives, the minority is the culprit.
3. *The stacks*, grouped by equality: the minority is the culprit. If no stack has the majority, it is the ranks that
   are in no call of torch.distributed. A rank that reports neither collectives nor a stack is an outlier too.

If the second and the third point to different ranks, the finding names both and no culprit. If a rank could not report
its collectives (its GIL is held, it has no recorder), the stacks alone decide. The culprit is one member. If several
members are responsible, the finding names them, and none is replaced for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from outrider.master.core.hangs import evidence as hangs_evidence
from outrider.master.core.state.hangs import ENDED, STUCK, Call, RankEvidence
from outrider.master.core.text import counted
from outrider.wire.ids import MemberId

NAMED = 8
"""How many ranks a sentence names one by one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the evidence of the ranks shows."""

    sentence: str
    """The explanation, without a full stop: it becomes part of another sentence."""
    member: MemberId | None = None
    """The culprit, if a single member is responsible."""
    is_certain: bool = False
    """Whether the generation certainly hangs: a process is stopped, or ranks wait in a collective or a rendezvous."""
    is_odd: bool = False
    """Whether the outliers differ from ranks that wait, or one of them does not respond."""
    moves: bool = False
    """Whether collectives have started recently: the ranks still work."""
    ranks: frozenset[int] = frozenset()
    """The ranks that the others wait for, as far as that is known."""
    waiting: int = 0
    """How many ranks wait for `ranks` in a collective."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """A collective in which some ranks wait, and the ranks that have not entered it."""

    call: Call
    waiting: frozenset[int]
    late: frozenset[int]
    unknown: frozenset[int]
    """Ranks that could not report their collectives."""


def find(evidence: list[RankEvidence], patience: float, nodes: Mapping[MemberId, str]) -> Finding:
    """`patience`: seconds after which an incomplete collective counts as one in which a rank waits."""
    by_rank, groups = {each.rank: each for each in evidence}, _by_group(evidence)
    stopped = [each for each in evidence if each.is_stopped]
    if stopped:
        return _of_stopped(stopped, _waits(by_rank, groups, patience), nodes)
    waits = [wait for wait in _waits(by_rank, groups, patience) if wait.late or wait.unknown]
    wait = _main(waits)
    odd = _odd(evidence)
    if wait is not None:
        late = _roots(waits, by_rank, patience)
        found = _of_waiting(by_rank, wait, late, odd, nodes)
        return replace(found, ranks=late or wait.unknown, waiting=len(wait.waiting))
    unlike = _unlike(by_rank, groups, patience)
    if unlike is not None:
        return _of_unlike(by_rank, unlike, nodes)
    calls = [call for each in evidence for call in pending(each, patience)]
    if calls:
        return Finding(f"every rank has entered {_call(calls[0])}, but it does not complete", is_certain=True)
    return _of_stacks(evidence, odd, patience, nodes)


def _of_stopped(stopped: list[RankEvidence], waits: list[_Wait], nodes: Mapping[MemberId, str]) -> Finding:
    """A stopped rank reports nothing, so the collective is taken from the ranks that wait for it."""
    text = f"{names(stopped, nodes)} {'is' if len(stopped) == 1 else 'are'} stopped (SIGSTOP, or a debugger)"
    if wait := _main(waits):
        others = f"{counted(len(wait.waiting), 'other rank')} {'waits' if len(wait.waiting) == 1 else 'wait'}"
        text += f"; {others} in {_call(wait.call)}"
    return _culprit(stopped, text, certain=True)


# -- collectives --------------------------------------------------------------------------------------------------
def pending(each: RankEvidence, patience: float) -> list[Call]:
    return [call for call in each.calls if _is_pending(call, patience)]


def _by_group(evidence: list[RankEvidence]) -> list[dict[int, Call]]:
    """The calls of each process group by rank; the groups are in order."""
    groups: dict[str, dict[int, Call]] = {}
    for each in evidence:
        for call in each.calls:
            of_group = groups.get(call.group)
            if of_group is None:
                groups[call.group] = {each.rank: call}
            else:
                of_group.setdefault(each.rank, call)
    return [calls for _name, calls in sorted(groups.items())]


def _is_pending(call: Call, patience: float) -> bool:
    return not call.is_over and call.age >= patience


def _waits(by_rank: Mapping[int, RankEvidence], groups: list[dict[int, Call]], patience: float) -> list[_Wait]:
    """One for each process group in which a rank waits."""
    found = ((calls, {r: call for r, call in calls.items() if _is_pending(call, patience)}) for calls in groups)
    return [_wait(by_rank, calls, pending) for calls, pending in found if pending]


def _wait(by_rank: Mapping[int, RankEvidence], calls: dict[int, Call], pending: dict[int, Call]) -> _Wait:
    number = max(call.seq for call in pending.values())
    waiting = frozenset(rank for rank, each in pending.items() if each.seq == number)
    call = pending[min(waiting)]
    late, unknown = set(), set()
    for rank in by_rank if call.is_of_all else (calls.keys() | call.members) & by_rank.keys():
        each, own = by_rank[rank], calls.get(rank)
        if rank in waiting:
            continue
        if each.has_recorder or each.process == ENDED:
            if own is None or own.seq < number:
                late.add(rank)
        else:
            unknown.add(rank)
    return _Wait(call, waiting, frozenset(late), frozenset(unknown))


def _main(waits: list[_Wait]) -> _Wait | None:
    """The wait that explains most: a rank is known to be late for it, or the most ranks wait in it."""
    return max(waits, key=lambda each: (bool(each.late), len(each.waiting), each.call.group), default=None)


def _roots(waits: list[_Wait], by_rank: Mapping[int, RankEvidence], patience: float) -> frozenset[int]:
    """The late ranks that wait in no collective themselves, or all late ranks if each of them waits."""
    late = frozenset(rank for wait in waits for rank in wait.late)
    return frozenset(rank for rank in late if not pending(by_rank[rank], patience)) or late


def _of_waiting(
    by_rank: Mapping[int, RankEvidence],
    wait: _Wait,
    late: frozenset[int],
    odd: frozenset[int],
    nodes: Mapping[MemberId, str],
) -> Finding:
    where = f"{_call(wait.call)}, in which {_how_many(wait.waiting)}"
    if late and odd and not late & odd and not _have_ended(by_rank, late):
        first, second = _ranks(by_rank, late), _ranks(by_rank, odd)
        text = (
            f"{names(first, nodes)} {_has(first)} not entered {where}, but judging by the stacks "
            f"{names(second, nodes)} {'is the outlier' if len(second) == 1 else 'are the outliers'}; the evidence "
            f"disagrees, so no culprit is named"
        )
        return Finding(text, is_certain=True)
    if late:
        ranks = _ranks(by_rank, late & odd or late)
        text = f"{names(ranks, nodes)} {_has(ranks)} not entered {where}{_what_instead(ranks)}"
        return _culprit(ranks, text, certain=True)
    ranks = _ranks(by_rank, wait.unknown & odd or wait.unknown)
    whose = "does not report its" if len(ranks) == 1 else "do not report their"
    text = f"{names(ranks, nodes)} {whose} collectives, while "
    text += f"{_how_many(wait.waiting)} in {_call(wait.call)}{_what_instead(ranks)}"
    found = _culprit(ranks, text, certain=True)
    return found if not odd or wait.unknown & odd else Finding(text, is_certain=True)


def _have_ended(by_rank: Mapping[int, RankEvidence], ranks: frozenset[int]) -> bool:
    """Ended ranks have no stack that could be compared."""
    return all(by_rank[rank].process == ENDED for rank in ranks)


def _unlike(
    by_rank: Mapping[int, RankEvidence], groups: list[dict[int, Call]], patience: float
) -> dict[tuple[str, str], list[RankEvidence]] | None:
    """The ranks that wait in one group but call different collectives, by operation and shape."""
    for calls in groups:
        kinds: dict[tuple[str, str], list[RankEvidence]] = {}
        for rank, call in calls.items():
            if _is_pending(call, patience):
                kinds.setdefault((call.op, call.shape), []).append(by_rank[rank])
        if len(kinds) > 1:
            return kinds
    return None


def _of_unlike(
    by_rank: Mapping[int, RankEvidence], kinds: dict[tuple[str, str], list[RankEvidence]], nodes: Mapping[MemberId, str]
) -> Finding:
    sizes = sorted(kinds.values(), key=len)
    many, few = sizes[-1], [each for ranks in sizes[:-1] for each in ranks]
    text = "; ".join(
        f"{names(ranks, nodes)} in {_call(_call_of(ranks[0], kind))}"
        for kind, ranks in sorted(kinds.items(), key=lambda found: (len(found[1]), found[1][0].rank))
    )
    sentence = f"the ranks wait in mismatched collectives: {text}"
    if len(many) > len(few):
        return _culprit(few, sentence, certain=True)
    return Finding(sentence, is_certain=True)


def _call_of(each: RankEvidence, kind: tuple[str, str]) -> Call:
    return next(call for call in each.calls if (call.op, call.shape) == kind and not call.is_over)


# -- stacks -------------------------------------------------------------------------------------------------------
def _odd(evidence: list[RankEvidence]) -> frozenset[int]:
    """The outliers: ranks whose stack differs from that of the majority. Empty if there are none, or no majority."""
    living = [each for each in evidence if each.process != ENDED]
    counts = Counter(each.stack for each in living)
    if len(counts) < 2 or not any(counts.keys()):
        return frozenset()
    most, count = max(counts.items(), key=lambda found: (found[1], found[0]))
    if 2 * count > len(living) and most:
        return frozenset(each.rank for each in living if each.stack != most)
    waiting = [each for each in living if hangs_evidence.waits_for_others(each.stack)]
    if waiting and len(waiting) < len(living):
        return frozenset(each.rank for each in living if each not in waiting)
    return frozenset()


def _of_stacks(
    evidence: list[RankEvidence], odd: frozenset[int], patience: float, nodes: Mapping[MemberId, str]
) -> Finding:
    by_rank = {each.rank: each for each in evidence}
    moves = any(call.age < patience for each in evidence for call in each.calls)
    if not any(each.stack or each.has_recorder for each in evidence):
        return Finding("no rank reports its stack or its collectives")
    if not odd or (moves and not any(by_rank[rank].is_mute for rank in odd)):
        return Finding("no rank waits for another, and no rank's stack stands out" if not odd and not moves else
                       "no rank waits for another", moves=moves)  # fmt: skip
    ranks = _ranks(by_rank, odd)
    others = [each for each in evidence if each.rank not in odd and each.stack]
    waited = [each for each in others if hangs_evidence.waits_for_others(each.stack)]
    at = hangs_evidence.place(others[0].stack) if others else ""
    text = (
        f"{names(ranks, nodes)} {'differs' if len(ranks) == 1 else 'differ'} from {counted(len(others), 'other rank')}"
    )
    do = ("waits" if waited else "is") if len(others) == 1 else ("wait" if waited else "are")
    text += f" (which {do} at {at})" if at else ""
    meets = bool(others) and hangs_evidence.is_meeting(others[0].stack)
    found = _culprit(ranks, text + _what_instead(ranks), certain=meets)
    is_odd = bool(waited) or any(each.is_mute for each in ranks)
    return replace(found, is_odd=is_odd, waiting=len(waited))


# -- sentences ----------------------------------------------------------------------------------------------------
def _culprit(ranks: list[RankEvidence], sentence: str, *, certain: bool) -> Finding:
    members = {each.member for each in ranks}
    member = members.pop() if len(members) == 1 else None
    return Finding(sentence, member, certain, ranks=frozenset(each.rank for each in ranks))


def _ranks(by_rank: Mapping[int, RankEvidence], ranks: frozenset[int]) -> list[RankEvidence]:
    return [by_rank[rank] for rank in sorted(ranks)]


def _how_many(waiting: frozenset[int]) -> str:
    return f"{counted(len(waiting), 'rank')} {'waits' if len(waiting) == 1 else 'wait'}"


def _has(ranks: list[RankEvidence]) -> str:
    return "has" if len(ranks) == 1 else "have"


def names(ranks: list[RankEvidence], nodes: Mapping[MemberId, str]) -> str:
    """`rank 2 on worker-2 (node n1)`, `ranks 2, 3 on worker-2, worker-3`."""
    members = list(dict.fromkeys(each.member for each in ranks))
    numbers = ", ".join(str(each.rank) for each in ranks[:NAMED]) + (" and others" if len(ranks) > NAMED else "")
    places = ", ".join(f"{m} (node {nodes[m]})" if nodes.get(m) else str(m) for m in members[:NAMED])
    return f"rank{'s' if len(ranks) > 1 else ''} {numbers} on {places}"


def _call(call: Call) -> str:
    name = f" of group {call.name}" if not call.is_of_all else ""
    return f"{call.op} number {call.seq}{name}" + (f" ({call.frame})" if call.frame else "")


def _what_instead(ranks: list[RankEvidence]) -> str:
    """What a single rank does instead of what the others wait for; empty for several ranks."""
    if len(ranks) != 1:
        return ""
    each = ranks[0]
    if each.process == ENDED:
        return "; it has exited with code 0"
    if each.has_left:
        return "; it has destroyed its process groups"
    if each.process == STUCK:
        return "; its process is in an uninterruptible system call"
    if each.is_mute:
        return "; it does not respond"
    at = hangs_evidence.place(each.stack)
    return f"; it is at {at}" if at else ""
