"""Sidecars that carry out orders and report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outrider.wire.ids import NO_GENERATION
from outrider.wire.messages.checkpoints import Fetch, Kept, SaveState, StateSaved
from outrider.wire.messages.diagnostics import Answer, Ask
from outrider.wire.messages.directions import FromMaster
from outrider.wire.messages.generation import Acknowledged, Start, Started, Stepped, Stop, Stopped
from outrider.wire.messages.links import Probe
from outrider.wire.messages.membership import Finish
from outrider.wire.messages.node_check import Check
from outrider.wire.messages.report import RankProgress, Report
from tests.unit.master.core.ranks import body
from tests.unit.master.core.stage.actor import CHECK_SECONDS, STEP_SECONDS, Actor
from tests.unit.master.core.stage.checkpoints import Checkpoints
from tests.unit.master.core.stage.links import Links
from tests.unit.master.core.stage.node_checks import NodeChecks


class Sidecars(Links, Checkpoints, NodeChecks):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.pace: Callable[[int], float] = lambda world: STEP_SECONDS
        """The seconds of a step, by the number of members."""
        self.batch = 0
        """The samples in a rank's step; 0: they are not counted."""
        self.steps_beyond = True
        """Whether ranks report by themselves that they are past the highest step."""

    def report(self, actor: Actor) -> None:
        if actor.gone or self.is_ended:
            return
        made = actor.step_at(self.now)
        phase = actor.phase or ("step" if made > actor.base else "init")
        known = actor.step_seconds if made > actor.base + 1 else 0.0
        age = max(0.0, self.now - actor.started_at - (made - actor.base) * actor.step_seconds)
        age = age if actor.step_seconds != STEP_SECONDS else 0.0
        age = age if actor.hung_at is None else self.now - actor.hung_at
        ranks = (
            (RankProgress(0, made, age, phase, known, made * self.batch, actor.is_stuck, actor.base),)
            if actor.has_pages
            else ()
        )
        running = actor.running != NO_GENERATION
        said = "running" if running else ("done" if actor.finished else "ready")
        links = self._links(actor) if running else ()
        made = made if actor.has_pages else 0
        self.say(actor, Report(actor.running, said, made, STEP_SECONDS if made else 0.0,
                               ranks=ranks if running else (), links=links,
                               spent=actor.spent(self.now) if ranks and running else None))  # fmt: skip
        self.after(1.0, lambda: self.report(actor))

    def _obey(self, actor: Actor, message: FromMaster) -> None:
        if actor.gone:
            return
        if actor.frozen:
            actor.inbox.append(message)
            return
        match message:
            case Start():
                self._start(actor, message)
            case Stop():
                self._stop(actor, message)
            case Finish():
                self.say(actor, Acknowledged(message.order))
                if message.exit_code and not self.is_over:
                    self.after(0.1, lambda: (self.fail(actor.id, message.exit_code), None)[1])
            case Probe():
                self._probe(actor, message)
            case Ask():
                rank = actor.start.first_rank if actor.start is not None else 0
                rows = (
                    []
                    if actor.answers is None or actor.hung_at is None
                    else [actor.answers.row(rank, 0, message.what, self.now - actor.hung_at)]
                )
                self.say(actor, Answer(message.order, body(rows)))
            case SaveState(order, generation, signal=signal) if signal:
                deaf = "" if actor.handles_signal else f"local rank 0 has no handler for {signal} (yet)"
                self.say(actor, StateSaved(order, generation, error=deaf))
                if actor.saves_in is not None and not deaf:
                    self.after(actor.saves_in, lambda: self._asked_by_signal(actor, message))
            case SaveState() if actor.saves_in is not None and actor.running == message.generation:
                self.after(actor.saves_in, lambda: self._saved(actor, message))
            case Check() if actor.answers_checks and message not in actor.checks:
                actor.checks.append(message)
                self.after(CHECK_SECONDS, lambda: self._checked(actor, message))
            case Kept(step=step):
                actor.kept = step
            case Fetch() if actor.fetches_in is not None:
                self.after(actor.fetches_in, lambda: self._fetched(actor, message))
            case _:
                pass

    def _start(self, actor: Actor, start: Start) -> None:
        if start.generation < actor.highest:
            return
        assert actor.running in (NO_GENERATION, start.generation), "the old workers live"
        if actor.running == NO_GENERATION:
            actor.running = actor.highest = start.generation
            actor.isolated = ""
            actor.start, actor.started_at, actor.step_seconds = start, self.now, self.pace(start.world_size)
            actor.hung_at, actor.phase, actor.answers = None, "", None
            if any(one in self.world and other in self.world for one, other in self.cuts):
                actor.hung_at = self.now  # the collectives of its first step do not come through
            actor.base = max((made for _path, made in start.saves), default=0)
            if start.high_step:
                missing = start.high_step + 1 - actor.base
                self.after(missing * actor.step_seconds, lambda: self._beyond(actor, start))
        self.say(actor, Started(start.order, start.generation, (5,) * actor.nproc))

    def _beyond(self, actor: Actor, start: Start) -> None:
        if actor.running == start.generation and actor.hung_at is None and self.steps_beyond:
            spent = actor.spent(self.now)
            self.say(actor, Stepped(start.generation, start.high_step + 1, 0.0, actor.base, spent))

    def _stop(self, actor: Actor, stop: Stop) -> None:
        if actor.stubborn:
            return
        made, spent = actor.step_at(self.now), actor.spent(self.now) if actor.has_pages else None
        if actor.running <= stop.generation:
            actor.running = NO_GENERATION
        actor.highest = max(actor.highest, stop.generation)
        actor.stopped = max(actor.stopped, stop.generation)
        actor.finished = False
        age = 0.05 if actor.hung_at is None else self.now - actor.hung_at
        self.say(actor, Stopped(stop.order, stop.generation, made, age, spent=spent))
        self.say_ready(actor)

    def step(self) -> int:
        return max((a.step_at(self.now) for a in self.actors.values()), default=0)
