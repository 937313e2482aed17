"""Who is to blame for a hang. This is a pure decision over what the ranks say, with the sentence that says why.

Witnesses, in their order:

1. *The process.* One that is stopped (SIGSTOP, a debugger) does nothing whatever else is true.
2. *The numbers of the collectives.* Those of one process group are numbered alike on all its ranks. Where some wait in
   number 14, whoever is at 13 or has called none has not come; of those the ones that wait in nothing themselves are
   the root. Where all are at 14 and call different things, the few against the many.
3. *The stacks*, grouped by equality: the few against the many, and of two halves the one that is in no call of
   torch.distributed. A rank that answers neither question is the odd one.

Where the second and the third name other ranks, both are told and nobody is blamed. Where a rank could not say what it
called (the GIL is held, no recorder), the stacks alone decide. A culprit is one member; several that share the blame
are named, and nobody is replaced for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from outrider.master.core.hangs import evidence as hangs_evidence
from outrider.master.core.state.hangs import ENDED, STUCK, Call, Told
from outrider.wire.ids import MemberId

NAMED = 8
"""Ranks that a sentence names one by one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the ranks' words come to."""

    sentence: str
    """Without a full stop: it stands within another."""
    member: MemberId | None = None
    """The culprit, if it is one member's alone."""
    is_certain: bool = False
    """A process is stopped, a collective or a rendezvous is waited in: it hangs, whatever it was doing."""
    is_odd: bool = False
    """One stands elsewhere and the others wait, or it alone answers nothing."""
    moves: bool = False
    """Collectives have begun lately: something goes on."""
    ranks: frozenset[int] = frozenset()
    """Those that the others wait for, as far as that is known."""
    waiting: int = 0
    """Ranks that wait for them in a collective."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """A collective that some wait in, and who has not come."""

    call: Call
    waiting: frozenset[int]
    late: frozenset[int]
    unknown: frozenset[int]
    """They could not say."""


def find(told: list[Told], patience: float, nodes: Mapping[MemberId, str]) -> Finding:
    """`patience`: seconds after which a collective that is not over is waited in."""
    by_rank, groups = {each.rank: each for each in told}, _by_group(told)
    stopped = [each for each in told if each.is_stopped]
    if stopped:
        return _of_stopped(stopped, _waits(by_rank, groups, patience), nodes)
    waits = [wait for wait in _waits(by_rank, groups, patience) if wait.late or wait.unknown]
    wait = _main(waits)
    odd = _odd(told)
    if wait is not None:
        late = _roots(waits, by_rank, patience)
        found = _of_waiting(by_rank, wait, late, odd, nodes)
        return replace(found, ranks=late or wait.unknown, waiting=len(wait.waiting))
    unlike = _unlike(by_rank, groups, patience)
    if unlike is not None:
        return _of_unlike(by_rank, unlike, nodes)
    calls = [call for each in told for call in pending(each, patience)]
    if calls:
        return Finding(f"every rank has come to {_call(calls[0])}, and it does not end", is_certain=True)
    return _of_stacks(told, odd, patience, nodes)


def _of_stopped(stopped: list[Told], waits: list[_Wait], nodes: Mapping[MemberId, str]) -> Finding:
    """It can say nothing itself; where the others wait for it, they can."""
    text = f"{who(stopped, nodes)} {'is' if len(stopped) == 1 else 'are'} stopped (SIGSTOP, or a debugger)"
    if wait := _main(waits):
        others = "1 other waits" if len(wait.waiting) == 1 else f"{len(wait.waiting)} others wait"
        text += f"; {others} in {_call(wait.call)}"
    return _blame(stopped, text, certain=True)


# -- collectives --------------------------------------------------------------------------------------------------
def pending(each: Told, patience: float) -> list[Call]:
    return [call for call in each.calls if _is_pending(call, patience)]


def _by_group(told: list[Told]) -> list[dict[int, Call]]:
    """Of each process group in order, its ranks' calls."""
    groups: dict[str, dict[int, Call]] = {}
    for each in told:
        for call in each.calls:
            of_group = groups.get(call.group)
            if of_group is None:
                groups[call.group] = {each.rank: call}
            else:
                of_group.setdefault(each.rank, call)
    return [calls for _name, calls in sorted(groups.items())]


