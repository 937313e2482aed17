"""Everything a sidecar and a master say to each other, as frozen values.

Versions are additive: a field is never renamed or removed, a new one has a default, and a reader ignores what it does
not know. Seconds are floats. No absolute time crosses the wire, because the clocks of two machines differ: moments are
sent as ages ("this long ago").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from outrider.wire.ids import NO_GENERATION, NO_ORDER, Generation, JobName, MemberId, OrderId, PodUid, RankIndex, Role

PROTOCOL_VERSION = 1
DATA_KINDS = {
    "loaded": "DataPositionLoaded",
    "ignored": "DataPositionIgnored",
    "repeated": "SamplesRepeated",
    "not elastic": "DataNotElastic",
    "not written": "DataPositionNotWritten",
    "kept": "GlobalBatchKept",
    "not kept": "GlobalBatchNotKept",
    "unusable": "SavedStateUnusable",
    "state loaded": "CheckpointLoaded",
    "state not saved": "CheckpointNotKept",
    "not atomic": "CheckpointsNotAtomic",
    "atomic": "CheckpointsAtomic",
    "overtaken": "SaveOvertaken",
    "newer kept": "NewerCheckpointKept",
    "no room": "CheckpointNotSaved",
}
"""The words of a DataSaid, and what they are called in events."""


# -- how long a text may be -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Longest:
    """Characters of a text. A longer one is cut where it is `prose`, because no report may be lost for a long sentence;
    else its message is refused: half of a name is another name."""

    characters: int
    prose: bool = False


PROSE = Longest(500, prose=True)
"""Of every text that says nothing else."""
ID = Longest(500)
"""Of every id: the longest there is, a namespace and the name of a job in it, has 317."""

Address = Annotated[str, Longest(255)]
Sentences = Annotated[str, Longest(2000, prose=True)]
Traceback = Annotated[str, Longest(8192, prose=True)]
Token = Annotated[str, Longest(16384)]
"""A service account's with many audiences has 2,000."""
Ticket = Annotated[str, Longest(1024)]
Path = Annotated[str, Longest(4096)]
Print = Annotated[str, Longest(100)]
Pattern = Annotated[str, Longest(1000)]
Json = Annotated[str, Longest(1 << 19)]


# -- parts ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class WorkerExit:
    """How one worker process ended. `code` is an exit status (0-255), or None where `signal` ended it."""

    local_rank: int
    pid: int
    code: int | None
    signal: int | None = None
    out_of_memory: bool = False
    """SIGKILL, and the container's oom_kill counter grew."""
    age: float = 0.0
    step: int = 0
    """Optimizer steps counted in absolute terms (see `Report.step`) when it ended."""
    error_type: str = ""
    """The exception's class as Python prints it, `""` where there was none."""
    error_message: Sentences = ""
    error_frame: str = ""
    """The deepest frame, `file:line function`."""
    traceback: Traceback = ""
    """At most 8 KiB."""
    in_import: bool = False
    """It failed before its script's top level had run to an end, and before the first step."""


@dataclass(frozen=True, slots=True)
class RankProgress:
    """One rank, as its progress page reads."""

    local_rank: int
    step: int
    step_age: float
    """Seconds since the last step ended, or since the process started where none did."""
    phase: str
    """init, step, checkpoint or eval."""
    step_seconds: float = 0.0
    """Median duration of the recent steps; 0 where there were fewer than two."""
    samples: int = 0
    is_stuck: bool = False
    """Its hooks see that it cannot make its next step by itself
    (`training_hooks/frameworks/tf_session_recovery.py`)."""
    base: int = -1
    """The absolute step of the checkpoint that it has loaded; 0: of none that is known; -1: it is not said."""
    opened: bool = False
    """Before its first step a known checkpoint was opened here, and not by a load that the hooks know."""


@dataclass(frozen=True, slots=True)
class OwnTime:
    """What one rank was busy with by itself, in one window of steps: seconds a step, medians. Ranks of one generation
    measure the same steps (`training_hooks/own_time`)."""

    local_rank: int
    first_step: int
    """Counted from the beginning of the process."""
    steps: int
    """Of the window; those with a checkpoint or an evaluation are left out."""
    source: str
    """recorder and cpu, recorder, cpu, or none where nothing here can tell."""
    gap: float
    """From a step's end to its first collective; 0 without the recorder."""
    busy: float
    """What kept the main thread: running, waiting for a core or its DataLoader; 0 where it may spin."""
    step_seconds: float
    shape: int = 0
    """Which collectives a step has: only ranks with equal ones are alike."""
    cpu: float = 0.0
    """This and what follows: where the time went, as far as the CPU shows it. Here: the main thread ran."""
    waited: float = 0.0
    """It waited for its DataLoader."""
    delayed: float = 0.0
    """It waited for a core."""
    throttled: float = 0.0
    """Its container's cgroup was kept off the cores."""
    stolen: float = 0.0
    """The hypervisor gave the machine's cores to others."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another member of the same world, where its sidecar answers probes (UDP)."""

    member: MemberId
    address: Address
    port: int


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """How a neighbour has answered the last probes, at most 20 looks at it."""

    member: MemberId
    round_trip: float = 0.0
    """Seconds, the median; 0 where none came back."""
    lost: int = 0
    """Datagrams that brought nothing."""
    sent: int = 0
    """All of them."""
    missing: float = 0.0
    """Seconds since the first look that found nobody after its last answer; 0: it answers."""


