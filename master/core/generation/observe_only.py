"""A job that is only observed: everything is seen, and what would be done is said instead.

The core decides as always. What would touch a pod, a process or an owner is said as `DryRun`, once: a stop of the world
once a generation, anything else once a member or size. Two places make that true. Where the core would note that it has
done something, it asks here first, so that its picture stays that of what really is: a world that nobody has stopped
runs on. And `filtered` is the law, at the edge of the core: no action that touches anything leaves it.

What a job needs to train at all is done: its first pods are made, and a world is started where nothing of it runs.
Nothing is ever stopped, deleted or resized, so a fault takes its course as it would without us, and where no member is
left the job is over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from outrider.master.core import actions as does
from outrider.master.core.actions import Action, Announce, Send
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.job import GATHERING, RUNNING, State
from outrider.master.core.state.member import ALIVE, SILENT
from outrider.wire.ids import MemberId
from outrider.wire.messages.checkpoints import SaveState
from outrider.wire.messages.generation import Stop
from outrider.wire.messages.membership import Finish, Refused

WOULD = "DryRun"
CLAIMS = frozenset({
    "SilentMemberDeleted", "PodForceDeleted", "FailedPodDeleted", "MemberRemoved", "OwnerScaled", "OwnerScaledByUser",
    "ResizeStarted", "ScaleDecided", "SaveRequested",
})  # fmt: skip
"""Kinds that say that something is done now. It is not: what would be is said instead."""
REMEMBERED = 500
ASK_AGAIN = 5.0


class Observed(Protocol):
    """A job of either kind."""

    spec: JobSpec
    would: dict[str, str]
    phase: str


def would(state: State, what: str, reason: str, member: MemberId | None = None) -> bool:
    """Says it where the job is only observed; False where it is to be done."""
    if state.spec.observed:
        state.announce(WOULD, sentence(what, reason), member)
        state.stirred = True
    return state.spec.observed


def sentence(what: str, reason: str) -> str:
    return f"Would {what}: {reason}"


# -- the law ------------------------------------------------------------------------------------------------------
def filtered(job: Observed, actions: list[Action]) -> list[Action]:
    """Without what touches anything. `job.would` remembers what has been said."""
    if not job.spec.observed:
        return actions
    kept: list[Action] = []
    for action in actions:
        instead = _instead(job, action)
        if not isinstance(instead, Announce) or instead.kind != WOULD:
            kept += [] if instead is None else [instead]
        elif _is_news(job, instead.reason):
            kept.append(instead)
    return kept


def _is_news(job: Observed, said: str) -> bool:
    what, _, _why = said.partition(": ")
    is_news = what not in job.would
    job.would[what] = job.would.get(what, said)
    while len(job.would) > REMEMBERED:
        del job.would[next(iter(job.would))]
    return is_news


def _instead(job: Observed, action: Action) -> Action | None:
    """What is done instead; None: nothing, and nothing is said."""
    match action:
        case Announce():
            return None if action.kind in CLAIMS else action
        case Send():
            return _instead_of_order(job, action)
        case does.DeletePod():
            return _said(f"delete the pod of {action.member}", action, action.member)
        case does.ResizeOwner() | does.FollowOwner() | does.WriteReplicas():
            return _said(f"resize to {action.replicas}", action)
        case does.HidePod():
            return None
        case _:
            return action


def _instead_of_order(job: Observed, action: Send) -> Action | None:
    match action.message:
        case Stop(generation=generation):
            return _said(f"stop generation {generation} on {action.member}", action, action.member)
        case Finish() if job.phase != "succeeded":
            return _said(f"end {action.member}", action, action.member)
        case SaveState():
            return _said(f"ask {action.member} to save", action, action.member)
        case Refused(retry_after=seconds) if seconds < 0:
            return replace(action, message=replace(action.message, retry_after=ASK_AGAIN))  # it would end for it
        case _:
            return action


def _said(what: str, action: Action, member: MemberId | None = None) -> Announce:
    return Announce(WOULD, sentence(what, action.reason), action.generation, member)


# -- what really is -----------------------------------------------------------------------------------------------
def is_busy(state: State) -> bool:
    """There was a world, and something of it may run: none is started beside it."""
    if not state.spec.observed or not state.number:
        return False
    return any(m.id not in state.ready for m in state.members.values() if m.greeted and not m.trainer_lost)


def is_world_over(state: State) -> bool:
    """Nothing of it runs any more, though nobody has stopped it."""
    world = state.world
    if not state.spec.observed or world is None or state.stage != RUNNING:
        return False
    return not any(_may_run(state, member_id) for member_id in world.places)


def _may_run(state: State, member_id: MemberId) -> bool:
    member = state.members.get(member_id)
    return member is not None and member.life in (ALIVE, SILENT) and member.ready is None and not member.trainer_lost


def forget_world(state: State) -> None:
    """Its members may start another one."""
    world = state.world
    assert world is not None
    state.phase, state.message = "restarting", "nothing of the world runs any more"
    for member in [state.members[member_id] for member_id in world.places if member_id in state.members]:
        member.stopped = max(member.stopped, world.generation)


def is_over(state: State) -> bool:
    """No member is left, and none is made anew. Another owner may make some."""
    had_a_world = state.spec.observed and state.number > 0 and state.listed and state.stage == GATHERING
    return had_a_world and not state.members and not state.spec.is_adopted
