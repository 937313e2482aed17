"""Planned changes of a running generation: growing, shrinking, leaving members, requested restarts.

A resize loses no work, so it waits for the next finished checkpoint, at most `grow_patience`. If the script resumed
from a file of which no save was seen, no save is likely to be seen, and it waits at most a minute. A leaving member
is replaced while it still trains: the generation changes when a checkpoint is finished, when the replacement is ready,
or when the member's grace has nearly run out, whichever is first.
"""

from __future__ import annotations

from outrider.master.core.actions import DeletePod
from outrider.master.core.checkpoints import planned_save
from outrider.master.core.generation import (
    layout,
    lifecycle,
    observe_only,
    orders,
    readiness,
    reservations,
    unsupervised,
)
from outrider.master.core.scaling import autoscaler, rehearsal
from outrider.master.core.state.generation import World
from outrider.master.core.state.job import GATHERING, REBUILDING, RUNNING, State
from outrider.master.core.state.member import Member
from outrider.master.core.text import counted, requested
from outrider.wire.ids import MemberId
from outrider.wire.messages.membership import Finish, Leaving

SOONER = 1.0
"""Seconds by which a shorter grace must differ from the known one to be announced."""
UNSEEN_PATIENCE = 60.0
"""The most seconds that a resize waits for a checkpoint if saves cannot be seen."""
LEAVE_AGAIN = 1.0
"""Seconds until a new master, which does not know its generation yet, looks at a leaving member again."""
REMOVE_GRACE = 10.0
"""Seconds of grace with which the pod of a removed member is deleted."""


def scale(state: State, replicas: int) -> None:
    """Changes the size that the user requests."""
    spec = state.spec
    if state.is_over or not spec.min_members <= replicas <= spec.max_members or replicas % max(spec.node_unit, 1):
        text = (
            f"Invalid size: {counted(replicas, 'member')}: job {spec.name} runs with {spec.min_members} to "
            f"{spec.max_members}, in steps of {spec.node_unit}."
        )
        state.announce("ScaleRejected", text, warning=True)
        return
    if replicas == state.target:
        state.announce("ScaleRequested", f"{requested(replicas, 'member')} already.")
        autoscaler.scaled_by_hand(state, replicas)
        return
    state.announce("ScaleRequested", f"{requested(replicas, 'member')} instead of {state.target}.")
    autoscaler.scaled_by_hand(state, replicas)
    state.target = replicas
    readiness.note_staffing(state)
    readiness.note_resize(state)
    state.mark_status()


def restart(state: State, at_checkpoint: bool) -> None:
    """Restarts all ranks on the user's request, so that they run the script as it is now."""
    if state.stage != RUNNING:
        text = "A restart was requested: the next generation reads the script again anyway."
        state.announce("RestartRequested", text)
        return
    if at_checkpoint:
        state.restart_wanted = "a restart was requested"
        state.announce("RestartRequested", "A restart was requested: it waits for the next finished checkpoint.")
        planned_save.holds(state, state.restart_wanted)
        state.mark_status()
        return
    state.announce("RestartRequested", "A restart was requested: all ranks are stopped and started again.")
    lifecycle.stop(state, "A restart was requested.")


def restart_refused(state: State, why: str) -> None:
    state.announce("RestartRejected", rehearsal.sentence(why), warning=True)


def leaving(state: State, member: Member, message: Leaving) -> None:
    """Handles the sidecar's report that its pod is terminating; it knows only the pod's own grace.

    No news if the master deletes the pod itself or the job is ending."""
    if not member.deleting and not state.is_over:
        must_leave(state, member, message.reason or "its pod is terminating", message.grace)


