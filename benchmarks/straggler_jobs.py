"""Made-up training jobs for the benchmark of stragglers: each rank's own time a step, healthy and with a slow member.

*Own time* is what a rank spends by itself in a step, before it meets the others. Everything that a made-up job has
stands in the parameters below with where it is from; "assumed" marks what no source has published, chosen to be on the
unkind side. They were not fitted to what decides: this file was there before it.

What a healthy job does that may look like a straggler: machines that differ for ever; steps that differ (batches of
unequal length); a slow drift of each member; pauses of one step (garbage collection); short contention on a machine;
checkpoints that rank 0 alone writes, some of them seen by the hooks and some not; validation; times in which the whole
job is slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

# -- what is common to all jobs ---------------------------------------------------------------------------------------
MACHINE_SPREAD, MACHINE_MOST = 0.03, 1.22
"""Sigma of the logarithm of a healthy machine's constant factor, and the most it may be. Sinha et al., "Not all GPUs
are created equal" (SC 22, arXiv 2208.11035): equal GPUs of five sites differ by 8 % on average, by 22 % at most; a
sigma of 3 % gives 8 % between the extremes of 8 machines."""
DRIFT, DRIFT_SECONDS = 0.04, 60.0
"""Sigma and correlation time of each member's slow drift (temperature, neighbours). Assumed."""
STEP_NOISE = {"steady": 0.03, "shared": 0.10, "lengths": 0.25}
"""Sigma of the logarithm of one step: a dedicated machine, one that is shared, batches of unequal length. That unequal
lengths make healthy ranks unequal is in Lin et al., "Understanding stragglers in large model training using what-if
analysis" (arXiv 2505.05713); the numbers are assumed."""
PAUSE_CHANCE, PAUSE_STEPS = 0.01, 0.5
"""A step with a pause of one rank, and its mean length in steps: Python's garbage collection (named as a cause there
too); the numbers are assumed."""
BURSTS_AN_HOUR, BURST_SECONDS, BURST_MOST, BURST_FACTOR = 1.0, 8.0, 25.0, (1.5, 3.0)
"""Short contention on one member that is over before anybody could act. Wu et al., "Greyhound" (USENIX ATC 25, arXiv
2410.12588): fail-slows last from less than a minute to nearly ten hours; below half a minute it is noise here."""
CHECKPOINT_MINUTES, CHECKPOINT_SECONDS, CHECKPOINT_UNSEEN = (5.0, 30.0), (5.0, 60.0), 0.2
"""Interval, duration on rank 0, and the share of jobs whose saves the hooks do not recognise. Assumed."""
VALIDATION_MINUTES, VALIDATION_SECONDS = (10.0, 60.0), (5.0, 120.0)
"""On all ranks, each a little different. Assumed; never seen by the hooks here."""
JOB_SLOW_AN_HOUR, JOB_SLOW_MINUTES, JOB_SLOW_FACTOR = 0.5, (1.0, 20.0), (1.3, 3.0)
"""Every member slower at once: storage, a network that all share. Assumed."""
SLOW_MINUTES = 10.0
"""How long a slow member is slow: the mean of computation fail-slows in Greyhound."""

# -- what differs from job to job -------------------------------------------------------------------------------------
MEMBERS = (2, 4, 8, 16, 32, 64)
NPROC = (1, 1, 8)
STEP_SECONDS = (0.1, 20.0)
"""Log-uniform: a small model on CPU to a large one with accumulated gradients."""
OWN_SHARE = (0.2, 0.9)
"""Of a step's time."""


@dataclass(frozen=True, slots=True)
class Job:
    members: int
    nproc: int
    step_seconds: float
    own_share: float
    noise: float
    checkpoint_every: float
    """Seconds."""
    checkpoint_takes: float
    checkpoints_are_seen: bool
    validation_every: float
    validation_takes: float
    machine: Floats
    """Each member's constant factor."""

    @property
    def own_seconds(self) -> float:
        return self.step_seconds * self.own_share


@dataclass(frozen=True, slots=True)
class Slow:
    """One member that is `factor` times slower from `begins` to `ends`."""

    member: int
    factor: float
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class Window:
    """Some steps in a row, at the same numbers on all ranks. `own` and `left_out` are (rank, step); a step that is left
    out is one in which the hooks have seen a checkpoint begin or end."""

    ends: float
    """Seconds since the job began."""
    first_step: int
    step_seconds: float
    own: Floats
    left_out: Flags


