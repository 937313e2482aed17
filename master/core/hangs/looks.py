"""Looks at the ranks of a generation without progress, to find certain hangs early and ranks that work (ADR 37).

After 7 s without progress the master begins to look at each rank from time to time: it asks the rank for its
collectives, and the rank's member for what the process has used. Two looks in a row that show the same certain hang end
the generation at once, whatever the limit:

- a process is stopped by a signal (not by a debugger), and other ranks wait for it;
- all ranks of one process group wait in it, in mismatched collectives, and nothing moves;
- other ranks wait in a group for a rank that has left it: its process has ended, or it has destroyed the group.

A difference from one look to the next is work: CPU time, reads and writes, bytes over TCP, the position of the main
thread, descendants, collectives. A rank that works while others wait for it gets the limit of an evaluation. A rank
that has done nothing for the limit of a step is hung. If the user has set a limit, that limit applies and there are no
looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from outrider.master.core.hangs import culprit, progress_watch
from outrider.master.core.hangs import diagnostics as hangs_diagnostics
from outrider.master.core.hangs import evidence as hangs_evidence
from outrider.master.core.hangs import limits as hangs_limits
from outrider.master.core.hangs.culprit import Finding
from outrider.master.core.hangs.limits import STEP
from outrider.master.core.hangs.progress_watch import LOOK, watched
from outrider.master.core.state.generation import World
from outrider.master.core.state.hangs import ENDED, STOPPED, Call, Looks, RankEvidence, Rows, Watch
from outrider.master.core.state.job import State
from outrider.master.core.text import counted
from outrider.wire.ids import MemberId

AGAIN, SLOWER, LONGEST_PAUSE = 4.0, 1.5, 20.0
"""Seconds between the first two looks, the factor by which the time since the last progress grows until the next
look, and the longest pause in seconds."""
OF_A_STEP = 1.5
"""Multiple of the slowest recent step before the first look, so that steps of half a minute cause none."""
PENDING = 5.0
"""Seconds after which an incomplete collective counts as one in which a rank waits."""
LEAST_CPU, CPU_SHARE, MUTE_SHARE = 0.03, 0.002, 0.02
"""CPU seconds, and shares of the time between two looks, that count as work: idle threads that wake up now and then use
less. The third is for a rank that does not respond because its GIL is held: each of its other Python threads wakes up
every 5 ms to request it."""
SIGNS_OF_LIFE = 1024.0
"""Bytes a second that idle libraries may send: NCCL's RAS (2.24 and newer) sends 120 for each connection."""
EQUAL_SHAPES = ("all_reduce", "reduce", "broadcast", "barrier", "reduce_scatter")
"""Collectives whose tensors have one shape on all ranks; other collectives may gather unequal ones."""


# -- asking -------------------------------------------------------------------------------------------------------
def due(state: State, number: str) -> None:
    found = watched(state, number)
    if found is None:
        return
    watch, world = found
    quiet_at = watch.since + max(LOOK, OF_A_STEP * hangs_limits.slowest_step(state.hangs.pace, state.now))
    is_blind = state.now - watch.heard_at > max(LOOK, state.spec.silent_after)
    if watch.looks.since != watch.since:
        watch.looks = Looks(watch.looks.asked, since=watch.since)
    if state.now < quiet_at - 1e-6:
        progress_watch.look_at_ranks_in(state, watch, quiet_at - state.now)
    elif world.world_size == 1 or is_blind or watch.suspicion is not None or progress_watch.own_limit(state, watch):
        progress_watch.look_at_ranks_in(state, watch, LOOK)
    else:
        _look(state, watch)


def _look(state: State, watch: Watch) -> None:
    looks = watch.looks
    looks.asked += 1
    looks.request = f"look {watch.generation} {looks.asked}"
    pause = (SLOWER - 1) * (state.now - watch.since) if looks.evidence else AGAIN
    progress_watch.look_at_ranks_in(state, watch, min(pause, LONGEST_PAUSE))
    hangs_diagnostics.ask(state, looks.request, "collectives", is_ours=True)


def is_look(watch: Watch, request: str) -> bool:
    return request == watch.looks.request


# -- evaluation ---------------------------------------------------------------------------------------------------
def answered(state: State, watch: Watch, world: World, answers: Mapping[MemberId, Rows]) -> bool:
    """Evaluates a look. True if two in a row have shown the same certain hang."""
    looks = watch.looks
    looks.request = ""
    evidence = hangs_evidence.read(world.places.values(), world.done, answers, {})
    before, looks.evidence = looks.evidence, evidence
    passed, looks.at = state.now - looks.at, state.now
    if looks.since != watch.since:
        return False
    pairs = {new.rank: (old, new) for old, new in zip(before or evidence, evidence, strict=True)}
    working = {rank for rank, (old, new) in pairs.items() if has_worked(old, new, passed)}
    looks.worked.update(dict.fromkeys(working, state.now))
    moving = {rank for rank, (old, new) in pairs.items() if _has_sent(old, new, passed)}
    if moving:
        looks.moved = state.now
    earlier, looks.doubtless = looks.doubtless, certain_hang(evidence, working, moving)
    if looks.doubtless is not None and looks.doubtless != earlier:
        progress_watch.look_at_ranks_in(state, watch, AGAIN)
        return False
    return looks.doubtless is not None


