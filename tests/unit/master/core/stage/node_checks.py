"""Node checks: members that measure each other before they train."""

from __future__ import annotations

from typing import Any

from outrider.wire.ids import MemberId
from outrider.wire.messages.node_check import Check, Checked, PeerCheck
from tests.unit.master.core.stage.actor import CHECK_SECONDS, COMPUTE_SECONDS, NETWORK_SECONDS, SLOW, Actor
from tests.unit.master.core.stage.speaking import Speaking


class NodeChecks(Speaking):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.bad: dict[str, str] = {}
        """The fault of each member's machine (`Actor.bad`)."""
        self.apart: set[str] = set()
        """The two members whose link is broken in an all-gather."""

    def _checked(self, actor: Actor, check: Check) -> None:
        others = [*(peer.member for peer in check.peers), *check.awaited]
        peers = tuple(self._gathered(actor, other) for other in others)
        result, compute = "ok", COMPUTE_SECONDS * (SLOW if actor.bad == "slow" else 1)
        if actor.bad == "dies":
            result, peers = "died", ()
        elif actor.bad == "absurd":
            compute = -1.0
        wall = SLOW * compute if actor.bad in ("crowded", "loaded") else compute
        held_up = wall - compute if actor.bad == "loaded" else 0.0
        times = (wall, compute) if check.compute and result == "ok" else (0.0, 0.0)
        error = "its process was killed by SIGKILL" if result == "died" else ""
        kind = "torch cpu" if times[0] else ""
        self.say(actor, Checked(check.order, check.round, result, error, kind, *times, CHECK_SECONDS, peers, held_up))
        if check.port:
            self.say_ready(actor)

    def _gathered(self, actor: Actor, member: MemberId) -> PeerCheck:
        other = self.actors[member]
        is_well = not ({"mute", "dies"} & {actor.bad, other.bad} or other.gone or other.frozen)
        is_well = is_well and self.apart != {actor.id, member}
        return PeerCheck(member, NETWORK_SECONDS, "") if is_well else PeerCheck(member, 0.0, "no answer within 4 s")
