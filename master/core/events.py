"""What can happen to a job, as the master's core sees it: past tense, frozen, no behaviour.

Shells only carry: a message from a sidecar is one event whatever it says, a change of a pod another.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.actions import Action, CreatePod
from outrider.master.core.spec import JobSpec
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.directions import FromSidecar


@dataclass(frozen=True, slots=True)
class Began:
    """The master process holds the lease. First event of every run; `saved` is the status that an earlier master
    left (`JobStatus` as a dict), None for a new job."""

    term: int
    spec: JobSpec
    saved: dict[str, object] | None = None
    unix_time: float = 0.0
    """The wall clock at this moment: what users read is told in its time, everything else in the core's `now`."""
    is_left: bool = False
    """It was deleted, and with it what an earlier master has saved: what runs is known from its members alone."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The API server does not take this master's renewals. It may still be the only one."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaseRegained:
    """It holds the Lease again, and nobody else has held it meanwhile."""


@dataclass(frozen=True, slots=True)
class SidecarSaid:
    """A message came over an authenticated connection. `session` names the connection, never reused."""

    session: str
    message: FromSidecar


@dataclass(frozen=True, slots=True)
class SidecarDisconnected:
    """The connection broke: a witness, never a verdict."""

    session: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The platform shows a pod in this state."""

    member: MemberId
    uid: PodUid
    role: Role
    rank_index: RankIndex | None
    phase: str
    """pending, running, terminating, succeeded or failed."""
    reason: str = ""
    unschedulable: bool = False
    exit_code: int | None = None
    node: str = ""
    cannot_start: bool = False
    """A container waits for what does not come by itself (an image, a config map): `reason` says which, and why. The
    kubelet goes on trying."""
    grace: float | None = None
    """Terminating: the seconds that whoever deletes it gives. None where the platform does not say."""
    ends_at: float | None = None
    """Terminating: the moment (unix time) at which they have run out."""
    has_controller: bool = True
    """Somebody makes another one when it is deleted."""
    memory_limit: int = 0
    """Bytes that its trainer's container may use; 0 where it has no limit, or the platform knows none."""
    out_of_memory: bool = False
    """The kernel ended the trainer's container for want of memory."""
    lingers: bool = False
    """It has failed, and something in it still runs, or will again: it holds what it has."""
    sidecar_ended: str = ""
    """How its sidecar ended (`ended with exit code 137`), where the platform does not start it again."""
    has_ended: bool = False
    """Terminating: its kubelet says that all of its containers have ended, and no finalizer holds it."""
    has_another_key: bool = False
    """Its sidecar was given the key of another master than this one: it can never be heard here
    (`membership.key_mismatch`)."""
    resources: str = ""
    """What it was made with, where that is watched (`CreatePod.resources`)."""
    has_sidecar: bool = True
    """False: its trainer runs as without us, and it can never be heard (`unreached`)."""
    alone_after: float = 0.0
    """Seconds after which its command begins by itself if its sidecar hears no master; 0: never (`unreached`)."""


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The platform shows a node on which members run, or ran until now, in this state."""

    node: str
    is_ready: bool
    reason: str = ""
    """Why it is not, in the platform's words."""
    is_gone: bool = False
    """The cluster knows it no more: nothing will tell what became of the pods there."""
    conditions: tuple[tuple[str, str], ...] = ()
    """Type and status of those that are not every node's."""
    taints: tuple[str, ...] = ()
    """Their keys."""


@dataclass(frozen=True, slots=True)
class CreateRejected:
    """The platform will not make this pod as things are (a quota, a policy): asked again at once it would say so again.
    `is_final`: it never will (the namespace is being deleted)."""

    action: CreatePod
    reason: str
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod is no longer there: killed, deleted, or its machine is lost."""

    member: MemberId
    uid: PodUid
    reason: str
    exit_code: int | None = None
    remains: bool = False
    """The platform still shows it: it was evicted or preempted, and is kept to be read."""
    rank_index: RankIndex | None = None
    """As what remains of it says."""
    may_run_on: bool = False
    """It is there and runs, and is no pod of the job any more: its label was taken away."""


@dataclass(frozen=True, slots=True)
class PodsListed:
    """Everything that the platform has, at the start and after a watch was broken: what is not in it is gone."""

    pods: tuple[PodSeen, ...]
    remains: tuple[PodGone, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnerSized:
    """The controller that makes an adopted job's pods was read: it wants so many, where it is not `suspended`."""

    replicas: int
    suspended: bool = False


@dataclass(frozen=True, slots=True)
class OwnerEnded:
    """That controller was read: it is over, and makes no pod any more. `why`: a sentence without its full stop."""

    succeeded: bool
    why: str


@dataclass(frozen=True, slots=True)
class MemberProbed:
    """Answer to ProbeMember: the master itself tried to reach the member's sidecar."""

    member: MemberId
    reachable: bool


@dataclass(frozen=True, slots=True)
class StatusSaved:
    """The status with this version is on disk (or in the API server)."""

    version: int


@dataclass(frozen=True, slots=True)
class ScalingAsked:
    """The user wants the job to find its own size again."""


@dataclass(frozen=True, slots=True)
class ScaleRequested:
    """The user wants this many members."""

    replicas: int


@dataclass(frozen=True, slots=True)
class TurnTold:
    """Of jobs that lack room, who waits behind whom; `behind` is empty where this one's turn has come."""

    behind: str


@dataclass(frozen=True, slots=True)
class SpecChanged:
    """The user has edited the job; also said once after Began where the spec decides the size (a cluster)."""

    spec: JobSpec
    suspended: bool = False
    has_new_template: bool = False
    """Pods that are made from now on are others than those that run."""


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """The user wants the script read again: now, or at the next finished checkpoint."""

    at_checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class RestartRejected:
    """The script, as it is now, would not come through its imports (`scaling.rehearsal`): nothing was stopped."""

    why: str


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The user wants the job to end. `hard`: without grace."""

    reason: str
    hard: bool = False
    within: float | None = None
    """Seconds after which the platform ends its members by itself, where it does: its record was deleted."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The user asks every member for `stacks` or `collectives`, or one of them for a `rehearsal`; `request` comes back
    in the Deliver action."""

    request: str
    what: str


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """The outside refused or broke an action; failure is an event too."""

    action: Action
    error: str


@dataclass(frozen=True, slots=True)
class Woke:
    """The moment asked for by next_deadline has come."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """This process did not run for so many seconds (paused, or the machine was busy): silence in that time says
    nothing about the members. The shell has drained what arrived before it says this."""

    seconds: float


Event = (
    Began
    | SidecarSaid
    | SidecarDisconnected
    | PodSeen
    | PodGone
    | NodeSeen
    | CreateRejected
    | PodsListed
    | OwnerSized
    | OwnerEnded
    | MemberProbed
    | StatusSaved
    | ScaleRequested
    | ScalingAsked
    | TurnTold
    | SpecChanged
    | RestartRequested
    | RestartRejected
    | StopAsked
    | Asked
    | ActionFailed
    | Woke
    | Stalled
    | LeaseLost
    | LeaseRegained
)
