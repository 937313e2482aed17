"""The state of pods and rank indexes: assignments, created and failed pods, and refusals."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.events import NodeSeen
from outrider.master.core.state.budgets import Budget
from outrider.master.core.state.durability import durable, part, transient
from outrider.master.core.state.member import Member
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role


@dataclass(slots=True)
class FailedPod:
    """A pod that failed or was evicted, kept so that its log and spec can be read."""

    uid: PodUid
    rank_index: RankIndex | None
    taken: str = ""
    """The platform's reason for evicting it; empty if it failed by itself."""
    is_over: bool = transient(False)
    """Whether none of its processes runs any more."""
    deleting: bool = transient(False)


@dataclass(slots=True)
class Owner:
    """The controller that creates the pods of an adopted job (`placement.owner_scaling`)."""

    size: int | None = durable(None, "owner_size")
    """The number of pods in its spec when it was last read."""
    asked: int | None = transient(None)
    """The size to which the master has scaled it, until its size changes; else None."""
    led_from: int | None = transient(None)
    """The job's size when the user scaled the owner, until the job follows; else None."""
    suspended: bool = durable(False, "owner_suspended")
    """Whether it is suspended: it deletes its pods and creates none, as a queued Job does."""
    failures: int = transient(0)


@dataclass(slots=True)
class Placement:
    """The state of pods and rank indexes: assignments, created and failed pods, and refusals."""

    holders: dict[RankIndex, MemberId] = transient(dict)
    """The member of each assigned rank index (`placement.rank_index`)."""
    past: dict[MemberId, Member] = transient(dict)
    """The newest members that are gone."""
    nodes: dict[str, NodeSeen] = transient(dict)
    """The nodes that are not Ready or gone."""
    refusals: set[str] = transient(set)
    """The reported reasons for which the platform creates no pods."""
    closed: str = transient("")
    """Why the platform will never create another pod; empty if it may."""
    orphans: set[MemberId] = transient(set)
    """The members whose sidecar has ended for good, to be handled in this step."""
    held: set[RankIndex] = durable(set)
    """The rank indexes that ever had a member; another member for one is a relaunch."""
    told_empty: set[RankIndex] = transient(set)
    """The vacant rank indexes for which an exhausted budget was reported."""
    spares_made: int = durable(0)
    relaunches: int = durable(0)
    failed_relaunches: dict[int, Budget] = durable(dict)
    """The budget of relaunches after failed pods, by rank index, -1 for spares."""
    failures: dict[int, int] = durable(dict)
    """The number of all failed pods, by rank index, -1 for spares."""
    failed_pods: dict[MemberId, FailedPod] = durable(dict)
    waits_behind: str = transient("")
    """The older job behind which this one is queued, so that no members are created (`placement.admission`)."""
    suspended: bool = transient(False)
    """Whether the job is suspended, by the user or by the owner of the pods."""
    suspend_wanted: bool = transient(False)
    """Whether the user has suspended the job."""
    owner: Owner = part(Owner)
    next_id: dict[Role, int] = durable(dict, outlives_end=True)
    ended_well: set[MemberId] = transient(set)
    """The members whose pods were seen to succeed."""

    def forget_losses(self) -> None:
        """Lets this and the next master create pods that were given back as if they were the first ones."""
        self.held.clear()
        self.spares_made = 0