def must_leave(state: State, member: Member, why: str, grace: float, *, with_node: bool = False) -> None:
    """Drains a member, make before break: it continues training while its replacement starts.

    Of several reports the shortest grace counts. A member that leaves `with_node`, and for no other reason, stays if
    its node comes back.
    """
    member.leaves_with_node = with_node and (member.leaves_with_node or not member.leaving)
    due = state.now + max(0.0, grace - planned_save.LEAVE_EARLY)
    if member.leaving:
        if member.leave_at is None or due < member.leave_at - SOONER:
            member.leave_at = due
            state.deadlines.set(("leave", member.id), due)
            text = f"{member.id} has to leave ({why}) and has only {grace:.0f} s."
            state.announce("MemberDraining", text, member.id, warning=True)
        return
    member.leaving, member.leave_at = why, due
    state.deadlines.set(("leave", member.id), due)
    coming = _what_comes(state, member)
    text = f"{member.id} has to leave ({why}) and has {grace:.0f} s; {coming}."
    state.announce("MemberDraining", text, member.id, warning=True)
    planned_save.leaves(state, member, grace)
    readiness.refresh(state, member)
    readiness.note_staffing(state)
    readiness.note_resize(state)


def _what_comes(state: State, member: Member) -> str:
    """What replaces the member; an owner's new size or suspension is known only after its pods are deleted."""
    if state.stop_wanted:
        return "the job ends"
    if not state.spec.is_adopted:
        return "a replacement is started"
    replaces = not state.placement.owner.suspended and state.placement.owner.size != 0 and not _is_beyond(state, member)
    return "its owner creates a replacement" if replaces else "its owner does not replace it"


def stay(state: State, member: Member, why: str) -> None:
    """Cancels the drain of a member whose reason to leave is gone, and whose pod still exists."""
    member.leaving, member.leave_at, member.leaves_with_node = "", None, False
    state.deadlines.cancel(("leave", member.id))
    state.deadlines.cancel(("move", member.id))
    state.announce("DrainCancelled", f"{member.id} no longer has to leave: {why}.", member.id)
    readiness.wait_again(state, member)
    readiness.refresh(state, member)
    readiness.note_staffing(state)
    readiness.note_resize(state)


def leave_when_replaced(state: State, member: Member, why: str) -> None:
    """Drains a member without a deadline: it stays until its replacement is ready."""
    member.leaving = why
    text = f"{member.id} has to leave ({why}) and keeps running until its replacement is ready."
    state.announce("MemberDraining", text, member.id, warning=True)
    readiness.refresh(state, member)
    readiness.note_staffing(state)
    readiness.note_resize(state)


def leave_now(state: State, member_id: str) -> None:
    """Stops the generation of a leaving member whose grace has nearly run out."""
    member = state.members.get(MemberId(member_id))
    if member is not None and state.stage == REBUILDING:
        state.deadlines.set(("leave", member.id), state.now + LEAVE_AGAIN)
    elif member is not None and state.world is not None and member.id in state.world.places:
        lifecycle.stop(state, f"{member.id} has to leave now ({member.leaving}); {_what_continues(state)}.")


def _what_continues(state: State) -> str:
    """How training continues if a member leaves before its replacement is ready."""
    others, least = _next_world(state), state.spec.min_members
    if state.spec.is_adopted and state.placement.owner.size == 0:
        return "the owner of the pods was scaled to 0"
    if len(others) >= max(least, 1):
        return "the others continue without it" if len(others) > 1 else f"{others[0]} continues without it"
    if not others:
        return "no member is left until a replacement is ready"
    left = f"only {len(others)} of the {least} members that a generation needs would be left"
    return f"{left}, so training continues when a replacement is ready"


def consider(state: State) -> None:
    """Plans a resize if the present members allow a better generation; O(members), only when one came or went."""
    world = state.world
    if state.stage != RUNNING or world is None:
        return
    desired = _next_world(state) if not unsupervised.in_the_way(state) else list(world.places)
    staying = [m for m in desired if m in world.places]
    why = ""
    if len(desired) > len(world.places):
        why = f"grow from {len(world.places)} to {counted(len(desired), 'member')}"
    elif state.spec.min_members <= len(desired) < len(world.places) and any(
        _is_unwanted(state, m) for m in world.places
    ):
        why = f"shrink from {len(world.places)} to {counted(len(desired), 'member')}"
    elif len(desired) == len(world.places) and len(staying) < len(desired):
        out = sorted(set(world.places) - set(desired))
        why = f"replace {', '.join(out)} by {', '.join(sorted(set(desired) - set(world.places)))}"
    if why == state.resize:
        _wait_no_longer(state, world)
        _save_first(state, world)
        return
    state.resize = why
    state.mark_status()
    if not why:
        state.deadlines.cancel(("resize", ""))
        return
    if _replaces_leaving(state, desired):
        _replace(state, why)
        return
    if state.deadlines.at(("resize", "")) is None:
        state.deadlines.set(("resize", ""), state.now + _patience(state))
    state.announce("ResizePending", f"The generation will {why}, {_until_when(state, world)}.")
    _save_first(state, world)


