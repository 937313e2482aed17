"""What the master's core wants done, as frozen values in the imperative. Each has the generation it belongs to and a
reason: one sentence that is the log line, the Kubernetes Event and the assertion of the tests.

Doing one twice is harmless.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import NO_GENERATION, Generation, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.directions import FromMaster


@dataclass(frozen=True, slots=True)
class Send:
    """Give a message to the sidecar on this connection. Repeated by the core until it is acknowledged."""

    session: str
    member: MemberId
    message: FromMaster
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Forget a connection (its member has a newer one, or was refused)."""

    session: str
    reason: str
    generation: Generation = NO_GENERATION


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Make a member. The platform answers with PodSeen."""

    member: MemberId
    role: Role
    rank_index: RankIndex | None
    """None: a spare."""
    generation: Generation
    reason: str
    wanted: int = 0
    """Members of the role that the job has now, as the pod's own variables say; 0: what its spec says."""
    relaunches: int = 0
    """Failed pods that its rank index has had."""
    memory_limit: int = 0
    """Bytes that its trainer's container may use at the least; 0: what the template says. Its request grows with it."""
    avoid: tuple[str, ...] = ()
    """Nodes that it must not land on."""
    place: RankIndex | None = None
    """Of a parameter server's pod: the rank index that it is made for, though it may get it later."""
    resources: str = ""
    """What its container is to have, in words: PodSeen says it again."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Remove a member, with so many seconds of grace (0: at once). The platform answers with PodGone."""

    member: MemberId
    uid: PodUid
    grace: float
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class PlacePod:
    """Write on a member's pod which rank index it has now; users and Services look for it there."""

    member: MemberId
    uid: PodUid
    rank_index: RankIndex | None
    generation: Generation
    reason: str
    relaunches: int = 0
    """Failed pods that this rank index has had."""


@dataclass(frozen=True, slots=True)
class HidePod:
    """A pod that has failed, and is kept, is no more to be reached at the address of its rank index."""

    member: MemberId
    uid: PodUid
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class ResizeOwner:
    """Ask the controller that makes an adopted job's pods for so many. The platform answers with OwnerSized."""

    replicas: int
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class FollowOwner:
    """Write the owner's size into the job that stands for it: SpecChanged comes back."""

    replicas: int
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class WriteReplicas:
    """Write the size that the job has found into its ElasticJob: SpecChanged comes back."""

    replicas: int
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeMember:
    """The master itself tries to reach a member's sidecar, where no peer can; MemberProbed comes back."""

    member: MemberId
    address: str
    port: int
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class SaveStatus:
    """Persist the job's status; StatusSaved(version) comes back. Start is sent only after it."""

    version: int
    status: dict[str, object]
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class Announce:
    """One line for the user: the log, `outrider events`, a Kubernetes Event.

    `kind` is a CamelCase word (GenerationStarted, WorkerExited, MemberLost, MemberSilent, MemberReplaced, WorldShrunk,
    WorldGrew, Recovered, CheckpointSaved, JobFailed …), `severity` normal or warning.
    """

    kind: str
    reason: str
    generation: Generation
    member: MemberId | None = None
    severity: str = "normal"
    detail: tuple[tuple[str, str], ...] = ()
    """More to show, as the rendezvous line's fields."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand the collected answers to whoever asked: JSON bodies by member, and who did not answer."""

    request: str
    bodies: tuple[tuple[MemberId, str], ...]
    missing: tuple[MemberId, ...]
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class EndJob:
    """The job is over with this exit code; the service ends once it has told everyone."""

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
    | Announce
    | Deliver
    | EndJob
)