@dataclass(frozen=True, slots=True)
class CheckPeer:
    """A member of the same group in a round of the node check, where its probe listens."""

    member: MemberId
    address: Address
    port: int


@dataclass(frozen=True, slots=True)
class PeerCheck:
    """What became of the all-gather with one member of the group; with the member itself where it was tried alone."""

    member: MemberId
    seconds: float = 0.0
    """Of the best of several; 0 where there was none."""
    error: str = ""
    """Why there was none; empty: all went well."""


@dataclass(frozen=True, slots=True)
class Group:
    """A named group of a pattern, and what it was in the line; at most 100 characters."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Copy:
    """A whole checkpoint in the memory of a member, as its head says (docs/contracts.md §11)."""

    rank: int
    step: int
    sharded: bool = False
    """It is this rank's own state, and good for the same rank of a world of `world` ranks; else for any rank."""
    world: int = 0
    generation: Generation = NO_GENERATION
    length: int = 0
    held: bool = False
    """It is kept for the partner, another member whose rank this is."""
    marked: bool = False
    """It is a save of the marked path: `step` is the number of the save, and it is good for any rank."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A copy that a member is to be given, and where it is."""

    rank: int
    local_rank: int
    """Whose slots it goes to."""
    member: MemberId
    address: Address
    port: int
    memory_key: Ticket
    held: bool = False
    length: int = 0


# -- sidecar to master ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Hello:
    """First on every connection: who this is and what runs now, so that a new master can rebuild its state."""

    job: JobName
    member: MemberId
    uid: PodUid
    role: Role
    rank_index: RankIndex | None
    token: Token
    version: int = PROTOCOL_VERSION
    address: Address = "127.0.0.1"
    """Where other members reach this one."""
    probe_port: int = 0
    """UDP port on which the sidecar answers its peers' probes."""
    running: Generation = NO_GENERATION
    """The generation whose worker processes are alive in this member now."""
    group_rank: int | None = None
    highest: Generation = NO_GENERATION
    """The highest generation this sidecar was ever told of."""
    finished: bool = False
    """All of its worker processes ended with 0 in `highest`."""
    rung: str = ""
    """As in `Ready`, which a member whose worker processes run does not say; empty where there is no trainer yet."""
    rung_reason: str = ""
    trainer_pid: int = 0
    ticket: Ticket = ""
    """What the last Welcome brought."""
    isolated: str = ""
    """Why this member itself has stopped, or is stopping, the worker processes of `highest`: it was cut off."""
    machine: str = ""
    """Of the kernel it runs on: members whose machine is one disturb each other, also where each has a node of its own;
    empty where nothing tells."""
    memory_port: int = 0
    """TCP port on which the sidecar gives copies of checkpoints to other members; 0: it has none."""
    memory_key: Ticket = ""
    """What those must know who ask there: only the master, and whom it tells."""
    offers: bool = False
    """The script in it saves its state when it is asked to: `StateOffered` says what."""
    term: int = 0
    """The highest of a master that has welcomed this member. Of a master that says Hello to an earlier one: its own."""
    unsupervised: bool = False
    """Its command runs as without us, for good: it takes no order, and is no member of any world."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Nothing of an older generation is alive here, and worker processes can be started. Repeated with a new port
    after every Stopped, and whenever what it says changes."""

    port: int
    """A fresh free port outside the ephemeral range, for a rendezvous whose rank 0 is here."""
    nproc: int
    """Worker processes this member runs."""
    rung: str
    """T0 (a template forks the ranks) or T1 (a launcher starts them)."""
    rung_reason: str
    trainer_pid: int = 0
    """The template's or launcher's pid."""
    after: Generation = NO_GENERATION
    """The last generation that was stopped here."""
    max_restarts: int | None = None
    """What an inner launcher (torchrun) asked for, where it did; outrider's own flag wins."""
    copies: tuple[Copy, ...] = ()
    """The checkpoints that are whole in this member's memory."""


