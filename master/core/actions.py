"""The actions that the master's core requests, as frozen values named in the imperative.

Each has the generation it belongs to and a reason: one sentence that is the log line, the Kubernetes Event and what
tests assert. Carrying out an action twice is harmless.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import NO_GENERATION, Generation, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.directions import FromMaster


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to the sidecar on this connection; the core repeats an order until it is acknowledged."""

    session: str
    member: MemberId
    message: FromMaster
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Close and forget a connection (its member has a newer one, or was refused)."""

    session: str
    reason: str
    generation: Generation = NO_GENERATION


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a member's pod; the platform answers with PodSeen."""

    member: MemberId
    role: Role
    rank_index: RankIndex | None
    """The rank index of the member; None for a spare."""
    generation: Generation
    reason: str
    wanted: int = 0
    """The number of members of the role that the pod's environment variables state; 0 for the number in its spec."""
    relaunches: int = 0
    """The number of failed pods that its rank index has had."""
    memory_limit: int = 0
    """The least memory limit of the trainer's container in bytes; 0 for that of the template. Its request grows too."""
    avoid: tuple[str, ...] = ()
    """Nodes on which the pod must not be scheduled."""
    place: RankIndex | None = None
    """The rank index for which a parameter server's pod is created, though it may get it later."""
    resources: str = ""
    """The resources of its container, in words; PodSeen repeats them."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a member's pod with a grace period in seconds (0: at once); the platform answers with PodGone."""

    member: MemberId
    uid: PodUid
    grace: float
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class PlacePod:
    """Label a member's pod with its present rank index, which users and Services read."""

    member: MemberId
    uid: PodUid
    rank_index: RankIndex | None
    generation: Generation
    reason: str
    relaunches: int = 0
    """The number of failed pods that this rank index has had."""


@dataclass(frozen=True, slots=True)
class HidePod:
    """Remove a failed pod that is kept from the Service address of its rank index."""

    member: MemberId
    uid: PodUid
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class ResizeOwner:
    """Scale the controller that creates an adopted job's pods; the platform answers with OwnerSized."""

    replicas: int
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class FollowOwner:
    """Write the owner's size into the ElasticJob that represents it; SpecChanged follows."""

    replicas: int
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class WriteReplicas:
    """Write the size that autoscaling has chosen into the ElasticJob; SpecChanged follows."""

    replicas: int
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeMember:
    """Probe a member's sidecar from the master itself (a direct probe); MemberProbed follows."""

    member: MemberId
    address: str
    port: int
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class SaveStatus:
    """Save the job's status; StatusSaved(version) follows, and only then is Start sent."""

    version: int
    status: dict[str, object]
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class SaveHistory:
    """Save this master's part of the job's history; nothing waits for it."""

    part: dict[str, object]
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Report one line to the user: in the log, in `outrider events`, and as a Kubernetes Event.

    `kind` is a CamelCase word (GenerationStarted, WorkerExited, MemberLost, MemberSilent, MemberReplaced, WorldShrunk,
    WorldGrew, Recovered, CheckpointSaved, JobFailed …), `severity` normal or warning.
    """

    kind: str
    reason: str
    generation: Generation
    member: MemberId | None = None
    severity: str = "normal"
    detail: tuple[tuple[str, str], ...] = ()
    """Further fields to show, such as those of the rendezvous line."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Return the collected answers to the user's request: JSON bodies by member, and members without an answer."""

    request: str
    bodies: tuple[tuple[MemberId, str], ...]
    missing: tuple[MemberId, ...]
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class EndJob:
    """End the job with this exit code; the service ends once every message is sent."""

    exit_code: int
    generation: Generation
    reason: str


Action = (
    Send
    | CloseSession
    | CreatePod
    | DeletePod
    | PlacePod
    | HidePod
    | ResizeOwner
    | FollowOwner
    | WriteReplicas
    | ProbeMember
    | SaveStatus
    | SaveHistory
    | Announce
    | Deliver
    | EndJob
)
