"""The size of a job whose pods another controller creates: users may scale the owner or the ElasticJob.

The most recent scale operation wins. If a user scales the ElasticJob, the master resizes the owner (`ResizeOwner`): up
at once, down once the surplus members are in no generation, because the owner picks which pods it deletes. If a
user scales the owner, the master changes the ElasticJob (`FollowOwner`), and that change does not count as a request.
To distinguish the two, the master stores the owner's last known size, also for the next master: only a change of it
is a user's.

If the owner has ended, so has the job, because no more pods are created. Kubernetes only says that the owner gave up,
so the message also has the last fault.
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
"""Seconds from the first failed resize to the next attempt; each further failure doubles them."""
SLOWEST = 1800.0
"""The most seconds between two attempts."""


def sized(state: State, event: OwnerSized) -> None:
    """Compares the owner's size, as just read, with the job's."""
    known, state.placement.owner.size = state.placement.owner.size, event.replicas
    if event.replicas == known or not state.spec.is_adopted or state.is_over:
        return
    state.placement.owner.asked = None
    state.mark_status()
    if event.replicas == state.target:
        state.placement.owner.failures = 0
        state.deadlines.cancel(("owner", ""))
    elif event.replicas < 1:
        state.announce(
            "OwnerScaledByUser", "The owner of the pods was scaled to 0; training continues when it is scaled up."
        )
    else:
        _follow(state)
    readiness.note_staffing(state)


def ended(state: State, event: OwnerEnded) -> None:
    """Ends the job, because its owner has ended."""
    if not state.spec.is_adopted or state.is_over:
        return
    if event.succeeded:
        generation_job_end.succeed(state, f"{event.why}.")
        return
    last = f" The last fault before it: {state.faults.noted[-1].reason}" if state.faults.noted else ""
    generation_job_end.fail(state, 1, f"{event.why}; it creates no more pods.{last}")


def hold(state: State) -> None:
    """At the end of a step: sets the phase to pending if the owner is scaled to 0 and has deleted all pods.

    Once it is scaled up again, the next generation waits for all members, as a first one does.
    """
    if state.stage != GATHERING or state.placement.suspended or (state.phase, state.message) == ("pending", ""):
        return
    if formation.is_scaled_to_zero(state):
        state.phase, state.message, state.patient = "pending", "", True
        state.mark_status()


def _follow(state: State) -> None:
    size = state.placement.owner.size
    assert size is not None
    reason = f"The owner of the pods was scaled from {state.target} to {counted(size, 'pod')}; the ElasticJob follows."
    state.announce("OwnerScaledByUser", reason)
    state.placement.owner.led_from = state.target
    state.act(FollowOwner(size, state.generation, reason))


def resize(state: State) -> None:
    """At the end of a step: resizes the owner to the desired size, once that is allowed."""
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
    reason = f"The owner of the pods is scaled from {owner.size} to {counted(state.target, 'pod')}."
    state.announce("OwnerScaled", reason)
    state.act(ResizeOwner(state.target, state.generation, reason))


def _needs_surplus(state: State) -> bool:
    world = state.world
    is_there = world is not None and state.stage in (RUNNING, COMMITTING, STOPPING)
    return is_there and world is not None and any(p.rank_index >= state.target for p in world.places.values())


def failed(state: State, error: str) -> None:
    """Schedules another attempt after the owner, or the ElasticJob that was to follow it, could not be changed."""
    delay = min(AGAIN * 2**state.placement.owner.failures, SLOWEST)
    state.placement.owner.failures += 1
    text = f"The owner of the pods and the ElasticJob have different sizes, and neither could be changed: {error}."
    state.announce("OwnerScaleFailed", f"{text} The master retries in {delay:.0f} s.", warning=True)
    state.deadlines.set(("owner", ""), state.now + delay)


def due(state: State) -> None:
    """Tries again to give the owner and the ElasticJob the same size."""
    state.placement.owner.asked = None
    if state.placement.owner.led_from == state.target and state.placement.owner.size not in (None, 0, state.target):
        _follow(state)
    readiness.note_staffing(state)


def begin(state: State) -> None:
    """Stores the owner's size of a new job, whose ElasticJob was created with that size."""
    if state.spec.is_adopted:
        state.placement.owner.size = state.spec.replicas