def _is_pending(call: Call, patience: float) -> bool:
    return not call.is_over and call.age >= patience


def _waits(by_rank: Mapping[int, Told], groups: list[dict[int, Call]], patience: float) -> list[_Wait]:
    """One a process group in which somebody waits."""
    found = ((calls, {r: call for r, call in calls.items() if _is_pending(call, patience)}) for calls in groups)
    return [_wait(by_rank, calls, pending) for calls, pending in found if pending]


def _wait(by_rank: Mapping[int, Told], calls: dict[int, Call], pending: dict[int, Call]) -> _Wait:
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
    """The one that says most: somebody is known not to have come, or most of them wait there."""
    return max(waits, key=lambda each: (bool(each.late), len(each.waiting), each.call.group), default=None)


def _roots(waits: list[_Wait], by_rank: Mapping[int, Told], patience: float) -> frozenset[int]:
    """Of all that have not come somewhere those that wait nowhere themselves."""
    late = frozenset(rank for wait in waits for rank in wait.late)
    return frozenset(rank for rank in late if not pending(by_rank[rank], patience)) or late


def _of_waiting(
    by_rank: Mapping[int, Told], wait: _Wait, late: frozenset[int], odd: frozenset[int], nodes: Mapping[MemberId, str]
) -> Finding:
    where = f"{_call(wait.call)}, in which {_how_many(wait.waiting)}"
    if late and odd and not late & odd and not _have_ended(by_rank, late):
        first, second = _ranks(by_rank, late), _ranks(by_rank, odd)
        text = (
            f"{who(first, nodes)} {_has(first)} not come to {where}, but by the stacks {who(second, nodes)} "
            f"{'is' if len(second) == 1 else 'are'} the odd one; the two witnesses disagree, so nobody is blamed"
        )
        return Finding(text, is_certain=True)
    if late:
        ranks = _ranks(by_rank, late & odd or late)
        text = f"{who(ranks, nodes)} {_has(ranks)} not come to {where}{_what_instead(ranks)}"
        return _blame(ranks, text, certain=True)
    ranks = _ranks(by_rank, wait.unknown & odd or wait.unknown)
    text = f"{who(ranks, nodes)} cannot say where {'it is' if len(ranks) == 1 else 'they are'}, while "
    text += f"{_how_many(wait.waiting)} in {_call(wait.call)}{_what_instead(ranks)}"
    found = _blame(ranks, text, certain=True)
    return found if not odd or wait.unknown & odd else Finding(text, is_certain=True)


def _have_ended(by_rank: Mapping[int, Told], ranks: frozenset[int]) -> bool:
    """They have no stack to be judged by."""
    return all(by_rank[rank].process == ENDED for rank in ranks)


def _unlike(
    by_rank: Mapping[int, Told], groups: list[dict[int, Call]], patience: float
) -> dict[tuple[str, str], list[Told]] | None:
    """Ranks that wait in the same number of one group, and call different things: by what they call."""
    for calls in groups:
        kinds: dict[tuple[str, str], list[Told]] = {}
        for rank, call in calls.items():
            if _is_pending(call, patience):
                kinds.setdefault((call.op, call.shape), []).append(by_rank[rank])
        if len(kinds) > 1:
            return kinds
    return None


def _of_unlike(
    by_rank: Mapping[int, Told], kinds: dict[tuple[str, str], list[Told]], nodes: Mapping[MemberId, str]
) -> Finding:
    sizes = sorted(kinds.values(), key=len)
    many, few = sizes[-1], [each for ranks in sizes[:-1] for each in ranks]
    text = "; ".join(
        f"{who(ranks, nodes)} in {_call(_call_of(ranks[0], kind))}"
        for kind, ranks in sorted(kinds.items(), key=lambda found: (len(found[1]), found[1][0].rank))
    )
    sentence = f"the ranks wait in collectives that do not fit together: {text}"
    if len(many) > len(few):
        return _blame(few, sentence, certain=True)
    return Finding(sentence, is_certain=True)