def has_worked(old: RankEvidence, new: RankEvidence, seconds: float) -> bool:
    """Whether a rank has worked from one look to the next."""
    if new.is_stopped or new.process == ENDED or not _can_be_compared(old, new):
        return False
    if None not in (old.frames, new.frames) and old.frames != new.frames:
        return True
    if [(call.group, call.seq) for call in old.calls] != [(call.group, call.seq) for call in new.calls]:
        return True
    if old.used is None or new.used is None:
        return False
    cpu = abs(new.used.cpu - old.used.cpu) >= max(LEAST_CPU, (CPU_SHARE if new.has_recorder else MUTE_SHARE) * seconds)
    return cpu or (old.used.io, old.used.tree) != (new.used.io, new.used.tree) or _has_sent(old, new, seconds)


def _can_be_compared(old: RankEvidence, new: RankEvidence) -> bool:
    """Two looks compare only if the rank answered both or neither: otherwise the bytes of the store are unknown."""
    return old.has_recorder == new.has_recorder


def _has_sent(old: RankEvidence, new: RankEvidence, seconds: float) -> bool:
    if not _can_be_compared(old, new) or old.used is None or new.used is None:
        return False
    return abs(new.used.net - old.used.net) > SIGNS_OF_LIFE * seconds


# -- certain hangs ------------------------------------------------------------------------------------------------
def certain_hang(evidence: list[RankEvidence], working: set[int], moving: set[int]) -> object:
    """What makes the hang certain, as a value that can be compared with that of another look; None if nothing does."""
    waiting = {each.rank: culprit.pending(each, PENDING) for each in evidence}
    calls = [call for own in waiting.values() for call in own]
    for each in evidence:
        if each.process == STOPPED and any(_is_in(each.rank, call) for call in calls):
            return ("stopped", each.rank)
        has_gone = each.process == ENDED or each.has_left
        if has_gone and not waiting[each.rank] and any(_is_in(each.rank, call) for call in calls):
            return ("left", each.rank)
    return _mismatch(evidence, waiting, working, moving)


def _is_in(rank: int, call: Call) -> bool:
    return call.is_of_all or rank in call.members


def _mismatch(
    evidence: list[RankEvidence], waiting: Mapping[int, list[Call]], working: set[int], moving: set[int]
) -> object:
    """A group in which all ranks wait, in collectives that can never complete together."""
    groups: dict[str, dict[int, Call]] = {}
    for rank, calls in waiting.items():
        for call in calls:
            groups.setdefault(call.group, {})[rank] = call
    for name, calls_of in sorted(groups.items()):
        some = next(iter(calls_of.values()))
        ranks = {each.rank for each in evidence} if some.is_of_all else set(some.members)
        if len(ranks) < 2 or ranks != calls_of.keys() or ranks & moving:
            continue
        numbers = {call.seq for call in calls_of.values()}
        if len(numbers) > 1 and ranks & working:  # a rank may still be in a collective that another has completed
            continue
        if len(numbers) > 1 or _is_unlike(list(calls_of.values())):
            return ("unfit", name, tuple(sorted((rank, call.seq, call.op) for rank, call in calls_of.items())))
    return None


def _is_unlike(calls: list[Call]) -> bool:
    ops = {call.op for call in calls}
    has_one_shape = len(ops) == 1 and next(iter(ops)).rpartition(":")[2] in EQUAL_SHAPES
    return len(ops) > 1 or (has_one_shape and len({call.shape for call in calls}) > 1)


# -- ranks that work ----------------------------------------------------------------------------------------------
def _last_at_work(looks: Looks, ranks: Iterable[int]) -> float | None:
    """When one of these ranks was last seen at work; without ranks: when bytes last moved."""
    times = [looks.worked[rank] for rank in ranks if rank in looks.worked]
    return max(times, default=None) if ranks else looks.moved


def may_take_longer(state: State, watch: Watch, finding: Finding, limit: float) -> bool:
    """Whether a rank that the others wait for has worked within the limit of a step."""
    looks = watch.looks
    looks.at_work = finding.ranks
    at = _last_at_work(looks, finding.ranks) if looks.since == watch.since else None
    return at is not None and state.now - at < limit


def is_idle_again(state: State, watch: Watch) -> bool:
    """Whether the ranks that got more time have done nothing for the limit of a step."""
    looks = watch.looks
    if not (looks.is_let_work and watch.lenient):
        return False
    at, limit = _last_at_work(looks, looks.at_work), hangs_limits.limit(state.hangs.pace, state.spec, STEP, state.now)
    if at is None or state.now - at >= limit - 1e-6:
        return True
    if at + limit - state.now < LONGEST_PAUSE:  # the next look is when the limit is over
        progress_watch.look_at_ranks_in(state, watch, at + limit - state.now)
    return False


def at_work(finding: Finding, evidence: list[RankEvidence]) -> str:
    """`rank 0 on worker-0 works at up.py:7 hook, and 3 ranks wait for it`."""
    ranks = [each for each in evidence if each.rank in finding.ranks]
    waits = f"{counted(finding.waiting, 'rank')} {'waits' if finding.waiting == 1 else 'wait'}"
    if not ranks:
        return f"{finding.sentence}; the ranks still send bytes"
    place = hangs_evidence.place(ranks[0].stack) if len(ranks) == 1 else ""
    is_one = len(ranks) == 1
    text = f"{culprit.names(ranks, {})} {'works' if is_one else 'work'}" + (f" at {place}" if place else "")
    return f"{text}, and {waits} for {'it' if is_one else 'them'}" if finding.waiting else text
