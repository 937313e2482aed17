"""Who is cut off in truth, seen from outside, and what such a member may and must do.

A member that the network cuts off from every master and from all the neighbours that it was told of stops its worker
processes within a bound; one that reaches a master or one of them never stops for want of them. Its own pauses count
neither way: they start the time anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.pods import Pod, Sidecar
    from tests.simulation.world import World

EVERY = 0.25
STOPPED_WITHIN = 1.0
"""Beyond silent_after: a last sign just before the cut, the pause between two looks, and one of ours."""
FELT_WITHIN = 1.0
"""Who is within reach for so long has been found."""
MET_WITHIN = 6.5
"""So has at the latest a neighbour that is there when the processes start, or later."""


class Isolation:
    def __init__(self, world: World) -> None:
        self.world = world
        self.stops = 0
        """Members that had to stop, and did."""
        self._cut_since: dict[Sidecar, float] = {}
        self._reached_since: dict[Sidecar, float] = {}
        self._near_since: dict[Sidecar, float] = {}
        self._met: set[Sidecar] = set()
        world.time.after(EVERY, self._watch)

    def _watch(self) -> None:
        for pod in self.world.platform.living():
            if pod.sidecar is not None and pod.sidecar.alive:
                self._look(pod, pod.sidecar)
        self.world.time.after(EVERY, self._watch)

    def _look(self, pod: Pod, sidecar: Sidecar) -> None:
        now, trains = self.world.time.now, _trains(pod, sidecar)
        is_near = any(self.world.platform.answers(each.address, pod.member) for each in sidecar.neighbours)
        _note(self._reached_since, sidecar, is_near or self._hears_a_master(sidecar), now)
        _note(self._near_since, sidecar, is_near and trains, now)
        if now - self._near_since.get(sidecar, now) > MET_WITHIN:
            self._met.add(sidecar)
        _note(self._cut_since, sidecar, trains and sidecar in self._met and self._is_cut_off(pod, sidecar), now)
        since = max(self._cut_since.get(sidecar, now), sidecar.stalled_at)
        if now - since > self.world.scenario.spec.silent_after + STOPPED_WITHIN:
            self.world.broken(f"{pod.member} is cut off for {now - since:.1f} s and trains on")

    def told(self, sidecar: Sidecar, neighbours: tuple[object, ...]) -> None:
        """Other neighbours than before have yet to be met; so have those that stay, which may not be who was."""
        if set(neighbours) != set(sidecar.neighbours):
            self._met.discard(sidecar)
            self._near_since.pop(sidecar, None)
        sidecar.neighbours = neighbours

    def stopped(self, pod: Pod, sidecar: Sidecar) -> None:
        """It says that it is cut off."""
        self.stops += 1
        now = self.world.time.now
        reached = now - self._reached_since.get(sidecar, now)
        if reached > FELT_WITHIN:
            self.world.broken(f"{pod.member} stops for want of company, which it has had for {reached:.1f} s")

    def _is_cut_off(self, pod: Pod, sidecar: Sidecar) -> bool:
        is_cut = self.world.network.is_cut
        others = [each.member for each in sidecar.neighbours]
        others += [master.host for master in self.world.masters.all if master.alive]
        return bool(sidecar.neighbours) and all(is_cut(pod.member, other) for other in others)

    def _hears_a_master(self, sidecar: Sidecar) -> bool:
        link = sidecar.link
        if link is None or not link.up or link.forgotten or link.is_held:
            return False
        return link.master.alive and link.master.paused_at is None


def _trains(pod: Pod, sidecar: Sidecar) -> bool:
    """It has worker processes that were not told to stop, and all that is needed to stop them."""
    trainer = pod.trainer
    if trainer is None or not trainer.alive or not trainer.connection or pod.trainer_paused:
        return False
    is_up = sidecar.paused_at is None and not pod.deleting and not sidecar.is_ending
    return is_up and any(worker.alive and not worker.stopping for worker in trainer.workers.values())


def _note(since: dict[Sidecar, float], sidecar: Sidecar, holds: bool, now: float) -> None:
    if holds:
        since.setdefault(sidecar, now)
    else:
        since.pop(sidecar, None)
