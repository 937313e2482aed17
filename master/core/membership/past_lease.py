"""What a master may do without its Lease (ADR 30): restart the saved generation, unchanged, and nothing else.

The API server is unreachable, and a rank ends. The master is still connected to its members and may be the only master;
another one may also hold the Lease by now. What it does must be right in both cases: the same members with the same
ranks restart under a number that the status has reserved for that. They restart only while all of them are connected
and none of them has heard of a higher term. The next master finds either this generation, which it takes over as the
saved one, or members that have already sent it a Hello; without those this generation cannot restart.
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

ALLOWED_MESSAGES = (Start, Stop, Welcome, Refused, Pong, Probe, Ask, Fetch, Kept)
HARMLESS = (Announce, CloseSession, Deliver, ProbeMember)
AGAIN = 1.0
LATER = frozenset(("replace", "unended", "stuck", "unstarted", "begin", "absent", "failed pod", "no room", "resize",
                   "leave", "move", "saved state", "create", "delete", "owner", "room", "write", "schedule",
                   "save", "status", "rebuild", "finish", "check"))  # fmt: skip
"""Kinds of deadlines whose decisions need the Lease: they are put off until it is held again."""


def may_be_done(action: Action) -> bool:
    """Whether a shell may do this action without the Lease: it sends these messages and writes nothing."""
    return isinstance(action.message, ALLOWED_MESSAGES) if isinstance(action, Send) else isinstance(action, HARMLESS)


def lapsed(state: State, event: LeaseLost) -> None:
    state.lease.lapsed = True
    if state.world is not None:  # a waiting job has nothing to lose, and there may be hundreds of them
        text = (
            f"{event.reason} Until the Lease is renewed, the master only restarts a generation that ends, with the "
            "same members and ranks; it does nothing else."
        )
        state.announce("LeaseLost", text, warning=True)
    readiness.stir(state)


def regained(state: State) -> None:
    """Does what was put off: no other master has held the Lease meanwhile."""
    state.lease.lapsed, state.lease.outranked = False, 0
    if state.world is not None:
        state.announce("LeaseRegained", "The master holds its Lease again and resumes all its work.")
    for decided in state.lease.put_off.values():
        state.occur(decided)
    state.lease.put_off.clear()
    state.unstaffed = state.unsized = True
    readiness.stir(state)
    state.mark_status()


def puts_off(state: State, decided: FailMember) -> bool:
    """Whether a member's failure is put off: without the Lease no member can be ordered to finish."""
    if state.lease.lapsed:
        state.lease.put_off.setdefault(decided.member, decided)
    return state.lease.lapsed


def note_term(state: State, hello: Hello) -> None:
    """Notes the term of a Hello: a higher one forbids any restart until the Lease is held again."""
    state.lease.outranked = max(state.lease.outranked, hello.term, hello.highest.term, hello.running.term)


def advance(state: State) -> None:
    """Replaces all other rules of a step while the Lease is not held."""
    state.checkpoint_step = None  # no resize follows this checkpoint
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
    """Starts the generation without saving a status first: the saved one has reserved its number."""
    chosen = all_of(state, world)
    if chosen and is_reserved(state, chosen, world.generation.number):
        world.version = state.status.saved_version
        restore.start(state, world)


def all_of(state: State, world: World) -> list[Member]:
    """The generation's members in the order of their ranks; none unless all are present, connected and ready."""
    there = [i for i in world.order if i in state.ready and i not in state.membership.suspected]
    return [state.members[i] for i in there] if len(there) == len(world.order) else []


def is_reserved(state: State, chosen: list[Member], number: int) -> bool:
    reserved = state.reserved
    if reserved is None or number > reserved.up_to or state.lease.outranked > state.term or state.placement.suspended:
        return False
    seats = tuple(zip(layout.places(chosen).values(), (member.uid for member in chosen), strict=True))
    return all(each.seats == seats for each in (reserved, *state.reserving))
