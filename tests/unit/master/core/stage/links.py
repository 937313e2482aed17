"""Links between members: broken links, the sidecars' reports on them, and probes."""

from __future__ import annotations

from typing import Any

from outrider.wire.messages.links import LinkSeen, Probe, Probed
from tests.unit.master.core.stage.actor import LATENCY, ROUND_TRIP, Actor
from tests.unit.master.core.stage.speaking import Speaking


class Links(Speaking):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.cuts: dict[tuple[str, str], float] = {}
        """The moment since which the first of a pair cannot reach the second."""
        self.round_trips: dict[str, float] = {}
        """The round trip time of a member's links in seconds, if it is not the usual one."""

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Breaks the link between two members; with `one_way` only from the first to the second."""
        self.cuts[one, other] = self.now
        if not one_way:
            self.cuts[other, one] = self.now

    def heal(self) -> None:
        self.cuts.clear()

    def _links(self, actor: Actor) -> tuple[LinkSeen, ...]:
        """The links to its neighbours, as a real sidecar reports them now and then."""
        rows = []
        for each in actor.start.neighbours if actor.start is not None else ():
            since, target = self.cuts.get((actor.id, each.member)), self.actors[each.member]
            is_there = since is None and not target.gone and not target.frozen
            trip = max(self.round_trips.get(m, ROUND_TRIP) for m in (actor.id, each.member))
            missing = 0.0 if is_there else max(self.now - (self.now if since is None else since), 0.001)
            rows.append(LinkSeen(each.member, trip, 0, 20, missing))
        return tuple(rows)

    def _probe(self, actor: Actor, probe: Probe) -> None:
        target = self.actors.get(probe.member)
        is_cut = (actor.id, probe.member) in self.cuts
        reachable = target is not None and not target.gone and not target.frozen and not is_cut
        delay = LATENCY if reachable else probe.seconds
        self.after(delay, lambda: (self.say(actor, Probed(probe.order, probe.member, reachable)), None)[1])
