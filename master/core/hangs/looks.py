"""Looks at the ranks of a generation that makes no progress: what is beyond doubt, and who works (ADR 37).

From 7 s without progress on each rank is asked now and then for its collectives, and its member for what its process
has used. Two looks in a row that show the same beyond doubt end the generation at once, whatever limit there is:

- a process that is stopped by a signal, not by a debugger, and that others wait for;
- all ranks of one process group wait in it, in collectives that do not fit together, and nothing moves;
- others wait in a group for a rank that has left it: its process has ended, or it has destroyed the group.

What differs from one look to the next is work: CPU time, reads and writes, bytes over TCP, the main thread's place,
descendants, collectives. A rank that works and keeps others waiting has the time of an evaluation. One that has done
nothing for the limit of a step is hung. A limit that the user gives is the limit: then there are no looks.
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
from outrider.master.core.state.hangs import ENDED, STOPPED, Call, Looks, Rows, Told, Watch
from outrider.master.core.state.job import State
from outrider.master.core.text import counted
from outrider.wire.ids import MemberId

AGAIN, SLOWER, LONGEST_PAUSE = 4.0, 1.5, 20.0
"""Seconds between the first two, how much longer each pause is than all before it, and the longest."""
OF_A_STEP = 1.5
"""Times the slowest recent step: steps of half a minute are not asked about each time."""
PENDING = 5.0
"""Seconds after which a collective that is not over is waited in."""
LEAST_CPU, CPU_SHARE, MUTE_SHARE = 0.03, 0.002, 0.02
"""Seconds, and share of the time between two looks: threads that only wake up now and then use less. Of a rank that
answers nothing, because something holds its GIL, each other thread of Python's wakes up every 5 ms to ask for it."""
SIGNS_OF_LIFE = 1024.0
"""Bytes a second that libraries send while nothing is done: NCCL's RAS (2.24 and newer) 120 for each connection."""
EQUAL_SHAPES = ("all_reduce", "reduce", "broadcast", "barrier", "reduce_scatter")
"""Collectives whose tensors are of one shape on all ranks: others may gather unequal ones."""


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
    pause = (SLOWER - 1) * (state.now - watch.since) if looks.told else AGAIN
    progress_watch.look_at_ranks_in(state, watch, min(pause, LONGEST_PAUSE))
    hangs_diagnostics.ask(state, looks.request, "collectives", is_ours=True)


def is_look(watch: Watch, request: str) -> bool:
    return request == watch.looks.request


# -- what they show -----------------------------------------------------------------------------------------------
def answered(state: State, watch: Watch, world: World, said: Mapping[MemberId, Rows]) -> bool:
    """True where two in a row have shown the same beyond doubt."""
    looks = watch.looks
    looks.request = ""
    told = hangs_evidence.read(world.places.values(), world.done, said, {})
    before, looks.told = looks.told, told
    passed, looks.at = state.now - looks.at, state.now
    if looks.since != watch.since:
        return False
    pairs = {new.rank: (old, new) for old, new in zip(before or told, told, strict=True)}
    working = {rank for rank, (old, new) in pairs.items() if has_worked(old, new, passed)}
    looks.worked.update(dict.fromkeys(working, state.now))
    moving = {rank for rank, (old, new) in pairs.items() if _has_sent(old, new, passed)}
    if moving:
        looks.moved = state.now
    earlier, looks.doubtless = looks.doubtless, beyond_doubt(told, working, moving)
    if looks.doubtless is not None and looks.doubtless != earlier:
        progress_watch.look_at_ranks_in(state, watch, AGAIN)
        return False
    return looks.doubtless is not None


def has_worked(old: Told, new: Told, seconds: float) -> bool:
    """From one look to the next."""
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


def _can_be_compared(old: Told, new: Told) -> bool:
    """The store's bytes are known only of a rank that has answered."""
    return old.has_recorder == new.has_recorder


def _has_sent(old: Told, new: Told, seconds: float) -> bool:
    if not _can_be_compared(old, new) or old.used is None or new.used is None:
        return False
    return abs(new.used.net - old.used.net) > SIGNS_OF_LIFE * seconds


