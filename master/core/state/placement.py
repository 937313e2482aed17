"""Pods and rank indexes: who has which, what was made, what has failed, what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.master.core.events import NodeSeen
from outrider.master.core.state.budgets import Budget
from outrider.master.core.state.member import Member
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role


@dataclass(slots=True)
class FailedPod:
    """A pod that failed by itself, or whose machine was taken from it; kept so that its log and spec can be read."""

    uid: PodUid
    rank_index: RankIndex | None
    taken: str = ""
    """Who took it, in the platform's words; empty where it failed by itself."""
    is_over: bool = False
    """Nothing of it runs any more."""
    deleting: bool = False


@dataclass(slots=True)
class Owner:
    """The controller that makes the pods of an adopted job (`placement.owner_scaling`)."""

    size: int | None = None
    """Pods that it wanted when it was read last."""
    asked: int | None = None
    """What it was asked for, until it has another size than before."""
    led_from: int | None = None
    """Its user has changed it, and the job, which wants so many, is to follow."""
    suspended: bool = False
    """It takes its pods and makes none until it is resumed, as a Job does that waits for its turn in a queue."""
    failures: int = 0


@dataclass(slots=True)
class Placement:
    """Pods and rank indexes: who has which, what was made, what has failed, what is refused."""

    holders: dict[RankIndex, MemberId] = field(default_factory=dict)
    """Which member has a rank index (`placement.rank_index`)."""
    past: dict[MemberId, Member] = field(default_factory=dict)
    """The newest members that are no more."""
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    """Those that are not Ready, or gone."""
    refusals: set[str] = field(default_factory=set)
    """Why the platform makes no pods, as it was told."""
    closed: str = ""
    """Why it will never make another one, if so."""
    orphans: set[MemberId] = field(default_factory=set)
    """Members whose sidecar has ended for good, to be looked at in this step."""
    held: set[RankIndex] = field(default_factory=set)
    """Rank indexes that ever had a member: another one is a relaunch."""
    told_empty: set[RankIndex] = field(default_factory=set)
    """Those of which it was said that no budget is left to fill them."""
    spares_made: int = 0
    relaunches: int = 0
    failed_relaunches: dict[int, Budget] = field(default_factory=dict)
    """By rank index, -1 for spares."""
    failures: dict[int, int] = field(default_factory=dict)
    """Failed pods by rank index, -1 for spares, however long ago."""
    failed_pods: dict[MemberId, FailedPod] = field(default_factory=dict)
    waits_behind: str = ""
    """An older job that lacks room as this one does: no members are made meanwhile (`placement.admission`)."""
    suspended: bool = False
    """No world and no members are wanted for now, by the user or by the owner of the pods."""
    suspend_wanted: bool = False
    """The user wants none."""
    owner: Owner = field(default_factory=Owner)
    next_id: dict[Role, int] = field(default_factory=dict)
    ended_well: set[MemberId] = field(default_factory=set)
    """Whose pods were seen so once."""