def _call_of(each: Told, kind: tuple[str, str]) -> Call:
    return next(call for call in each.calls if (call.op, call.shape) == kind and not call.is_over)


# -- stacks -------------------------------------------------------------------------------------------------------
def _odd(told: list[Told]) -> frozenset[int]:
    """Ranks that stand elsewhere than most; none where nobody, or no most, can be told."""
    living = [each for each in told if each.process != ENDED]
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


def _of_stacks(told: list[Told], odd: frozenset[int], patience: float, nodes: Mapping[MemberId, str]) -> Finding:
    by_rank = {each.rank: each for each in told}
    moves = any(call.age < patience for each in told for call in each.calls)
    if not any(each.stack or each.has_recorder for each in told):
        return Finding("no rank says where it is")
    if not odd or (moves and not any(by_rank[rank].is_mute for rank in odd)):
        return Finding("no rank waits for another, and all stand at the same place" if not odd and not moves else
                       "no rank waits for another", moves=moves)  # fmt: skip
    ranks = _ranks(by_rank, odd)
    others = [each for each in told if each.rank not in odd and each.stack]
    waited = [each for each in others if hangs_evidence.waits_for_others(each.stack)]
    at = hangs_evidence.place(others[0].stack) if others else ""
    text = f"{who(ranks, nodes)} {'stands' if len(ranks) == 1 else 'stand'} elsewhere than the {len(others)} others"
    text += f" ({'which wait ' if waited else ''}at {at})" if at else ""
    meets = bool(others) and hangs_evidence.is_meeting(others[0].stack)
    found = _blame(ranks, text + _what_instead(ranks), certain=meets)
    is_odd = bool(waited) or any(each.is_mute for each in ranks)
    return replace(found, is_odd=is_odd, waiting=len(waited))


# -- words --------------------------------------------------------------------------------------------------------
def _blame(ranks: list[Told], sentence: str, *, certain: bool) -> Finding:
    members = {each.member for each in ranks}
    member = members.pop() if len(members) == 1 else None
    return Finding(sentence, member, certain, ranks=frozenset(each.rank for each in ranks))


def _ranks(by_rank: Mapping[int, Told], ranks: frozenset[int]) -> list[Told]:
    return [by_rank[rank] for rank in sorted(ranks)]


def _how_many(waiting: frozenset[int]) -> str:
    return f"{len(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"


def _has(ranks: list[Told]) -> str:
    return "has" if len(ranks) == 1 else "have"


def who(ranks: list[Told], nodes: Mapping[MemberId, str]) -> str:
    """`rank 2 on worker-2 (node n1)`, `ranks 2, 3 on worker-2, worker-3`."""
    members = list(dict.fromkeys(each.member for each in ranks))
    numbers = ", ".join(str(each.rank) for each in ranks[:NAMED]) + (" and others" if len(ranks) > NAMED else "")
    places = ", ".join(f"{m} (node {nodes[m]})" if nodes.get(m) else str(m) for m in members[:NAMED])
    return f"rank{'s' if len(ranks) > 1 else ''} {numbers} on {places}"


def _call(call: Call) -> str:
    name = f" of group {call.name}" if not call.is_of_all else ""
    return f"{call.op} number {call.seq}{name}" + (f" ({call.frame})" if call.frame else "")


def _what_instead(ranks: list[Told]) -> str:
    """Of a rank alone: what it does instead of what it ought to."""
    if len(ranks) != 1:
        return ""
    each = ranks[0]
    if each.process == ENDED:
        return "; it has ended with code 0"
    if each.has_left:
        return "; it has left its process groups"
    if each.process == STUCK:
        return "; its process sits in a system call that nothing interrupts"
    if each.is_mute:
        return "; it answers no question"
    at = hangs_evidence.place(each.stack)
    return f"; it is at {at}" if at else ""
