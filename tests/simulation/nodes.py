"""Nodes whose kubelets freeze: their pods run on, with nobody who starts, restarts or ends anything in them.

The platform learns of it late (NotReady), and may forget the node altogether. A pod that is deleted there stays; one
that is deleted by force is gone for the platform alone, and its processes run on until the kubelet is back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from outrider.master.core.events import NodeSeen

if TYPE_CHECKING:
    from tests.simulation.pods import Pod
    from tests.simulation.world import World

NUMBER = 3
NOT_READY_AFTER = (2.0, 40.0)
"""Seconds until the platform misses a kubelet: its node-monitor-grace-period, and luck."""
PODS_REMOVED_AFTER = (40.0, 60.0)
"""Seconds after which the pods of a deleted node are removed (podgc)."""


class Nodes:
    def __init__(self, world: World) -> None:
        self.world = world
        self._frozen_until: dict[str, float] = {}
        self._not_ready: dict[str, NodeSeen] = {}
        self._put_off: dict[str, list[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        self._made = 0

    def next(self) -> str:
        """Round about, as a scheduler spreads; a node that is known to be unwell gets none."""
        for _ in range(NUMBER):
            self._made += 1
            name = f"node-{self._made % NUMBER}"
            if name not in self._not_ready:
                break
        return name

    def is_frozen(self, name: str) -> bool:
        return self._frozen_until.get(name, 0.0) > self.world.time.now

    def not_ready(self) -> list[NodeSeen]:
        return [event for _name, event in sorted(self._not_ready.items())]

    def when_it_runs(self, name: str, do: Callable[..., None], *args: Any) -> bool:
        """True where the kubelet is frozen: then it is done when it is not."""
        if self.is_frozen(name):
            self._put_off.setdefault(name, []).append((do, args))
            return True
        return False

    def freeze(self, name: str, seconds: float, is_deleted: bool) -> None:
        if self.is_frozen(name):
            return
        time, rng = self.world.time, self.world.rng
        self._frozen_until[name] = time.now + seconds
        time.after(rng.uniform(*NOT_READY_AFTER), self._miss, name, is_deleted)
        time.after(seconds + 1e-3, self._thaw, name)

    def _miss(self, name: str, is_deleted: bool) -> None:
        if not self.is_frozen(name):
            return
        why = "its Node object was deleted" if is_deleted else "Kubelet stopped posting node status"
        event = self._not_ready[name] = NodeSeen(name, False, why, is_deleted)
        self.world.platform.tell_all(event)
        if is_deleted:
            self.world.time.after(self.world.rng.uniform(*PODS_REMOVED_AFTER), self._remove_pods, name)

    def _remove_pods(self, name: str) -> None:
        event = self._not_ready.get(name)
        if event is not None and event.is_gone:
            for pod in [p for p in self.world.platform.pods.values() if p.node == name]:
                self.world.platform.remove(pod, "its node is gone", told_after=0.05, by_force=True)

    def _thaw(self, name: str) -> None:
        if self._not_ready.pop(name, None) is not None:
            self.world.time.after(0.5, self.world.platform.tell_all, NodeSeen(name, True))
        for do, args in self._put_off.pop(name, []):
            do(*args)

    def pods(self, name: str) -> list[Pod]:
        return [pod for pod in self.world.platform.living() if pod.node == name]
