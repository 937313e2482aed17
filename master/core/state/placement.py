"""Pods and rank indexes: who has which, what was made, what has failed, what is refused."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.events import NodeSeen
from outrider.master.core.state.budgets import Budget
from outrider.master.core.state.durability import durable, part, transient
from outrider.master.core.state.member import Member
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role


@dataclass(slots=True)
class FailedPod:
    """A pod that failed by itself, or whose machine was taken from it; kept so that its log and spec can be read."""

    uid: PodUid
    rank_index: RankIndex | None
    taken: str = ""
    """Who took it, in the platform's words; empty where it failed by itself."""
    is_over: bool = transient(False)
    """Nothing of it runs any more."""
    deleting: bool = transient(False)


@dataclass(slots=True)
class Owner:
    """The controller that makes the pods of an adopted job (`placement.owner_scaling`)."""

    size: int | None = durable(None, "owner_size")
    """Pods that it wanted when it was read last."""
    asked: int | None = transient(None)
    """What it was asked for, until it has another size than before."""
    led_from: int | None = transient(None)
    """Its user has changed it, and the job, which wants so many, is to follow."""
    suspended: bool = durable(False, "owner_suspended")
    """It takes its pods and makes none until it is resumed, as a Job does that waits for its turn in a queue."""
    failures: int = transient(0)


@dataclass(slots=True)
class Placement:
    """Pods and rank indexes: who has which, what was made, what has failed, what is refused."""

    holders: dict[RankIndex, MemberId] = transient(dict)
    """Which member has a rank index (`placement.rank_index`)."""
    past: dict[MemberId, Member] = transient(dict)
    """The newest members that are no more."""
    nodes: dict[str, NodeSeen] = transient(dict)
    """Those that are not Ready, or gone."""
    refusals: set[str] = transient(set)
    """Why the platform makes no pods, as it was told."""
    closed: str = transient("")
    """Why it will never make another one, if so."""
    orphans: set[MemberId] = transient(set)
    """Members whose sidecar has ended for good, to be looked at in this step."""
    held: set[RankIndex] = durable(set)
    """Rank indexes that ever had a member: another one is a relaunch."""
    told_empty: set[RankIndex] = transient(set)
    """Those of which it was said that no budget is left to fill them."""
    spares_made: int = durable(0)
    relaunches: int = durable(0)
    failed_relaunches: dict[int, Budget] = durable(dict)
    """By rank index, -1 for spares."""
    failures: dict[int, int] = durable(dict)
    """Failed pods by rank index, -1 for spares, however long ago."""
    failed_pods: dict[MemberId, FailedPod] = durable(dict)
    waits_behind: str = transient("")
    """An older job that lacks room as this one does: no members are made meanwhile (`placement.admission`)."""
    suspended: bool = transient(False)
    """No world and no members are wanted for now, by the user or by the owner of the pods."""
    suspend_wanted: bool = transient(False)
    """The user wants none."""
    owner: Owner = part(Owner)
    next_id: dict[Role, int] = durable(dict, outlives_end=True)
    ended_well: set[MemberId] = transient(set)
    """Whose pods were seen so once."""

    def forget_losses(self) -> None:
        """Pods that were given back are made again as the first ones were; by the next master too."""
        self.held.clear()
        self.spares_made = 0
