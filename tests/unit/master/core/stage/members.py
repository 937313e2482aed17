"""Faults and changes that a test inflicts on members."""

from __future__ import annotations

import dataclasses

from outrider.master.core.actions import Action, CreatePod
from outrider.master.core.events import PodGone, SidecarDisconnected
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, RankIndex, Role
from outrider.wire.messages.generation import Exited, WorkerExit
from outrider.wire.messages.membership import TrainerLost
from tests.unit.master.core.ranks import Answers, waits
from tests.unit.master.core.stage.actor import LATENCY, START_SECONDS, Actor
from tests.unit.master.core.stage.platform import Platform


class Members(Platform):
    def crash(self, member: str, *, signal: int | None = 9, code: int | None = None, error: str = "", message: str = "",
              at_import: bool = False, step: int | None = None, local_rank: int = 0,
              out_of_memory: bool = False) -> list[Action]:  # fmt: skip
        """Ends one worker process with an error."""
        actor = self[member]
        made = actor.step_at(self.now) if step is None else step
        end = WorkerExit(local_rank, 5, code, None if code is not None else signal, out_of_memory, 0.0, made,
                         error, message, "train.py:7 main" if error else "", "Traceback …" if error else "",
                         at_import)  # fmt: skip
        spent = actor.spent(self.now) if local_rank == 0 else None
        return self.say(actor, Exited(actor.running, (end,), actor.nproc - 1, spent))

    def done(self, member: str) -> list[Action]:
        actor = self[member]
        actor.finished, generation = True, actor.running
        actor.running = NO_GENERATION
        ends = tuple(WorkerExit(i, 5 + i, 0) for i in range(actor.nproc))
        return self.say(actor, Exited(generation, ends, 0))

    def fail(self, member: str, exit_code: int = 137, reason: str = "the trainer's container ended", *,
             out_of_memory: bool = False, lingers: bool = False) -> list[Action]:  # fmt: skip
        """Lets a member's pod fail; the platform shows it until it is deleted."""
        actor = self[member]
        actor.running, actor.unheard, actor.failed = NO_GENERATION, True, exit_code
        shown = dataclasses.replace(self.pod(actor), reason=reason, out_of_memory=out_of_memory, lingers=lingers)
        return self.tell(shown)

    def lose(self, member: str, reason: str = "killed", exit_code: int | None = None) -> list[Action]:
        """Removes a member's pod."""
        actor = self[member]
        actor.gone = True
        return self.tell(PodGone(actor.id, actor.uid, reason, exit_code))

    def lose_trainer(self, member: str) -> None:
        """Kills a member's template, which is restarted after a while."""
        actor = self[member]
        generation, actor.running = actor.running, NO_GENERATION
        actor.has_trainer = False
        self.say(actor, TrainerLost("the template was killed by SIGKILL", generation))
        self.after(START_SECONDS, lambda: self._restart_trainer(actor))

    def _restart_trainer(self, actor: Actor) -> None:
        actor.has_trainer = True
        self.say_ready(actor)

    def hang(self, culprit: str, answers: Answers, others: Answers | None = None) -> None:
        """Stops all steps from now on, with the diagnostics of the culprit and of the others."""
        for actor in self.actors.values():
            actor.hung_at = self.now
            actor.answers = answers if actor.id == culprit else others or waits(14)

    def freeze(self, member: str) -> None:
        self[member].frozen = True

    def thaw(self, member: str) -> None:
        actor = self[member]
        actor.frozen = False
        for message in actor.inbox:
            self.after(LATENCY, lambda message=message: self._obey(actor, message))
        actor.inbox.clear()
        if not actor.session:
            self.connect(actor)
        self.report(actor)

    def reconnect(self, member: str, highest: Generation | None = None) -> None:
        """Breaks a member's connection and opens a new one."""
        actor = self[member]
        self.tell(SidecarDisconnected(actor.session))
        self.after(0.5, lambda: self.connect(actor, highest))

    def appears(self, member: str, rank_index: int) -> None:
        """Lets another controller create a pod."""
        self.create(CreatePod(MemberId(member), Role("worker"), RankIndex(rank_index), NO_GENERATION, ""))

    def comes(self, actor: Actor) -> None:
        """Adds a member whose pod another controller has created."""
        self.actors[actor.id] = actor
        self.tell(self.pod(actor))
        self.connect(actor)
