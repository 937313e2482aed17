"""Checkpoints: saved by scripts, requested, kept in members' memories, and sent from there."""

from __future__ import annotations

import dataclasses

from outrider.master.core.actions import Action
from outrider.wire.ids import NO_GENERATION
from outrider.wire.messages.checkpoints import (
    Copy,
    Fetch,
    Fetched,
    Remembered,
    Saved,
    SaveState,
    StateOffered,
    StateSaved,
)
from tests.unit.master.core.stage.actor import Actor
from tests.unit.master.core.stage.speaking import Speaking


class Checkpoints(Speaking):
    def save(self, member: str, path: str = "/data/ckpt.pt") -> list[Action]:
        actor = self[member]
        step = actor.step_at(self.now)
        return self.say(actor, Saved(actor.running, path, step, prints=(f"9-{step}",)))

    def offer(self, member: str, *, saves_in: float = 0.5, error: str = "") -> None:
        """Lets the member's script offer to save its state."""
        actor = self[member]
        actor.saves_in, actor.save_error, actor.offers = saves_in, error, True
        self.say(actor, StateOffered(actor.running, ("model", "optimizer")))

    def remember(self, step: int, *members: str, sharded: bool = False) -> None:
        """Puts a copy of this step into the memory of these members' ranks, else of all."""
        for member in members or tuple(self.world):
            actor = self[member]
            assert actor.start is not None
            for rank in range(actor.start.first_rank, actor.start.first_rank + (actor.nproc if sharded else 1)):
                copy = Copy(rank, step, sharded, actor.start.world_size, actor.running, 1000)
                actor.copies = (*actor.copies, copy)[-2 * actor.nproc :]
                self.say(actor, Remembered(actor.running, rank, step, 1000, sharded))

    def remember_marked(self, number: int, counted: int = 0) -> None:
        """Lets rank 0 save to the checkpoint path."""
        actor = self[next(iter(self.world))]
        assert actor.start is not None
        copy = Copy(0, number, False, actor.start.world_size, actor.running, 1000, marked=True)
        actor.copies = (*actor.copies, copy)[-2:]
        self.say(actor, Remembered(actor.running, 0, number, 1000, False, True, counted))

    def _fetched(self, actor: Actor, order: Fetch) -> None:
        """Answers an order to fetch replicas, with an error if one is missing."""
        error = actor.fetch_error
        for wanted in order.wanted:
            source = self[wanted.member]
            found = [c for c in source.copies if c.step == order.step and (not order.sharded or c.rank == wanted.rank)]
            if source.gone or not found:
                error = error or f"from {wanted.member}: there is no whole copy of step {order.step} any more"
            elif not error:
                actor.copies = (*actor.copies, dataclasses.replace(found[0], held=wanted.held))
                if not wanted.held and actor.running == NO_GENERATION:
                    self.say_ready(actor, again=True)
        self.say(actor, Fetched(order.order, order.generation, order.step, 0.5, error))

    def _asked_by_signal(self, actor: Actor, order: SaveState) -> None:
        if actor.running == order.generation:
            self.say(actor, Saved(order.generation, "/data/ckpt.pt", actor.step_at(self.now), order.order))

    def _saved(self, actor: Actor, order: SaveState) -> None:
        if actor.running != order.generation:
            return
        made, path = actor.step_at(self.now), "/data/state-1-1.pth"
        if actor.save_error:
            self.say(actor, StateSaved(order.order, order.generation, error=actor.save_error))
            return
        actor.hung_at = self.now if order.last else None
        self.say(actor, Saved(order.generation, path, made))
        self.say(actor, StateSaved(order.order, order.generation, made, path, 0.5))