# -- beyond doubt -------------------------------------------------------------------------------------------------
def beyond_doubt(told: list[Told], working: set[int], moving: set[int]) -> object:
    """What is, so that two of it can be compared; None where nothing is."""
    waiting = {each.rank: culprit.pending(each, PENDING) for each in told}
    calls = [call for own in waiting.values() for call in own]
    for each in told:
        if each.process == STOPPED and any(_is_in(each.rank, call) for call in calls):
            return ("stopped", each.rank)
        has_gone = each.process == ENDED or each.has_left
        if has_gone and not waiting[each.rank] and any(_is_in(each.rank, call) for call in calls):
            return ("left", each.rank)
    return _unfit(told, waiting, working, moving)


def _is_in(rank: int, call: Call) -> bool:
    return call.is_of_all or rank in call.members


def _unfit(told: list[Told], waiting: Mapping[int, list[Call]], working: set[int], moving: set[int]) -> object:
    """A group all of whose ranks wait in it, and whose collectives can never come together."""
    groups: dict[str, dict[int, Call]] = {}
    for rank, calls in waiting.items():
        for call in calls:
            groups.setdefault(call.group, {})[rank] = call
    for name, calls_of in sorted(groups.items()):
        some = next(iter(calls_of.values()))
        ranks = {each.rank for each in told} if some.is_of_all else set(some.members)
        if len(ranks) < 2 or ranks != calls_of.keys() or ranks & moving:
            continue
        numbers = {call.seq for call in calls_of.values()}
        if len(numbers) > 1 and ranks & working:  # what one has been through already, another may still be at
            continue
        if len(numbers) > 1 or _is_unlike(list(calls_of.values())):
            return ("unfit", name, tuple(sorted((rank, call.seq, call.op) for rank, call in calls_of.items())))
    return None


def _is_unlike(calls: list[Call]) -> bool:
    ops = {call.op for call in calls}
    has_one_shape = len(ops) == 1 and next(iter(ops)).rpartition(":")[2] in EQUAL_SHAPES
    return len(ops) > 1 or (has_one_shape and len({call.shape for call in calls}) > 1)


# -- who works ----------------------------------------------------------------------------------------------------
def _last_at_work(looks: Looks, ranks: Iterable[int]) -> float | None:
    """When one of these was last seen at work; of nobody in particular: when bytes moved."""
    times = [looks.worked[rank] for rank in ranks if rank in looks.worked]
    return max(times, default=None) if ranks else looks.moved


def may_take_longer(state: State, watch: Watch, finding: Finding, limit: float) -> bool:
    """Whom the others wait for has worked within the limit of a step."""
    looks = watch.looks
    looks.at_work = finding.ranks
    at = _last_at_work(looks, finding.ranks) if looks.since == watch.since else None
    return at is not None and state.now - at < limit


def is_idle_again(state: State, watch: Watch) -> bool:
    """Those that were given longer have done nothing for the limit of a step."""
    looks = watch.looks
    if not (looks.is_let_work and watch.lenient):
        return False
    at, limit = _last_at_work(looks, looks.at_work), hangs_limits.limit(state.hangs.pace, state.spec, STEP, state.now)
    if at is None or state.now - at >= limit - 1e-6:
        return True
    if at + limit - state.now < LONGEST_PAUSE:  # they are looked at when it is over
        progress_watch.look_at_ranks_in(state, watch, at + limit - state.now)
    return False


def at_work(finding: Finding, told: list[Told]) -> str:
    """`rank 0 on worker-0 works at up.py:7 hook, and 3 ranks wait for it`."""
    ranks = [each for each in told if each.rank in finding.ranks]
    waits = f"{counted(finding.waiting, 'rank')} {'waits' if finding.waiting == 1 else 'wait'}"
    if not ranks:
        return f"{finding.sentence}, but bytes of its ranks move"
    place = hangs_evidence.place(ranks[0].stack) if len(ranks) == 1 else ""
    is_one = len(ranks) == 1
    text = f"{culprit.who(ranks, {})} {'works' if is_one else 'work'}" + (f" at {place}" if place else "")
    return f"{text}, and {waits} for {'it' if is_one else 'them'}" if finding.waiting else text
