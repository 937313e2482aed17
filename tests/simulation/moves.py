"""Scripts that save their state when they are asked to: at once, late, with an error, or never.

Chance here is of its own, so that the jobs whose scripts offer nothing are as they were.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from outrider.sidecar.core import events as told
from outrider.sidecar.core.actions import SaveWorkersState
from outrider.wire.ids import NO_GENERATION, OrderId
from outrider.wire.messages.checkpoints import Saved, StateOffered, StateSaved

if TYPE_CHECKING:
    from tests.simulation.trainer import Trainer, Worker

OFFERED = 0.25
"""Jobs whose script does."""
HOLD = 5.0
"""Seconds that no step is made behind a state that was to be the last."""


class Mover:
    """Of one template: what its rank 0 has offered, and what became of the last order."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.world = trainer, trainer.world
        seed = self.world.seed
        self.offers = random.Random(f"moves {seed}").random() < OFFERED
        self.rng = random.Random(f"moves {seed} {trainer.pid}")
        self.of = NO_GENERATION
        self.asked: int | None = None
        self.answer: StateSaved | None = None

    def joined(self, worker: Worker) -> None:
        """The script's top level has run."""
        if self.offers and worker.rank == 0:
            self.of, self.asked, self.answer = worker.start.generation, None, None
            self.say_again()

    def say_again(self) -> None:
        if self.of != NO_GENERATION and self.of == self.trainer.running:
            self.trainer.tell(told.HookSaid(StateOffered(self.of, ("model",))))

    def save(self, order: SaveWorkersState) -> None:
        if order.signal:
            self._handle(order)
            return
        if order.order == self.asked:
            if self.answer is not None:
                self.trainer.tell(told.HookSaid(self.answer))
            return
        self.asked, self.answer = order.order, None
        chance = self.rng.random()
        if chance < 0.1:
            return  # it never comes to the end of a step
        seconds = self.rng.uniform(0.05, 3.0) if chance < 0.8 else self.rng.uniform(3.0, 40.0)
        self.world.time.after(seconds, self._saved, order, 0.8 < chance < 0.9)

    def _handle(self, order: SaveWorkersState) -> None:
        """All ranks are sent a signal, once; whose handler is rank 0's saves, or does not."""
        if order.order != self.asked:
            self.asked, chance = order.order, self.rng.random()
            is_deaf = chance < 0.1 or not self.trainer.workers
            self.answer = StateSaved(OrderId(order.order), order.generation, error="no handler" if is_deaf else "")
            if chance > 0.2 and any(worker.rank == 0 for worker in self.trainer.workers.values()):
                self.world.time.after(self.rng.uniform(0.05, 3.0), self._handled, order)
        if self.answer is not None:
            self.trainer.tell(told.HookSaid(self.answer))

    def _handled(self, order: SaveWorkersState) -> None:
        worker = next((w for w in self.trainer.workers.values() if w.rank == 0), None)
        is_there = worker is not None and worker.alive and not worker.stopping and not worker.hangs
        if worker is None or not is_there or worker.start.generation != order.generation or not self.trainer.alive:
            return
        step = worker.run.step()
        if step > worker.run.base and not self.trainer.pod.trainer_paused:
            self.world.checkpoint = max(self.world.checkpoint, step)
            self.trainer.tell(told.HookSaid(Saved(order.generation, "/ckpt/asked.pt", step, OrderId(order.order))))

    def _saved(self, order: SaveWorkersState, fails: bool) -> None:
        worker = next((w for w in self.trainer.workers.values() if w.rank == 0), None)
        is_there = worker is not None and worker.alive and not worker.stopping and not worker.hangs
        if worker is None or not is_there or worker.start.generation != order.generation or not self.trainer.alive:
            return
        if self.trainer.pod.trainer_paused:
            self.world.time.after(1.0, self._saved, order, fails)
            return
        step = worker.run.step()
        if fails or step <= worker.run.base:
            self._tell(StateSaved(OrderId(order.order), order.generation, error="TypeError: it cannot be pickled"))
            return
        self.world.checkpoint = max(self.world.checkpoint, step)
        path = f"/moves/state-{step}-1.pth"
        self.trainer.tell(told.HookSaid(Saved(order.generation, path, step)))
        if order.last:
            worker.run.hold(HOLD)
        self._tell(StateSaved(OrderId(order.order), order.generation, step, path, 0.1))

    def _tell(self, answer: StateSaved) -> None:
        self.answer = answer
        self.trainer.tell(told.HookSaid(answer))
