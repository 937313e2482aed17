"""The report that a member sends each second: the progress of its ranks, and what they were busy with."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import Generation
from outrider.wire.messages.links import LinkSeen


@dataclass(frozen=True, slots=True)
class RankProgress:
    """The progress of one rank, as read from its progress page."""

    local_rank: int
    step: int
    step_age: float
    """Seconds since the last step ended, or since the process started if there was none."""
    phase: str
    """The phase: init, step, checkpoint or eval."""
    step_seconds: float = 0.0
    """The median duration of the recent steps; 0 if there were fewer than two."""
    samples: int = 0
    is_stuck: bool = False
    """Whether its hooks see that it cannot make its next step without help
    (`training_hooks/frameworks/tf_session_recovery.py`)."""
    base: int = -1
    """The absolute step of the loaded checkpoint; 0 if no known one was loaded; -1 if this is not reported."""
    opened: bool = False
    """Whether a known checkpoint was opened before the first step by code that the hooks do not know."""


@dataclass(frozen=True, slots=True)
class OwnTime:
    """What one rank was busy with in one window of steps, as medians in seconds per step. All ranks of a generation
    measure the same steps (`training_hooks/telemetry/busy_time.py`)."""

    local_rank: int
    first_step: int
    """The first step of the window, counted from the start of the process."""
    steps: int
    """The number of steps in the window, without those with a checkpoint or an evaluation."""
    source: str
    """The sources of the measurement: `recorder and cpu`, `recorder`, `cpu`, or `none`."""
    gap: float
    """Seconds from the end of a step to its first collective; 0 without the recorder."""
    busy: float
    """Seconds in which the main thread ran, or waited for a core or its DataLoader; 0 if it may spin."""
    step_seconds: float
    shape: int = 0
    """A hash of the collectives in a step; only ranks with equal ones are comparable."""
    cpu: float = 0.0
    """Seconds in which the main thread ran; like the fields below, as far as the CPU shows it."""
    waited: float = 0.0
    """Seconds in which the main thread waited for its DataLoader."""
    delayed: float = 0.0
    """Seconds in which the main thread waited for a core."""
    throttled: float = 0.0
    """Seconds in which the cgroup of the container was throttled."""
    stolen: float = 0.0
    """Seconds in which the hypervisor gave the machine's cores to others."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What one worker process has spent its time on so far, in seconds: the member's part of the time account. What no
    field names is steps, or what came before the first one."""

    age: float
    """Seconds since the process began."""
    since_first_step: float = -1.0
    """Seconds since its first step ended; -1 before that."""
    step_age: float = 0.0
    """Seconds since its last step ended, or a later activity; its age before the first one."""
    importing: float = 0.0
    rendezvous: float = 0.0
    loading: float = 0.0
    checkpoint: float = 0.0
    """Seconds for which saves held up the main thread."""
    data: float = 0.0
    """Seconds for which the main thread waited for batches, after the first step."""
    evaluation: float = 0.0
    doing: str = ""
    """The name of the field whose activity is under way and not in it yet; empty if none is."""
    doing_for: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """The sign of life of a member, sent once a second."""

    generation: Generation
    state: str
    """The state of the member: starting, ready, running, stopping, done."""
    step: int = 0
    """The highest absolute step of its ranks: steps of the process plus the step of the loaded checkpoint, so that a
    restart does not begin again at 0. The highest counts, because ranks step together, and a rank that got its state
    from another rank, the only one that loaded it, counts from 0."""
    step_seconds: float = 0.0
    cpu: float = 0.0
    """The number of cores that the trainer's processes used over the last second."""
    memory_mib: float = 0.0
    gpus: int = 0
    pids: tuple[int, ...] = ()
    ranks: tuple[RankProgress, ...] = ()
    sidecar_pid: int = 0
    note: str = ""
    """A sentence for the user about something that is shown nowhere else."""
    own: tuple[OwnTime, ...] = ()
    """The windows since the last report; one that is lost with its report is not repeated."""
    links: tuple[LinkSeen, ...] = ()
    """The links to neighbours: all of them every 10 s, and at once each one that begins or stops to answer."""
    spent: Spent | None = None
    """Of the member's first rank; None if its hooks do not report it."""
