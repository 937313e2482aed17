"""The actions that the sidecar's core orders.

Each has the generation it belongs to and a reason of one sentence. Performing an action twice is harmless.
"""

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
    """Send a message to the master; dropped if the link is down (the core repeats it later)."""

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
    """Order the template or launcher to end and reap all worker processes of this and lower generations."""

    connection: str
    generation: Generation
    grace: float
    handler_grace: float
    save_grace: float
    reason: str


@dataclass(frozen=True, slots=True)
class FinishTrainer:
    """Order the template or launcher to end all workers and then itself with this exit code, which ends the
    container."""

    connection: str
    exit_code: int
    generation: Generation
    reason: str
    last_words: str = ""
    """Text for the trainer's log and its container's termination message; may be empty."""


@dataclass(frozen=True, slots=True)
class RunCheck:
    """Order the template or launcher to run the node check in its own process; Checked comes back."""

    connection: str
    member: MemberId
    nproc: int
    order: Check
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class CollectFromWorkers:
    """Collect `stacks` or `collectives` from the worker processes; Collected comes back within 5 s."""

    connection: str
    order: int
    what: str
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class AnswerHere:
    """Send the answer, as JSON, to the program in the pod that made the query; dropped if that is gone."""

    order: int
    body: str
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class SaveWorkersState:
    """Have the script save its registered state; StateSaved comes back when it is saved.

    With a signal, StateSaved comes back when the signal has been sent to the ranks.
    """

    connection: str
    order: int
    seconds: float
    last: bool
    generation: Generation
    reason: str
    signal: str = ""


@dataclass(frozen=True, slots=True)
class KeepCopies:
    """Note in the memory for checkpoints that every rank has this step."""

    step: int
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class FetchCopies:
    """Fetch replicas of a checkpoint from other members, into own slots or replica slots; CopiesFetched comes back."""

    order: Fetch
    nproc: int
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Stop writing into the memory for checkpoints, as worker processes are about to use it."""

    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class FindPort:
    """Find a free TCP port outside the ephemeral range, and list the complete checkpoints; PortFound comes back."""

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
    """Probe another member on the master's order; PeerProbed comes back."""

    order: int
    member: MemberId
    address: str
    port: int
    seconds: float
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeNeighbour:
    """Probe whether a neighbour answers within `seconds`; NeighbourProbed comes back."""

    neighbour: Neighbour
    seconds: float
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class SweepProcesses:
    """Kill the member's remaining processes (locally, by the marker in their environment; in a pod the kubelet
    does)."""

    generation: Generation
    reason: str
    trainer: int = 0
    """Pid of the trainer whose processes are killed; 0: all of the member's processes except the sidecar."""


@dataclass(frozen=True, slots=True)
class KeepWord:
    """Record for good, in a file that outlives this process, how the pod trains; WordKept returns the recorded word.

    The first word that was written counts.
    """

    word: str
    trainer: int
    """Pid of the command that runs unsupervised; 0: none."""
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class RunAlone:
    """Order the hook on this connection to run its command as without Outrider, and to contact no sidecar any more."""

    connection: str
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class TellTrainer:
    """Write one line into the trainer's own log while no command runs there."""

    connection: str
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class RefuseHook:
    """Send the hook on this connection the reason why it is not served, and close the connection."""

    connection: str
    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Write one line into the sidecar's log."""

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
