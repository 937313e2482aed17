"""The events that can happen to a job, as the master's core sees them: frozen values without behaviour.

Shells pass them on without a decision: each message of a sidecar is one event, each change of a pod another.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.actions import Action, CreatePod
from outrider.master.core.spec import JobSpec
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.directions import FromSidecar


@dataclass(frozen=True, slots=True)
class Began:
    """The master process has acquired its Lease: the first event of every run.

    `saved` is the status that an earlier master left (`JobStatus` as a dict), None for a new job.
    """

    term: int
    spec: JobSpec
    saved: dict[str, object] | None = None
    unix_time: float = 0.0
    """The wall clock at this event, in unix seconds: users read its time, all else uses the core's `now`."""
    is_left: bool = False
    """Whether the job was deleted with its saved status, so that only its members report what runs."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The master could not renew its Lease and has lost it; it may still be the only master."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaseRegained:
    """The master holds its Lease again, and no other master has held it meanwhile."""


@dataclass(frozen=True, slots=True)
class SidecarSaid:
    """A message arrived over an authenticated connection; `session` names the connection and is never reused."""

    session: str
    message: FromSidecar


@dataclass(frozen=True, slots=True)
class SidecarDisconnected:
    """A connection broke: evidence of a fault, but never a verdict."""

    session: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The platform shows a pod in this state."""

    member: MemberId
    uid: PodUid
    role: Role
    rank_index: RankIndex | None
    phase: str
    """The pod's phase: pending, running, terminating, succeeded or failed."""
    reason: str = ""
    unschedulable: bool = False
    exit_code: int | None = None
    node: str = ""
    cannot_start: bool = False
    """Whether a container waits for something that needs the user (an image, a config map).

    `reason` says which container and why; the kubelet keeps retrying.
    """
    grace: float | None = None
    """The grace period of a terminating pod in seconds; None if the platform does not say."""
    ends_at: float | None = None
    """The unix time at which a terminating pod's grace period ends."""
    has_controller: bool = True
    """Whether a controller creates another pod when this one is deleted."""
    memory_limit: int = 0
    """The memory limit of the trainer's container in bytes; 0 if it has none or none is known."""
    out_of_memory: bool = False
    """Whether the kernel killed the trainer's container because it ran out of memory."""
    lingers: bool = False
    """Whether the pod has failed but one of its processes still runs or will run again, so that it keeps its
    resources."""
    sidecar_ended: str = ""
    """How the sidecar ended (`ended with exit code 137`), if the platform does not restart it; else empty."""
    has_ended: bool = False
    """Whether the kubelet reports that all containers of a terminating pod have ended, and it has no finalizer."""
    has_another_key: bool = False
    """Whether the sidecar holds the key of another master and can never reach this one (`membership.key_mismatch`)."""
    resources: str = ""
    """The resources with which the pod was created (`CreatePod.resources`); empty if they are not watched."""
    has_sidecar: bool = True
    """Whether the pod has a sidecar; without one its trainer runs unsupervised (`unreached`)."""
    alone_after: float = 0.0
    """Seconds until the command starts unsupervised if the sidecar reaches no master; 0: never (`unreached`)."""


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The platform shows a node on which members run or ran until now in this state."""

    node: str
    is_ready: bool
    reason: str = ""
    """Why the node is not Ready, in the platform's words."""
    is_gone: bool = False
    """Whether the node was removed from the cluster, so that the end of its pods is never reported."""
    conditions: tuple[tuple[str, str], ...] = ()
    """Type and status of the node's conditions, except those that every node has."""
    taints: tuple[str, ...] = ()
    """The keys of the node's taints."""


@dataclass(frozen=True, slots=True)
class CreateRejected:
    """The platform refused to create this pod (a quota, a policy) and would refuse an immediate retry too.

    With `is_final` it always will (the namespace is being deleted).
    """

    action: CreatePod
    reason: str
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod is gone: killed, deleted, or lost with its machine."""

    member: MemberId
    uid: PodUid
    reason: str
    exit_code: int | None = None
    remains: bool = False
    """Whether the platform still shows the pod, which was evicted or preempted and is kept for its log."""
    rank_index: RankIndex | None = None
    """The rank index on the pod's remains."""
    may_run_on: bool = False
    """Whether the pod still runs but no longer belongs to the job, because its label was removed."""


@dataclass(frozen=True, slots=True)
class PodsListed:
    """The complete list of the job's pods, at the start and after a broken watch: other pods are gone."""

    pods: tuple[PodSeen, ...]
    remains: tuple[PodGone, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnerSized:
    """The controller that creates an adopted job's pods was read: its size, and whether it is suspended."""

    replicas: int
    suspended: bool = False


@dataclass(frozen=True, slots=True)
class OwnerEnded:
    """The controller that creates an adopted job's pods has ended, and creates no more pods.

    `why` is a sentence without its full stop.
    """

    succeeded: bool
    why: str


@dataclass(frozen=True, slots=True)
class MemberProbed:
    """The result of ProbeMember, the master's direct probe of a member's sidecar."""

    member: MemberId
    reachable: bool


@dataclass(frozen=True, slots=True)
class StatusSaved:
    """The status with this version was saved, on disk or in the API server."""

    version: int


@dataclass(frozen=True, slots=True)
class ScalingAsked:
    """The user requested that autoscaling chooses the job's size again."""


@dataclass(frozen=True, slots=True)
class ScaleRequested:
    """The user requested this number of members."""

    replicas: int


@dataclass(frozen=True, slots=True)
class TurnTold:
    """The job's admission has changed: the job it is queued behind, or empty if it is admitted."""

    behind: str


@dataclass(frozen=True, slots=True)
class SpecChanged:
    """The user has edited the job; on a cluster, where the spec decides the size, also once after Began."""

    spec: JobSpec
    suspended: bool = False
    has_new_template: bool = False
    """Whether new pods differ from the running ones."""


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """The user requested a restart with the script read again: now, or at the next finished checkpoint."""

    at_checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class RestartRejected:
    """A restart was rejected without stopping anything: the script's imports fail (`scaling.rehearsal`)."""

    why: str


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The user requested the end of the job; with `hard` without grace."""

    reason: str
    hard: bool = False
    within: float | None = None
    """Seconds until the platform deletes the members by itself, because the job was deleted; None if it will not."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The user requested `stacks` or `collectives` of every member, or a `rehearsal` of one.

    The Deliver action repeats `request`.
    """

    request: str
    what: str


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """An action was refused by the platform or failed."""

    action: Action
    error: str


@dataclass(frozen=True, slots=True)
class Woke:
    """The moment returned by next_deadline has come."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """This process was paused for `seconds` (or the machine was busy), so that silence in that time proves nothing.

    The shell delivers what arrived meanwhile before this event.
    """

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
