"""What the sidecar's core wants done, each with the generation it belongs to and a reason, one sentence. Doing one
twice is harmless."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import NO_GENERATION, Generation, MemberId
from outrider.wire.messages.checkpoints import Fetch
from outrider.wire.messages.directions import FromSidecar
from outrider.wire.messages.generation import Start
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.node_check import Check


@dataclass(frozen=True, slots=True)
class Send:
    """Give a message to the master; dropped where there is no link (the core says it again when there is)."""

    message: FromSidecar
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class StartWorkers:
    """Order the template or launcher on this connection to start the worker processes that `start` describes."""

    connection: str
    start: Start
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class StopWorkers:
    """Order it to end all worker processes of this and lower generations and to reap them."""

    connection: str
    generation: Generation
    grace: float
    handler_grace: float
    save_grace: float
    reason: str


@dataclass(frozen=True, slots=True)
class FinishTrainer:
    """Order it to end all workers and then itself with this exit code: the container ends."""

    connection: str
    exit_code: int
    generation: Generation
    reason: str
    last_words: str = ""
    """What its log and its container's termination message say, where there is something."""


@dataclass(frozen=True, slots=True)
class RunCheck:
    """Order it to measure this member in a process of its own; Checked comes back."""

    connection: str
    member: MemberId
    nproc: int
    order: Check
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class CollectFromWorkers:
    """Collect `stacks` or `collectives`; Collected comes back, at the latest after 5 s."""

    connection: str
    order: int
    what: str
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class AnswerHere:
    """Give whoever in the pod asked what came of it, as JSON; dropped where it has gone."""

    order: int
    body: str
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class SaveWorkersState:
    """Have the script save what it has registered; StateSaved comes back when it is done. With a signal: when it was
    sent to the ranks."""

    connection: str
    order: int
    seconds: float
    last: bool
    generation: Generation
    reason: str
    signal: str = ""


@dataclass(frozen=True, slots=True)
class KeepCopies:
    """Write into the memory for checkpoints that every rank has this step."""

    step: int
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class FetchCopies:
    """Take copies of a checkpoint over from other members, into own slots or held ones; CopiesFetched comes back."""

    order: Fetch
    nproc: int
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Write nothing into the memory for checkpoints any more: worker processes are about to use it."""

    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class FindPort:
    """Find a free TCP port outside the ephemeral range, and look what copies of checkpoints are whole; PortFound comes
    back."""

    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class ReadPages:
    """Read the progress pages; PagesRead comes back."""

    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class SampleUsage:
    """Read /proc of the trainer's processes; UsageSampled comes back."""

    pids: tuple[int, ...]
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class ProbePeer:
    order: int
    member: MemberId
    address: str
    port: int
    seconds: float
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeNeighbour:
    """Look whether a neighbour answers within so many seconds; NeighbourProbed comes back."""

    neighbour: Neighbour
    seconds: float
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class SweepProcesses:
    """Kill what is left of the member's processes (local: by the marker in their environment; in a pod the kubelet
    does it)."""

    generation: Generation
    reason: str
    trainer: int = 0
    """Only what belonged to the trainer with this pid; 0: everything of the member but the sidecar."""


@dataclass(frozen=True, slots=True)
class KeepWord:
    """Write down for good, where it outlives this process, how the pod trains. WordKept says what stands there then:
    the first word."""

    word: str
    trainer: int
    """The pid of the command that runs alone; 0 where none does."""
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class RunAlone:
    """Tell whoever is on this connection to run its command as without us, and to speak to no sidecar any more."""

    connection: str
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class TellTrainer:
    """One line in the trainer's own log, while nothing runs there."""

    connection: str
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class RefuseHook:
    """Tell whoever is on this connection why it is not served, and close it."""

    connection: str
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class Announce:
    """One line in the sidecar's log."""

    kind: str
    reason: str
    generation: Generation = NO_GENERATION
    severity: str = "normal"
    detail: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Exit:
    """End the sidecar process."""

    exit_code: int
    generation: Generation
    reason: str


Action = (
    Send
    | StartWorkers
    | StopWorkers
    | FinishTrainer
    | RunCheck
    | CollectFromWorkers
    | AnswerHere
    | SaveWorkersState
    | KeepCopies
    | FetchCopies
    | StopFetching
    | FindPort
    | ReadPages
    | SampleUsage
    | ProbePeer
    | ProbeNeighbour
    | SweepProcesses
    | KeepWord
    | RunAlone
    | TellTrainer
    | RefuseHook
    | Announce
    | Exit
)