def make_job(random: np.random.Generator) -> Job:
    members = int(random.choice(MEMBERS))
    low, high = np.log(STEP_SECONDS)
    return Job(
        members=members,
        nproc=int(random.choice(NPROC)),
        step_seconds=float(np.exp(random.uniform(low, high))),
        own_share=float(random.uniform(*OWN_SHARE)),
        noise=STEP_NOISE[str(random.choice(sorted(STEP_NOISE)))],
        checkpoint_every=60 * random.uniform(*CHECKPOINT_MINUTES),
        checkpoint_takes=random.uniform(*CHECKPOINT_SECONDS),
        checkpoints_are_seen=bool(random.random() >= CHECKPOINT_UNSEEN),
        validation_every=60 * random.uniform(*VALIDATION_MINUTES),
        validation_takes=random.uniform(*VALIDATION_SECONDS),
        machine=np.minimum(np.exp(random.normal(0.0, MACHINE_SPREAD, members)), MACHINE_MOST),
    )


class _Course:
    """The events in one job, step by step."""

    def __init__(self, job: Job, seconds: float, slow: Slow | None, random: np.random.Generator) -> None:
        self.job, self.slow, self.random = job, slow, random
        self.drift, self.drifted_at = random.normal(0.0, DRIFT, job.members), 0.0
        count = random.poisson(BURSTS_AN_HOUR * job.members * seconds / 3600)
        self.bursts = [self._burst(seconds) for _ in range(count)]
        count = random.poisson(JOB_SLOW_AN_HOUR * seconds / 3600)
        self.slow_times = [self._slow_time(seconds) for _ in range(count)]

    def _burst(self, seconds: float) -> tuple[int, float, float, float]:
        member, begins = int(self.random.integers(self.job.members)), self.random.uniform(0, seconds)
        takes = min(self.random.exponential(BURST_SECONDS), BURST_MOST)
        return member, begins, begins + takes, self.random.uniform(*BURST_FACTOR)

    def _slow_time(self, seconds: float) -> tuple[float, float, float]:
        begins = self.random.uniform(0, seconds)
        ends = begins + 60 * self.random.uniform(*JOB_SLOW_MINUTES)
        return begins, ends, self.random.uniform(*JOB_SLOW_FACTOR)

    def factors(self, at: float) -> Floats:
        """By member, everything but what differs from step to step."""
        kept = np.exp(-(at - self.drifted_at) / DRIFT_SECONDS)
        fresh = self.random.normal(0.0, DRIFT * np.sqrt(1 - kept**2), self.job.members)
        self.drift, self.drifted_at = kept * self.drift + fresh, at
        found = self.job.machine * np.exp(self.drift)
        for member, begins, ends, factor in self.bursts:
            if begins <= at < ends:
                found[member] *= factor
        if self.slow is not None and self.slow.begins <= at < self.slow.ends:
            found[self.slow.member] *= self.slow.factor
        return found * self.pace(at)

    def pace(self, at: float) -> float:
        return float(np.prod([factor for begins, ends, factor in self.slow_times if begins <= at < ends]))

    def steps(self, at: float, count: int) -> Floats:
        """(rank, step): own seconds, without checkpoints and validation."""
        job = self.job
        shape = (job.members * job.nproc, count)
        steps = np.exp(self.random.normal(0.0, job.noise, shape))
        pauses = self.random.random(shape) < PAUSE_CHANCE
        steps += pauses * self.random.exponential(PAUSE_STEPS / job.own_share, shape)
        own: Floats = job.own_seconds * np.repeat(self.factors(at), job.nproc)[:, None] * steps
        return own


def windows(job: Job, seconds: float, stride: int, count: int, slow: Slow | None,
            random: np.random.Generator) -> Iterator[Window]:  # fmt: skip
    """The steps number m × stride … m × stride + count - 1 of every m, for so many seconds of training."""
    course, at, step = _Course(job, seconds, slow, random), 0.0, 0
    saved = validated = 0
    while at < seconds:
        own = course.steps(at, count)
        left_out = np.zeros(own.shape, dtype=np.bool_)
        step_seconds = float(np.median(own.max(axis=0))) + job.step_seconds * (1 - job.own_share)
        took = step_seconds * stride
        saves, validations = int(at / job.checkpoint_every), int(at / job.validation_every)
        if saves > saved:
            which = int(random.integers(stride))
            at, saved = at + job.checkpoint_takes, saves
            if which < count:
                own[0, which] += job.checkpoint_takes
                left_out[0, which] = job.checkpoints_are_seen
        if validations > validated:
            which = int(random.integers(stride))
            at, validated = at + job.validation_takes, validations
            if which < count:
                own[:, which] += job.validation_takes * np.exp(random.normal(0.0, job.noise, len(own)))
        yield Window(at + step_seconds * count, step, step_seconds, own, left_out)
        at, step = at + took, step + stride
