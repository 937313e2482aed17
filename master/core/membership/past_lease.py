"""What a leader may do past its Lease (ADR 30): start the saved world again, unchanged, and nothing else.

The API server is away, and a rank ends. The master still has its members on their links, and may be the only one that
there is; another one may also hold the Lease by now. So what it does has to be right in both cases: the same members
with the same ranks begin again under a number that the status has reserved for just that, and only while all of them
are on their links and none of them has heard of a higher term. Whoever follows finds either this world, which it takes
over as the saved one, or members that have greeted it, without which this world cannot begin.
"""

from __future__ import annotations

from outrider.master.core.actions import Action, Announce, CloseSession, Deliver, ProbeMember, Send
from outrider.master.core.checkpoints import restore
from outrider.master.core.events import LeaseLost
from outrider.master.core.faults import verdict
from outrider.master.core.generation import layout, lifecycle, readiness
from outrider.master.core.state.generation import World
from outrider.master.core.state.job import COMMITTING, GATHERING, STOPPING, State
from outrider.master.core.state.member import Member
from outrider.master.core.state.occurrences import FailMember
from outrider.wire.messages.checkpoints import Fetch, Kept
from outrider.wire.messages.diagnostics import Ask
from outrider.wire.messages.generation import Start, Stop
from outrider.wire.messages.links import Pong, Probe
from outrider.wire.messages.membership import Hello, Refused, Welcome

SAID = (Start, Stop, Welcome, Refused, Pong, Probe, Ask, Fetch, Kept)
HARMLESS = (Announce, CloseSession, Deliver, ProbeMember)
AGAIN = 1.0
LATER = frozenset(("replace", "unended", "stuck", "unstarted", "begin", "absent", "failed pod", "no room", "resize",
                   "leave", "move", "saved state", "create", "delete", "owner", "room", "write", "schedule",
                   "save", "status", "rebuild", "finish", "check"))  # fmt: skip
"""Deadlines at which something is decided that is more than that: they come when the Lease is held again."""


def may_be_done(action: Action) -> bool:
    """What a shell does past the Lease, whatever a core wants: it says what belongs to this, and writes nothing."""
    return isinstance(action.message, SAID) if isinstance(action, Send) else isinstance(action, HARMLESS)


def lapsed(state: State, event: LeaseLost) -> None:
    state.lease.lapsed = True
    if state.world is not None:  # a job that waits has nothing to lose, and hundreds may
        text = f"{event.reason} Until then a world that ends is started again as it is, by the same members, and "
        state.announce("LeaseLost", text + "nothing else is done.", warning=True)
    readiness.stir(state)


def regained(state: State) -> None:
    """Nobody else has been the master: what was put off is done now."""
    state.lease.lapsed, state.lease.outranked = False, 0
    if state.world is not None:
        state.announce("LeaseRegained", "The master holds its Lease again, and does all that it does otherwise.")
    for decided in state.lease.put_off.values():
        state.occur(decided)
    state.lease.put_off.clear()
    state.unstaffed = state.unsized = True
    readiness.stir(state)
    state.mark_status()


def puts_off(state: State, decided: FailMember) -> bool:
    """Nobody can be told to finish now; meanwhile the member stays in its place."""
    if state.lease.lapsed:
        state.lease.put_off.setdefault(decided.member, decided)
    return state.lease.lapsed


def note_term(state: State, hello: Hello) -> None:
    """A member that has heard of a higher term ends it all, as long as the Lease is not held again."""
    state.lease.outranked = max(state.lease.outranked, hello.term, hello.highest.term, hello.running.term)


def advance(state: State) -> None:
    """In place of all that follows from what has changed."""
    state.checkpoint_step = None  # nobody is resized behind it
    if state.is_over:
        return
    if state.stage == STOPPING and state.world is not None and not state.world.waiting and verdict.settle(state):
        lifecycle.leave(state)
    if state.stage == GATHERING and state.left is not None:
        chosen = all_of(state, state.left)
        if chosen and is_reserved(state, chosen, state.number + 1):
            lifecycle.decide(state, chosen)
    if state.stage == COMMITTING and state.world is not None:
        _start(state, state.world)


def _start(state: State, world: World) -> None:
    """It needs no status of its own."""
    chosen = all_of(state, world)
    if chosen and is_reserved(state, chosen, world.generation.number):
        world.version = state.status.saved_version
        restore.start(state, world)


def all_of(state: State, world: World) -> list[Member]:
    """Its members in the order of their ranks; none where one is not there, on its link and ready."""
    there = [i for i in world.order if i in state.ready and i not in state.membership.doubted]
    return [state.members[i] for i in there] if len(there) == len(world.order) else []


def is_reserved(state: State, chosen: list[Member], number: int) -> bool:
    reserved = state.reserved
    if reserved is None or number > reserved.up_to or state.lease.outranked > state.term or state.placement.suspended:
        return False
    seats = tuple(zip(layout.places(chosen).values(), (member.uid for member in chosen), strict=True))
    return all(each.seats == seats for each in (reserved, *state.reserving))
