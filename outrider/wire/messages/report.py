"""The report of each second: how far the ranks are, and what they were busy with."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import Generation
from outrider.wire.messages.links import LinkSeen


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
    measure the same steps (`training_hooks/telemetry/busy_time.py`)."""

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
