"""The platform and the disk, which answer the core's actions."""

from __future__ import annotations

from itertools import count
from typing import Any

from outrider.master.core.actions import Action, CreatePod, DeletePod, ProbeMember, SaveStatus, Send
from outrider.master.core.events import MemberProbed, PodGone, PodSeen, StatusSaved
from outrider.wire.ids import PodUid
from tests.unit.master.core.stage.actor import LATENCY, START_SECONDS, Actor
from tests.unit.master.core.stage.sidecars import Sidecars


class Platform(Sidecars):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.saved: dict[str, object] | None = None
        """The newest saved status."""
        self.saves_status = self.creates_pods = True
        self.stuck: set[str] = set()
        """The members whose pods can only be deleted by force: their node is frozen, or they have a finalizer."""
        self.room: int | None = None
        """The number of pods for which there is room; None: all."""
        self.memory_limit = 0
        """The memory limit of each member's container, unless a higher one is requested."""
        self.nodes: dict[str, str] = {}
        """The node on which a member's pod is scheduled."""
        self._uids = count()

    def _perform(self, action: Action) -> None:
        match action:
            case Send():
                actor = self.actors.get(action.member)
                if actor is not None and actor.session == action.session and not actor.unheard:
                    self.after(LATENCY, lambda: self._obey(actor, action.message))
            case SaveStatus() if self.saves_status:
                self.saved = action.status
                self.after(LATENCY, lambda: (self.tell(StatusSaved(action.version)), None)[1])
            case CreatePod() if self.creates_pods:
                self.after(LATENCY, lambda: self.create(action))
            case DeletePod():
                self.after(0.1, lambda: self._delete(action))
            case ProbeMember():
                self.after(0.1, lambda: self._probe_directly(action))
            case _:
                pass

    def pod(self, actor: Actor) -> PodSeen:
        phase = "running" if actor.failed is None else ("failed" if actor.failed else "succeeded")
        phase = "pending" if actor.waits else phase
        return PodSeen(actor.id, actor.uid, actor.role, actor.rank_index, phase, exit_code=actor.failed,
                       node=actor.node, memory_limit=actor.memory_limit, has_another_key=actor.stranger,
                       alone_after=actor.alone_after, unschedulable=actor.waits, resources=actor.resources)  # fmt: skip

    def create(self, action: CreatePod) -> None:
        if action.member in self.actors:
            return
        uid = PodUid(f"uid-{next(self._uids)}")
        actor = Actor(action.member, uid, action.rank_index, action.role, nproc=self.spec.nproc,
                      port=30000 + 100 * len(self.actors), node=self.nodes.get(action.member, ""),
                      memory_limit=action.memory_limit or self.memory_limit, resources=action.resources,
                      bad=self.bad.get(action.member, ""))  # fmt: skip
        if self.room is not None and sum(not a.gone for a in self.actors.values()) >= self.room:
            actor.waits = True
        self.actors[actor.id] = actor
        self.tell(self.pod(actor))
        if actor.waits:
            return
        self.after(START_SECONDS - 2 * LATENCY, lambda: self.connect(actor))
        self.after(START_SECONDS + 0.5, lambda: self.report(actor))

    def _delete(self, action: DeletePod) -> None:
        actor = self.actors.get(action.member)
        is_stuck = action.member in self.stuck and action.grace > 0
        if actor is not None and not actor.gone and actor.uid == action.uid and not is_stuck:
            actor.gone = True
            self.tell(PodGone(actor.id, actor.uid, "deleted"))

    def _probe_directly(self, action: ProbeMember) -> None:
        actor = self.actors.get(action.member)
        reachable = actor is not None and not (actor.gone or actor.frozen or actor.unheard)
        self.tell(MemberProbed(action.member, reachable))