@dataclass(frozen=True, slots=True)
class Started:
    """Acknowledges Start: the worker processes exist."""

    order: OrderId
    generation: Generation
    pids: tuple[int, ...]
    """By local rank."""


@dataclass(frozen=True, slots=True)
class StartFailed:
    """Start could not be done."""

    order: OrderId
    generation: Generation
    error: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """Acknowledges Stop: every process of the generation has been reaped, its DataLoader workers too."""

    order: OrderId
    generation: Generation
    step: int = 0
    """The highest absolute step of its ranks."""
    step_age: float = 0.0
    killed: int = 0
    """How many had to be killed with SIGKILL."""


@dataclass(frozen=True, slots=True)
class Exited:
    """Worker processes that ended without having been told to. Sent at once."""

    generation: Generation
    exits: tuple[WorkerExit, ...]
    alive: int
    """Worker processes of the generation still alive here."""


@dataclass(frozen=True, slots=True)
class Report:
    """Once a second: the sign of life."""

    generation: Generation
    state: str
    """starting, ready, running, stopping, done."""
    step: int = 0
    """The highest step over its ranks, in absolute terms: steps of this process plus the step of the checkpoint it
    loaded, so that a restart does not begin again at 0. The highest, because ranks step together, and a rank that was
    handed its state by another, which alone had loaded it, counts from 0."""
    step_seconds: float = 0.0
    cpu: float = 0.0
    """Cores used by the trainer's processes over the last second."""
    memory_mib: float = 0.0
    gpus: int = 0
    pids: tuple[int, ...] = ()
    ranks: tuple[RankProgress, ...] = ()
    sidecar_pid: int = 0
    note: str = ""
    """What the user should know and cannot see elsewhere, one sentence."""
    own: tuple[OwnTime, ...] = ()
    """Windows that have come since the report before; one that is lost with its report is not said again."""
    links: tuple[LinkSeen, ...] = ()
    """To neighbours: all of them every 10 s, and at once each that begins or ceases to answer."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """The first step beyond `Start.high_step` has been made here: the lost time is over. Sent at once."""

    generation: Generation
    step: int
    age: float
    base: int = -1
    """As in RankProgress."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was finished (a path saved before, or one of a numbered series)."""

    generation: Generation
    path: Path
    step: int
    asked: OrderId = NO_ORDER
    """The SaveState whose signal had been sent there when this save began."""
    prints: tuple[Print, ...] = ()
    """Fingerprints of its files: size and hash of the first and last bytes (docs/contracts.md §4)."""
    is_first: bool = False
    """Nothing says that it is a checkpoint, but the load of a later process may: until then only its step is kept."""
    again: bool = False
    """It was said before, maybe to another master: its step is kept, and nothing happens now."""


