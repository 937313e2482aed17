"""Which two cannot see each other in truth, seen from outside, and what may and must be done about it.

The laws: a pair that is named is cut; nobody is replaced for a link that is not; and where two members of a world
cannot see each other, while the master hears both and a third finds each of them, the job neither waits for ever nor
begins again with both.

In every third seed two members are cut from each other for long, beside all the other faults.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

from outrider.master.core.hangs.detector import KIND as HUNG

if TYPE_CHECKING:
    from outrider.master.core.actions import Announce
    from tests.simulation.masters import Master
    from tests.simulation.pods import Pod
    from tests.simulation.world import World

EVERY = 0.5
LATELY = 6.0
"""Seconds after its end in which a cut may still be taken for one."""
DECIDED_WITHIN = 20.0
"""Beyond the longest limit of a phase: to look, to ask the ranks, to be sure."""
CUT = re.compile("cannot (?:reach|see) each other")
"""The words of this release, and of the one before."""
OFTEN, LONG = 0.33, (40.0, 120.0)


class Links:
    def __init__(self, world: World) -> None:
        self.world = world
        self.named = self.parted = 0
        self._decided: set[tuple[str, str]] = set()
        self._since: dict[tuple[str, tuple[str, str]], float] = {}
        """By world too: the beginning of each has a limit of its own."""
        world.time.after(EVERY, self._watch)
        self._rng = random.Random(f"links {world.seed}")
        if self._rng.random() < OFTEN:
            world.time.after(self._rng.uniform(5.0, 40.0), self._cut_two)

    def _cut_two(self) -> None:
        pods = self.world.platform.living()
        if len(pods) > 1 and not self.world.faults.over:
            self.world.faults.cut(*self._rng.sample(pods, 2), self._rng.uniform(*LONG))

    def announced(self, master: Master, action: Announce) -> None:
        if action.kind == "LinkDown" and CUT.search(action.reason) and self.world.masters.term == master.term:
            self.named += 1
            first, second = (dict(action.detail)[key] for key in ("first", "second"))
            if not self._was_cut(first, second):
                self.world.broken(f"{first} and {second}, which see each other, are said not to: {action.reason}")

        if action.kind == HUNG and CUT.search(action.reason) and self._waits_for(master):
            self.world.broken(
                f"a world begins again on a link that is cut, though one of the two may go: {action.reason}"
            )

    def is_cause(self, member: str, reason: str) -> bool:
        """It is deleted because it and another one cannot see each other, and that is so; or was, when it was first
        to be deleted: what was decided and told is done, however long the API server refuses it."""
        if not CUT.search(reason):
            return False
        if (member, reason) not in self._decided:
            self.parted += 1
            others = [pod.member for pod in self.world.platform.pods.values() if pod.member != member]
            if not any(self._was_cut(member, other) for other in others):
                return False
            self._decided.add((member, reason))
        return True

    def _was_cut(self, one: str, other: str) -> bool:
        return self.world.network.cut_until(one, other) > self.world.time.now - LATELY

    def _watch(self) -> None:
        self.world.time.after(EVERY, self._watch)
        master, now = self.world.masters.current, self.world.time.now
        if master is None or master.paused_at is not None:
            self._since.clear()
            return
        waiting = self._waits_for(master)
        if waiting is not None:
            world = str(master.generation())
            self._since = {(world, pair): self._since.get((world, pair), now) for pair in waiting}
        limits = master.step_limits()
        for (_world, (one, other)), since in self._since.items():
            if now - since > max(limits) + DECIDED_WITHIN:
                self.world.broken(f"{one} and {other} cannot see each other for {now - since:.0f} s, and the job waits")

    def _waits_for(self, master: Master) -> list[tuple[str, str]] | None:
        """Pairs of its world that it can and may do something about; None between two worlds."""
        places = master.places()
        if not places or master.is_over:
            return None if master.is_gathering else []
        if not self.world.platform.takes_requests(master.host):
            return []
        pods = [pod for pod in self.world.platform.living() if pod.member in places]
        pairs = [(a, b) for i, a in enumerate(pods) for b in pods[:i] if self.world.network.is_cut(a.member, b.member)]
        if len(pairs) != 1 or len(pods) < 3 or len(pods) != len(places):
            return []
        a, b = pairs[0]
        if not all(self._is_well(pod, master) for pod in pods) or not (
            master.may_replace(a.member) or master.may_replace(b.member)
        ):
            return []
        return [(str(a.member), str(b.member))]

    def _is_well(self, pod: Pod, master: Master) -> bool:
        link = pod.sidecar.link if pod.sidecar is not None else None
        trainer = pod.trainer
        if trainer is None or not trainer.alive or any(worker.hangs for worker in trainer.workers.values()):
            return False
        is_heard = link is not None and link.master is master and not link.is_held and not link.forgotten
        return pod.is_up and is_heard and not (pod.trainer_paused or pod.deleting)