def _saves_unseen(state: State) -> bool:
    """Whether the script has read a possible checkpoint although no save of it was ever seen."""
    return state.progress.step_estimated and not state.progress.saves and state.checkpoints.replicated_step is None


def _patience(state: State) -> float:
    """Seconds that a resize waits for a checkpoint."""
    patience = state.spec.grow_patience
    return min(patience, UNSEEN_PATIENCE) if _saves_unseen(state) else patience


def _wait_no_longer(state: State, world: World) -> None:
    """Shortens the wait of a pending resize if it turns out meanwhile that saves cannot be seen."""
    due, sooner = state.deadlines.at(("resize", "")), state.now + _patience(state)
    if due is not None and due > sooner and _saves_unseen(state):
        state.deadlines.set(("resize", ""), sooner)
        state.announce("ResizePending", f"The generation will {state.resize}, {_until_when(state, world)}.")


def _save_first(state: State, world: World) -> None:
    """Requests the checkpoint that a resize waits for, unless a leaving member's replacement may be ready first."""
    is_new = world.save is None and bool(state.resize)
    if is_new and not any(_leaves(state, m) for m in world.places):
        planned_save.holds(state, f"the generation will {state.resize}")


def _leaves(state: State, member_id: MemberId) -> bool:
    member = state.members.get(member_id)
    return member is not None and bool(member.leaving)


def _replace(state: State, why: str) -> None:
    ready = f"The replacement of a leaving member is ready: the generation will {why}."
    if not planned_save.holds(state, f"the generation will {why}"):
        lifecycle.stop(state, ready)


def after_save(state: State) -> None:
    """Makes the change that waited for a planned save which has just succeeded or failed."""
    world = state.world
    if world is None or state.stage != RUNNING or not planned_save.is_just_over(state, world):
        return
    if state.resize and _replaces_leaving(state, _next_world(state)):
        _replace(state, state.resize)
    elif planned_save.all_leave(state, world):
        lifecycle.stop(state, "All members have to leave, and the planned save has ended.")


def _until_when(state: State, world: World) -> str:
    """When a resize happens: at a checkpoint, the end of a member's grace, a replacement or the end of the wait."""
    ends = [(due, m) for m in world.places if (due := state.deadlines.at(("leave", m))) is not None]
    patience = state.deadlines.at(("resize", ""))
    due, member = min(ends, default=(state.now + _patience(state) if patience is None else patience, ""))
    when = "at the next finished checkpoint"
    if _is_replaced_soon(state):
        when = "at the next finished checkpoint if no replacement is starting by then,"
    if not member or (patience is not None and patience <= due):
        unseen = ", because no save of the script was ever seen" if _saves_unseen(state) else ""
        return f"{when} or in {_patience(state):.0f} s{unseen}"
    replaced = "its replacement is" if len(ends) == 1 else "the replacements are"
    return (
        f"{when} or in {max(due - state.now, 0.0):.0f} s, when {member} must have left; if "
        f"{replaced} ready earlier, the generation keeps its size"
    )


def _is_replaced_soon(state: State) -> bool:
    """Whether each leaving member has a replacement on its way, and more time than a member takes to start.

    Then a smaller generation meanwhile would cost two changes instead of one."""
    world = state.world
    assert world is not None
    there = [m for member_id in world.places if (m := state.members.get(member_id)) is not None]
    going = [m for m in there if m.leaving]
    enough = state.now + state.spec.start_patience
    has_time = all(m.leave_at is None or m.leave_at > enough for m in going)
    coming = state.coming.difference(world.places)
    return 0 < len(going) <= len(coming) and has_time and not any(_is_beyond(state, m) for m in there)


def _next_world(state: State) -> list[MemberId]:
    world = state.world
    assert world is not None
    there = [
        m
        for m in state.members.values()
        if m.is_usable and (m.id in world.places or m.id in state.ready) and m.id not in world.done
    ]
    return [m.id for m in layout.choose(there, state.indexes, state.spec.node_unit)]


