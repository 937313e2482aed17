"""Machines that are bad from the start, what their probes find, and what must hold of the node check.

A probe meets the others of its group where all of them measure the same round within the patience of the real one, run,
and reach each other. A machine is bad in one way: its probe dies, its all-gather reaches nobody, or it is five times as
slow. At most one living machine is bad at a time, and a replacement is not, so that each can be told from the others.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from outrider.sidecar.core import events as told
from outrider.wire.ids import MemberId
from outrider.wire.messages.membership import Finish
from outrider.wire.messages.node_check import Check, Checked, PeerCheck

if TYPE_CHECKING:
    from tests.simulation.masters import Master
    from tests.simulation.pods import Pod
    from tests.simulation.trainer import Trainer, Worker
    from tests.simulation.world import World

DIES, MUTE, SLOW = "dies", "mute", "slow"
BAD = 0.2
MEET, LOOK = 4.0, 0.25
COMPUTE, NETWORK, TIMES = 0.05, 0.01, 5
MEMORY = 200.0
"""Seconds: no check lasts longer, and trouble within it may be why a member failed."""


@dataclass(eq=False, slots=True)
class Probe:
    """One round in one member."""

    order: Check
    began: float
    met: set[MemberId] = field(default_factory=set)
    is_over: bool = False


class Checking:
    def __init__(self, world: World) -> None:
        self.world = world
        self._rng = random.Random(f"bad {world.seed}")
        self._last_was_bad = True
        """The very first is well, so that no job begins with nothing but a bad one."""
        self.excused: set[str] = set()
        """Members of which the master said that it could not tell, or would not act."""
        self.excluded = 0

    def draw(self) -> str:
        """What is wrong with the machine of the next pod."""
        living = self.world.platform.living() if self.world.platform is not None else []
        may_be = self.world.scenario.spec.node_check and not self._last_was_bad and not any(p.bad for p in living)
        found = self._rng.choice((DIES, MUTE, SLOW)) if may_be and self._rng.random() < BAD else ""
        self._last_was_bad = bool(found)
        return found

    # -- the probe
    def begin(self, trainer: Trainer, order: Check) -> None:
        self.interrupt(trainer)
        trainer.probe = Probe(order, self.world.time.now)
        self.world.time.after(self.world.rng.uniform(0.02, 0.3), self._look, trainer, trainer.probe)

    def interrupt(self, trainer: Trainer) -> None:
        """Worker processes are started or ended, or a newer round begins."""
        probe, trainer.probe = trainer.probe, None
        if probe is not None and not probe.is_over:
            probe.is_over = True
            self._say(trainer, Checked(probe.order.order, probe.order.round, "interrupted", "it was ended"))

    def _look(self, trainer: Trainer, probe: Probe) -> None:
        if probe.is_over or not trainer.alive:
            return
        if trainer.pod.bad == DIES:
            self._answer(trainer, probe, Checked(probe.order.order, probe.order.round, "died", "killed by SIGKILL"))
            return
        others = self._others(probe.order)
        for member in others - probe.met:
            self._meet(trainer, probe, member)
        is_late = self.world.time.now - probe.began > MEET
        if trainer.pod.trainer_paused or (others - probe.met and not is_late):
            self.world.time.after(LOOK, self._look, trainer, probe)
        else:
            self.world.time.after(self.world.rng.uniform(0.1, 1.5), self._measured, trainer, probe)

    @staticmethod
    def _others(order: Check) -> set[MemberId]:
        return {peer.member for peer in order.peers} | set(order.awaited)

    def _meet(self, trainer: Trainer, probe: Probe, member: MemberId) -> None:
        other = self.world.platform.pods.get(member)
        theirs = other.trainer.probe if other is not None and other.trainer is not None else None
        if other is None or theirs is None or theirs.is_over or theirs.order.round != probe.order.round:
            return
        own = trainer.pod
        is_cut = self.world.network.is_cut(own.member, member) or MUTE in (own.bad, other.bad)
        if not (is_cut or own.trainer_paused or other.trainer_paused):
            probe.met.add(member)
            theirs.met.add(own.member)

    def _measured(self, trainer: Trainer, probe: Probe) -> None:
        if probe.is_over or not trainer.alive:
            return
        if trainer.pod.trainer_paused:
            self.world.time.after(LOOK, self._measured, trainer, probe)
            return
        order = probe.order
        seconds = COMPUTE * (TIMES if trainer.pod.bad == SLOW else 1) if order.compute else 0.0
        peers = [PeerCheck(m, NETWORK) if m in probe.met else PeerCheck(m, 0.0, "no answer within 4 s")
                 for m in sorted(self._others(order))]  # fmt: skip
        if order.alone:
            peers.append(PeerCheck(trainer.pod.member, NETWORK))
        elapsed = self.world.time.now - probe.began
        kind = "torch cpu" if seconds else ""
        self._answer(
            trainer, probe, Checked(order.order, order.round, "ok", "", kind, seconds, seconds, elapsed, tuple(peers))
        )

    def _answer(self, trainer: Trainer, probe: Probe, answer: Checked) -> None:
        probe.is_over = True
        trainer.answer = answer
        self._say(trainer, answer)

    @staticmethod
    def _say(trainer: Trainer, answer: Checked) -> None:
        trainer.tell(told.HookSaid(answer))

    # -- laws
    def sent(self, master: Master, member: str, message: Any) -> None:
        if isinstance(message, Finish) and message.last_words:
            self._is_excluded(master, member, message.last_words)

    def deleted(self, master: Master, action: Any) -> None:
        """Of an adopted job: its controller makes another."""
        if "the node check" in action.reason:
            self._is_excluded(master, action.member, action.reason)

    def announced(self, kind: str, member: str | None) -> None:
        if kind in ("NodeCheckInconclusive", "ExclusionSkipped") and member is not None:
            self.excused.add(member)

    def _is_excluded(self, master: Master, member: str, why: str) -> None:
        pod = self.world.platform.pods.get(MemberId(member))
        if pod is None or pod.bad or master.term < self.world.masters.term:
            self.excluded += pod is not None and bool(pod.bad)
            return
        since = self.world.time.now - MEMORY
        was_in_trouble = any(who == member and until > since for who, until, _peer in self.world.troubles)
        if not was_in_trouble and pod.is_up:
            self.world.broken(f"the healthy {member} is left out by the node check: {why}")

    def forked(self, pod: Pod, workers: list[Worker]) -> None:
        is_alone = workers[0].start.group_world_size < 3  # of two, nothing tells which one is mute; one alone is not
        if pod.bad == MUTE and is_alone:
            return
        if pod.bad in (DIES, MUTE) and pod.member not in self.excused:
            self.world.broken(f"{pod.member}, whose machine is bad ({pod.bad}), trains though members are checked")