@dataclass(frozen=True, slots=True)
class TrainerLost:
    """The template or launcher died, and with it its workers. The container is being restarted or replaced."""

    reason: str
    generation: Generation = NO_GENERATION
    exits: tuple[WorkerExit, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainerExited:
    """The trainer's container ended by itself with this exit code, outside any generation (a T1 command that ended
    before a world was formed, a script that is no training script)."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """The member was told to go (SIGTERM, eviction); it has `grace` seconds."""

    reason: str
    grace: float


@dataclass(frozen=True, slots=True)
class Probed:
    """Answer to Probe."""

    order: OrderId
    member: MemberId
    reachable: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks the master for a sign of life: no neighbour answers, and the link may be up and dead."""

    number: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to Ask, one of a kind per member. `body` is JSON."""

    order: OrderId
    body: Json


@dataclass(frozen=True, slots=True)
class Checked:
    """Answer to Check: what this member's probe found in one round."""

    order: OrderId
    round: int
    result: str
    """`ok`, or what went wrong in this member itself, one of the words in docs/contracts.md §3."""
    error: str = ""
    kind: str = ""
    """What did the matmul: `torch cuda`, `torch cpu`, `numpy`, `python`. Times of different kinds are not compared."""
    compute: float = 0.0
    """Seconds of the best matmul on the slowest local device; 0 where none was measured."""
    cpu: float = 0.0
    """CPU seconds of that one: what it would have taken without others on its machine; 0 on a device of its own."""
    elapsed: float = 0.0
    """Seconds from the order to this answer."""
    peers: tuple[PeerCheck, ...] = ()
    held_up: float = 0.0
    """Seconds beyond `cpu` for which its own container held it back, by its CPU limit and by what else runs there."""


@dataclass(frozen=True, slots=True)
class LineMatched:
    """A rank has written a line that fits one of `Start.patterns`. Sent at once, and again after each Welcome until a
    newer generation starts."""

    generation: Generation
    rank: int
    """The global one; of a command that runs once a member its first."""
    pattern: Pattern
    line: str
    """At most 300 characters."""
    serial: int
    """Grows with each that a member sends: one that is not above the last is a repeat."""
    count: int = 1
    """Lines since the last that was sent of this rank and pattern; `line` is the last of them."""
    age: float = 0.0
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class PatternDropped:
    """A member follows a pattern no more: it is too slow, or its Python cannot read it. Repeated like LineMatched."""

    generation: Generation
    pattern: Pattern
    reason: str
    line: str = ""
    """On which it took too long."""


@dataclass(frozen=True, slots=True)
class DataSaid:
    """What a rank has done about its place in the data, or about its batch size (`training_hooks/data/position.py`).
    Said again after each Welcome until a newer generation starts."""

    generation: Generation
    rank: int
    word: str
    """One of DATA_KINDS."""
    sentence: str
    """At most 500 characters."""
    warning: bool = False
    samples: int = 0
    """That are trained on again (`repeated`)."""


@dataclass(frozen=True, slots=True)
class StateOffered:
    """The script's rank 0 runs here and saves its state when it is asked to. Repeated after each Welcome."""

    generation: Generation
    names: tuple[str, ...] = ()
    """What the script has registered."""


@dataclass(frozen=True, slots=True)
class StateSaved:
    """Answer to SaveState."""

    order: OrderId
    generation: Generation
    step: int = 0
    path: Path = ""
    seconds: float = 0.0
    error: str = ""
    """Why it was not saved; empty: it was."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """A copy of a checkpoint is whole in this member's memory. The newest of each rank is said again after each
    Welcome."""

    generation: Generation
    rank: int
    step: int
    length: int = 0
    sharded: bool = False
    marked: bool = False
    """As in `Copy`: this member alone has it yet."""
    counted: int = 0
    """Of a marked one: the optimizer steps that were made."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Answer to Fetch."""

    order: OrderId
    generation: Generation
    step: int
    seconds: float = 0.0
    error: str = ""
    """Why not all of it is there; empty: it is."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An order that has no answer of its own arrived."""

    order: OrderId


# -- master to sidecar ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Welcome:
    """Answer to Hello."""

    term: int
    master: str = ""
    report_every: float = 1.0
    """Seconds between reports."""
    silent_after: float = 3.0
    ticket: Ticket = ""
    """For the next Hello, in place of the token (a cluster): it costs the API server no question."""
    neighbours: tuple[Neighbour, ...] = ()
    """As in Start, for a sidecar that is younger than the generation that runs here; empty: nothing is said of them."""
    stop_grace: float = 0.2
    """This and the next two: as in Stop, for a member that is cut off and stops by itself."""
    handler_grace: float = 10.0
    save_grace: float = 60.0
    hands_off: bool = False
    """The job is only observed: this member does nothing to its worker processes that nobody has ordered."""


@dataclass(frozen=True, slots=True)
class Refused:
    """This connection will not be served; the sentence says why and what may be done. The sidecar logs it, and tries
    again after `retry_after` seconds, or ends where that is negative."""

    reason: Sentences
    retry_after: float = 2.0
    hands_off: bool = False
    """The job is switched off: as in Welcome, until a master serves this member again."""


@dataclass(frozen=True, slots=True)
class Start:
    """Fork the worker processes of a generation. O(1) bytes: each sidecar learns its own ranks only."""

    order: OrderId
    generation: Generation
    restart_count: int
    """Generations before this one."""
    master_addr: Address
    master_port: int
    group_rank: int
    group_world_size: int
    first_rank: int
    """Global ranks here: first_rank … first_rank + nproc - 1."""
    nproc: int
    world_size: int
    role: Role
    role_first_rank: int
    role_world_size: int
    rank_index: RankIndex
    max_restarts: int = 10
    job: JobName = JobName("")
    high_step: int = 0
    """The highest absolute step ever made; Stepped is due when one beyond it is made."""
    saves: tuple[tuple[Path, int], ...] = ()
    """The newest checkpoints (path, absolute step), at most 16: they tell the hooks which step a load resumes."""
    reason: str = ""
    neighbours: tuple[Neighbour, ...] = ()
    """At most 3 other members of this world: who reaches neither the master nor any of them is cut off."""
    patterns: tuple[Pattern, ...] = ()
    """Regular expressions that the lines of the ranks' output are searched for; where there is one, and only there, the
    ranks write into a pipe."""
    elastic_data: bool = False
    """Ranks go on in their data where the checkpoint that they load was saved."""
    keep_batch_of: int = 0
    """Ranks of the job's first world, whose global batch is to be kept; 0: it is not."""
    tf_config: Json = ""
    """The variable TF_CONFIG of a member of a PS job: JSON, its cluster and its task. Empty: an all-reduce job."""
    worker_id: int = 0
    """Of a member of a PS job: the number in its name."""
    worker_num: int = 0
    """Members of its role, in a PS job."""
    begins_from: int = -1
    """The save of the marked path that every member of this world has in memory; -1: there is none."""
    begins_in: Generation = NO_GENERATION
    """The generation that made it: a version is both."""
    prints: tuple[tuple[Print, int], ...] = ()
    """The newest fingerprints of checkpoints, at most 32, each with its step: a file is known by them behind a rename
    or a copy."""
    require_resume: bool = False
    """The job ends where its script starts over: until that is decided nothing is saved."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End every worker process of the generation, and of all lower ones."""

    order: OrderId
    generation: Generation
    grace: float = 0.2
    """Seconds between SIGTERM and SIGKILL where the script handles no SIGTERM."""
    handler_grace: float = 10.0
    """The same where it does."""
    save_grace: float = 60.0
    """At most this long a rank inside a save is let finish first."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """The job is over, or this member is no longer part of it: end the trainer's container with this exit code, then
    the sidecar."""

    order: OrderId
    exit_code: int
    reason: Sentences
    last_words: Sentences = ""
    """One line that the trainer's own log and its container's termination message say, where there is one."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Try to reach another member's sidecar."""

    order: OrderId
    member: MemberId
    address: Address
    port: int
    seconds: float = 0.4


REHEARSAL = "rehearsal"


@dataclass(frozen=True, slots=True)
class Ask:
    """Collect something from the worker processes: `stacks` or `collectives`. Or `rehearsal`: try beside them whether
    the script as it is now would come through its imports."""

    order: OrderId
    what: str


@dataclass(frozen=True, slots=True)
class SaveState:
    """Have the script save what it has registered, within so many seconds; repeated until StateSaved comes."""

    order: OrderId
    generation: Generation
    seconds: float
    reason: str = ""
    last: bool = True
    """The generation is stopped as soon as it is saved: no further step is to be made."""
    signal: str = ""
    """All ranks here are sent it, and the script's own handler sees to the rest. The answer says whether they were;
    what they save is told by Saved."""


@dataclass(frozen=True, slots=True)
class Check:
    """Measure this member in one round of the node check: a matmul, then an all-gather with each member of its group.
    A newer one replaces the older."""

    order: OrderId
    round: int
    port: int = 0
    """Where the probe listens for the members in `awaited`: the one that this member's Ready offered, which is used up
    by it. 0: for nobody."""
    peers: tuple[CheckPeer, ...] = ()
    """Whom the probe connects to: at most 2."""
    awaited: tuple[MemberId, ...] = ()
    """Who connects to it: at most 2."""
    compute: bool = True
    """False: this member trains, and only helps another one with the all-gather."""
    alone: bool = False
    """Also an all-gather with itself over its own address: few members cannot tell whose fault a broken one is."""
    address: Address = ""
    """This member's own, for that."""
    seconds: float = 30.0
    """The probe is ended after so many."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Every rank of this generation has this step in memory: that copy is not overwritten before there is a newer one.
    Said again after each Welcome."""

    generation: Generation
    step: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Take copies of a checkpoint over from other members. A newer order takes the place of an older one."""

    order: OrderId
    generation: Generation
    """Before whose Start (own slots), or while which runs (held ones)."""
    step: int
    made_in: Generation
    """The generation that saved it: a version is both."""
    wanted: tuple[Wanted, ...]
    sharded: bool = False
    seconds: float = 30.0
    """What is not there by then is not waited for."""
    reason: str = ""
    marked: bool = False
    """A save of the marked path: own slots are written to while worker processes run, which only read them."""


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to Ping."""

    number: int


FromSidecar = (
    Hello
    | Ready
    | Started
    | StartFailed
    | Stopped
    | Exited
    | Report
    | Stepped
    | Saved
    | TrainerLost
    | TrainerExited
    | Leaving
    | Probed
    | Ping
    | Answer
    | Checked
    | LineMatched
    | PatternDropped
    | DataSaid
    | StateOffered
    | StateSaved
    | Remembered
    | Fetched
    | Acknowledged
)
FromMaster = Welcome | Refused | Start | Stop | Finish | Probe | Ask | SaveState | Check | Kept | Fetch | Pong
Message = FromSidecar | FromMaster
