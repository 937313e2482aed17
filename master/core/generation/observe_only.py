"""Observe-only jobs: the master observes everything and reports what it would do, without doing it.

The core decides as for any job. An action that would touch a pod, a process or an owner is reported as `DryRun`, once:
a stop once a generation, anything else once a member or size. Two places ensure this. Before the core notes that it has
done something, it asks `would`, so that its state stays true: a generation that was not stopped keeps running. And
`filtered` is the law at the edge of the core: no action that touches anything leaves it.

What a job needs to train at all is done: its first pods are created, and a generation is started if nothing of it runs.
Nothing is ever stopped, deleted or resized. So a fault takes the same course as without Outrider, and the job is over
when no member is left.
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
"""Event kinds that claim an action. An observe-only job takes none, so `DryRun` replaces them."""
REMEMBERED = 500
ASK_AGAIN = 5.0


class Observed(Protocol):
    """An all-reduce job or a PS job."""

    spec: JobSpec
    would: dict[str, str]
    phase: str


def would(state: State, what: str, reason: str, member: MemberId | None = None) -> bool:
    """Reports what would be done to an observe-only job; False if the job is not, so that it is done."""
    if state.spec.observed:
        state.announce(WOULD, sentence(what, reason), member)
        state.stirred = True
    return state.spec.observed


def sentence(what: str, reason: str) -> str:
    return f"Would {what}: {reason}"


# -- the law ------------------------------------------------------------------------------------------------------
def filtered(job: Observed, actions: list[Action]) -> list[Action]:
    """The actions without those that touch anything; `job.would` remembers what was reported."""
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


def _is_news(job: Observed, report: str) -> bool:
    what, _, _why = report.partition(": ")
    is_news = what not in job.would
    job.would[what] = job.would.get(what, report)
    while len(job.would) > REMEMBERED:
        del job.would[next(iter(job.would))]
    return is_news


def _instead(job: Observed, action: Action) -> Action | None:
    """The action that replaces this one; None: neither an action nor a report."""
    match action:
        case Announce():
            return None if action.kind in CLAIMS else action
        case Send():
            return _instead_of_order(job, action)
        case does.DeletePod():
            return _reported(f"delete the pod of {action.member}", action, action.member)
        case does.ResizeOwner() | does.FollowOwner() | does.WriteReplicas():
            return _reported(f"resize to {action.replicas}", action)
        case does.HidePod() | does.SaveHistory():
            return None
        case _:
            return action


def _instead_of_order(job: Observed, action: Send) -> Action | None:
    match action.message:
        case Stop(generation=generation):
            return _reported(f"stop generation {generation} on {action.member}", action, action.member)
        case Finish() if job.phase != "succeeded":
            return _reported(f"end {action.member}", action, action.member)
        case SaveState():
            return _reported(f"ask {action.member} to save", action, action.member)
        case Refused(retry_after=seconds) if seconds < 0:
            return replace(action, message=replace(action.message, retry_after=ASK_AGAIN))  # else it would end
        case _:
            return action


def _reported(what: str, action: Action, member: MemberId | None = None) -> Announce:
    return Announce(WOULD, sentence(what, action.reason), action.generation, member)


# -- the real state -----------------------------------------------------------------------------------------------
def is_busy(state: State) -> bool:
    """Whether processes of the last generation may still run: no other is started beside them."""
    if not state.spec.observed or not state.number:
        return False
    return any(m.id not in state.ready for m in state.members.values() if m.greeted and not m.trainer_lost)


def is_world_over(state: State) -> bool:
    """Whether the generation has ended by itself: nothing of it runs, though it was not stopped."""
    world = state.world
    if not state.spec.observed or world is None or state.stage != RUNNING:
        return False
    return not any(_may_run(state, member_id) for member_id in world.places)


def _may_run(state: State, member_id: MemberId) -> bool:
    member = state.members.get(member_id)
    return member is not None and member.life in (ALIVE, SILENT) and member.ready is None and not member.trainer_lost


def forget_world(state: State) -> None:
    """Forgets the ended generation, so that its members may start another one."""
    world = state.world
    assert world is not None
    state.phase, state.message = "restarting", "no process of the generation runs any more"
    for member in [state.members[member_id] for member_id in world.places if member_id in state.members]:
        member.stopped = max(member.stopped, world.generation)


def is_over(state: State) -> bool:
    """Whether no member is left and none is created again; the owner of an adopted job may create some."""
    had_a_world = state.spec.observed and state.number > 0 and state.listed and state.stage == GATHERING
    return had_a_world and not state.members and not state.spec.is_adopted
