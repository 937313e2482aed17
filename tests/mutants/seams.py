"""Where bugs are planted: public functions and tables of the real cores, and the events and actions at their edges.

SEAMS is the one place that names modules: where one of these moves or is called otherwise, its row is changed and
nothing else. What a bug does at an edge (`hears`, `wants`) needs no name of the inside at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, NamedTuple

SEAMS = {
    "master step": "outrider.master.core.step:step",
    "master events": "outrider.master.core.handlers.events:HANDLERS",
    "master deadlines": "outrider.master.core.handlers.deadlines:DEADLINES",
    "ps events": "outrider.master.core.ps.step:HANDLERS",
    "sidecar step": "outrider.sidecar.core.step:step",
    "acknowledge an order": "outrider.master.core.generation.orders:acknowledge",
    "places of a world": "outrider.master.core.generation.layout:places",
    "begin a recovery": "outrider.master.core.faults.recovery:begin",
    "consider another size": "outrider.master.core.scaling.resize:consider",
    "is worth waiting for": "outrider.master.core.generation.readiness:is_worth_waiting_for",
    "memory that a place needs": "outrider.master.core.faults.oom:needed",
    "take over a pod": "outrider.master.core.placement.replicas:adopt",
    "what has how much time": "outrider.master.core.hangs.limits:ruling",
    "least rounds of a check": "outrider.master.core.nodecheck.rounds:ROUNDS",
    "findings of a check": "outrider.master.core.nodecheck.pairing:findings",
    "slow: times the others": "outrider.master.core.state.stragglers:TIMES_THE_OTHERS",
    "slow: stands out": "outrider.master.core.stragglers.detector:STANDS_OUT",
    "cut links": "outrider.master.core.network.link_health:cuts",
    "part two members": "outrider.master.core.network.partition:resolve",
    "a start waits for copies": "outrider.master.core.checkpoints.restore:waits",
    "what all have of the marked path": "outrider.master.core.checkpoints.restore_plan:begun_from",
    "who of the saved world is there": "outrider.master.core.membership.past_lease:all_of",
    "number is reserved": "outrider.master.core.membership.past_lease:is_reserved",
    "move a parameter server": "outrider.master.core.ps.ps_migration:advance",
    "why a start is refused": "outrider.sidecar.core.supervision:why_not",
    "a neighbour was probed": "outrider.sidecar.core.peer_health:probed",
    "is cut off": "outrider.sidecar.core.peer_health:is_cut_off",
    "a master has spoken": "outrider.sidecar.core.unsupervised:master_spoke",
}
Step = Callable[[Any, Any, float], list[Any]]


class Swap(NamedTuple):
    where: Any
    """A module, or a table."""
    name: Any
    value: Any

    def kept(self) -> Swap:
        """What is there now."""
        is_table = isinstance(self.where, dict)
        return Swap(self.where, self.name, self.where[self.name] if is_table else getattr(self.where, self.name))

    def put(self) -> None:
        if isinstance(self.where, dict):
            self.where[self.name] = self.value
        else:
            setattr(self.where, self.name, self.value)


def real(seam: str) -> Any:
    module, name = SEAMS[seam].split(":")
    return getattr(import_module(module), name)


def swap(seam: str, value: Any) -> Swap:
    """Another one in its place."""
    module, name = SEAMS[seam].split(":")
    return Swap(import_module(module), name, value)


def row(seam: str, key: Any, value: Any) -> Swap:
    """Of a table."""
    table = real(seam)
    assert key in table, key
    return Swap(table, key, value)


def hears(seam: str, change: Callable[[Any], Any]) -> Swap:
    """A core is told something else than what happened; None: nothing."""
    step: Step = real(seam)

    def changed(state: Any, event: Any, now: float) -> list[Any]:
        heard = change(event)
        return [] if heard is None else step(state, heard, now)

    return swap(seam, changed)


def wants(seam: str, change: Callable[[Any], Any]) -> Swap:
    """Another action is done than the one that a core wants; None: none."""
    step: Step = real(seam)

    def changed(state: Any, event: Any, now: float) -> list[Any]:
        return [done for action in step(state, event, now) if (done := change(action)) is not None]

    return swap(seam, changed)


def is_followed_by(seam: str, further: Callable[[Any, list[Any]], Iterable[Any]]) -> Swap:
    """After an event, with the actions that it led to, a core is told more."""
    step: Step = real(seam)

    def changed(state: Any, event: Any, now: float) -> list[Any]:
        actions = step(state, event, now)
        for more in further(event, list(actions)):
            actions = [*actions, *step(state, more, now)]
        return actions

    return swap(seam, changed)
