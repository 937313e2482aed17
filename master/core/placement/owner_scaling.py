"""A job whose pods another controller makes. Its size is its owner's, and its user may scale either of the two.

Who was changed last, leads. Where the ElasticJob's user asks for a size, the owner is asked for it (`ResizeOwner`): for
more at once, for fewer when no world needs the surplus any more, because the owner takes its pods without asking. Where
the owner's user does, the ElasticJob follows (`FollowOwner`), and what then changes in it is nobody's wish. The two are
told apart by the size that the owner was last seen to have, which the next master knows too: only a change of it is its
user's.

Where the owner itself is over, so is the job: nobody makes another pod. Kubernetes tells only that it gave up, so the
last fault stands beside it.
"""

from __future__ import annotations

from outrider.master.core.actions import FollowOwner, ResizeOwner
from outrider.master.core.events import OwnerEnded, OwnerSized
from outrider.master.core.generation import formation, readiness
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.state.job import COMMITTING, GATHERING, REBUILDING, RUNNING, STOPPING, State
from outrider.master.core.text import counted

ASKING = (ResizeOwner, FollowOwner)
AGAIN = 30.0
SLOWEST = 1800.0


def sized(state: State, event: OwnerSized) -> None:
    """The owner was read: it has this size."""
    known, state.placement.owner.size = state.placement.owner.size, event.replicas
    if event.replicas == known or not state.spec.is_adopted or state.is_over:
        return
    state.placement.owner.asked = None
    state.mark_status()
    if event.replicas == state.target:
        state.placement.owner.failures = 0
        state.deadlines.cancel(("owner", ""))
    elif event.replicas < 1:
        state.announce("OwnerScaledByUser", "The owner of the pods wants none any more; the job waits for members.")
    else:
        _follow(state)
    readiness.note_staffing(state)


def ended(state: State, event: OwnerEnded) -> None:
    """The owner was read: it is over."""
    if not state.spec.is_adopted or state.is_over:
        return
    if event.succeeded:
        generation_job_end.succeed(state, f"{event.why}.")
        return
    last = f" The last fault before it: {state.faults.noted[-1].reason}" if state.faults.noted else ""
    generation_job_end.fail(state, 1, f"{event.why}; it makes no more pods.{last}")


def hold(state: State) -> None:
    """At the end of a step: nothing is restarting where the owner wants no pods and has taken them all. When it wants
    some again, the next world waits for all of them, as a first one does."""
    if state.stage != GATHERING or state.placement.suspended or (state.phase, state.message) == ("pending", ""):
        return
    if formation.is_nobody_wanted(state):
        state.phase, state.message, state.patient = "pending", "", True
        state.mark_status()


def _follow(state: State) -> None:
    size = state.placement.owner.size
    assert size is not None
    reason = f"The owner of the pods wants {counted(size, 'pod')} instead of {state.target}; the ElasticJob follows."
    state.announce("OwnerScaledByUser", reason)
    state.placement.owner.led_from = state.target
    state.act(FollowOwner(size, state.generation, reason))


def resize(state: State) -> None:
    """At the end of a step: asks the owner for the size that is wanted, once it may."""
    owner = state.placement.owner
    if not state.spec.is_adopted or state.ends or state.placement.suspended or owner.size in (None, 0, state.target):
        return
    if owner.led_from == state.target or owner.asked == state.target or state.stage == REBUILDING:
        return
    owner.led_from = None
    assert owner.size is not None
    if state.target < owner.size and _needs_surplus(state):
        return
    owner.asked = state.target
    reason = f"The owner of the pods is asked for {counted(state.target, 'pod')} instead of {owner.size}."
    state.announce("OwnerScaled", reason)
    state.act(ResizeOwner(state.target, state.generation, reason))


def _needs_surplus(state: State) -> bool:
    world = state.world
    is_there = world is not None and state.stage in (RUNNING, COMMITTING, STOPPING)
    return is_there and world is not None and any(p.rank_index >= state.target for p in world.places.values())


def failed(state: State, error: str) -> None:
    """The owner, or the ElasticJob that was to follow it, could not be changed."""
    delay = min(AGAIN * 2**state.placement.owner.failures, SLOWEST)
    state.placement.owner.failures += 1
    text = f"The owner of the pods and the ElasticJob have different sizes, and neither could be changed: {error}."
    state.announce("OwnerScaleFailed", f"{text} It is tried again in {delay:.0f} s.", warning=True)
    state.deadlines.set(("owner", ""), state.now + delay)


def due(state: State) -> None:
    """Another try."""
    state.placement.owner.asked = None
    if state.placement.owner.led_from == state.target and state.placement.owner.size not in (None, 0, state.target):
        _follow(state)
    readiness.note_staffing(state)


def begin(state: State) -> None:
    """A new job: its ElasticJob was made with the owner's size."""
    if state.spec.is_adopted:
        state.placement.owner.size = state.spec.replicas