def _is_unwanted(state: State, member_id: MemberId) -> bool:
    member = state.members.get(member_id)
    return member is not None and (bool(member.leaving) or _is_beyond(state, member))


def _is_beyond(state: State, member: Member) -> bool:
    return member.rank_index is not None and member.rank_index not in state.indexes


def _replaces_leaving(state: State, desired: list[MemberId]) -> bool:
    world = state.world
    assert world is not None
    return any(_leaves(state, m) for m in world.places) and len(desired) >= len(world.places)


def at_checkpoint(state: State) -> None:
    """Makes the changes that wait for a finished checkpoint; if a planned save is under way, they wait for that."""
    step, state.checkpoint_step = state.checkpoint_step, None
    if step is None or state.stage != RUNNING or planned_save.is_requested(state):
        return
    if state.resize and not state.restart_wanted and _is_replaced_soon(state):
        return
    resize = f"the generation will {state.resize}" if state.resize else ""
    why = "; ".join(part for part in (resize, state.restart_wanted) if part)
    if why:
        _resize(state, f"A checkpoint of step {step} is finished: {why}.")


def patience_over(state: State) -> None:
    """Resizes without a checkpoint, after the longest wait."""
    if state.stage == RUNNING and state.resize:
        patience = f"{_patience(state):.0f} s"
        _resize(state, f"No checkpoint was finished in {patience}: the generation will {state.resize} without one.")


def _resize(state: State, reason: str) -> None:
    state.announce("ResizeStarted", reason)
    lifecycle.stop(state, reason)


def dismiss(state: State) -> None:
    """Finishes and deletes surplus members outside the generation; an adopted job's are left to its owner."""
    if state.stage not in (GATHERING, RUNNING):
        return
    in_world, rests = state.world.places if state.world is not None else {}, bool(_rests(state))
    to_go = [
        member
        for member in state.members.values()
        if member.id not in in_world
        and not member.deleting
        and not _is_taken_soon(state, member)
        and (
            (rests and not _owner_takes(state, member))
            or _has_to_leave(member)
            or (_is_beyond(state, member) and not state.spec.is_adopted)
        )
    ]
    if state.left is not None and any(member.id in state.left.places for member in to_go):
        state.left = None  # that generation cannot begin again as it was
        state.mark_status()
    for member in sorted(to_go, key=lambda m: m.id):
        if not reservations.may_have(state, member):
            _dismiss(state, member)


def _owner_takes(state: State, member: Member) -> bool:
    """Whether a suspended owner will delete the pod; if it finished before, a Job would count its index as complete."""
    return state.placement.owner.suspended and not state.placement.suspend_wanted and member.grace_ends is None


def _rests(state: State) -> str:
    """Why the job has no members for now; "" if it has."""
    if state.placement.suspended:
        return "the job is suspended"
    return "the job is queued" if state.placement.waits_behind else ""


def _has_to_leave(member: Member) -> bool:
    """Whether a leaving member is dismissed; one with a key mismatch, which this job cannot stop, trains to its end."""
    return bool(member.leaving) and not member.is_stranger


def _is_taken_soon(state: State, member: Member) -> bool:
    """Whether the platform will delete the pod anyway, with its node."""
    node = state.placement.nodes.get(member.node)
    return node is not None and node.is_gone and bool(member.leaving) and member.grace_ends is None


def _dismiss(state: State, member: Member) -> None:
    why = _rests(state) or f"the job has only {counted(state.target, 'member')} now"
    if observe_only.would(state, f"dismiss {member.id}", f"{member.leaving or why}.", member.id):
        return
    member.leaving = member.leaving or why
    member.deleting = True
    reason = f"{member.id} is no longer part of the job: {member.leaving}."
    state.announce("MemberRemoved", reason, member.id)
    if member.session is not None:
        orders.drop_all(state, member)
        orders.give(state, member, lambda order: Finish(order, 0, reason), reason)
    if member.uid is not None and member.has_controller:
        state.act(DeletePod(member.id, member.uid, REMOVE_GRACE, state.generation, reason))
    readiness.refresh(state, member)
