"""Made-up jobs for the benchmark of scaling: how many samples a second each size makes, over the whole run.

Families and ranges were fixed before the policy was written, and nothing else is known to it than what a job's steps
show. A seed is a job: seeds 0, 5, 10 … are of the first family, 1, 6, 11 … of the second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

MOST_MEMBERS = (4, 32)
STEP_SECONDS = (0.002, 10.0)
"""Of one member alone; log-uniform, from a small model to a large one."""
HOURS = (2.0, 12.0)
NOISE = (0.05, 0.20)
"""Sigma of a step's logarithm."""
PARALLEL = (0.70, 0.99)
"""Amdahl: the share of a step's work that is divided."""
HALVED_AT = (2.0, 24.0)
"""Saturating: members at which half of what can be reached at the most is."""
CONTENTION, COHERENCE = (0.0, 0.15), (0.003, 0.06)
"""Peaked, Gunther's universal scalability law: what members wait for, and what each pair of them costs."""
MEMBERS_A_NODE, ACROSS = (2, 4, 8), (0.75, 0.97)
"""Boundaries: each further node multiplies what a member makes by this."""
DRIFTS_AT = (0.2, 0.6)
"""Drift: the share of the run after which the job follows another curve (longer sequences, another storage)."""
DRIFTS_BY = (0.5, 1.5)

Speedup = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Job:
    """`phases`: (from which second on, speed-up by members). A step makes `batch` samples a member."""

    seed: int
    family: str
    least: int
    most: int
    unit: int
    step_seconds: float
    noise: float
    seconds: float
    phases: Sequence[tuple[float, Speedup]]

    @property
    def sizes(self) -> range:
        return range(ceil(self.least / self.unit) * self.unit, self.most + 1, self.unit)

    def rate(self, size: int, at: float) -> float:
        """Steps of one member a second, as if it alone made what all make: throughput, without noise."""
        _begins, speedup = [phase for phase in self.phases if phase[0] <= at][-1]
        return speedup(size) / self.step_seconds

    def made(self, size: int) -> float:
        """In the whole run, by a fixed size."""
        ends = [begins for begins, _speedup in self.phases[1:]] + [self.seconds]
        return sum((end - begins) * self.rate(size, begins) for (begins, _), end in zip(self.phases, ends, strict=True))


def amdahl(random: np.random.Generator) -> Speedup:
    parallel = random.uniform(*PARALLEL)
    return lambda n: 1 / ((1 - parallel) + parallel / n)


def saturating(random: np.random.Generator) -> Speedup:
    half = random.uniform(*HALVED_AT)
    return lambda n: n * (1 + 1 / half) / (1 + n / half)


def peaked(random: np.random.Generator) -> Speedup:
    contention, coherence = random.uniform(*CONTENTION), random.uniform(*COHERENCE)
    return lambda n: n / (1 + contention * (n - 1) + coherence * n * (n - 1))


def boundaries(random: np.random.Generator) -> Speedup:
    a_node, across = int(random.choice(MEMBERS_A_NODE)), random.uniform(*ACROSS)
    return lambda n: n * across ** (ceil(n / a_node) - 1)


ONE_CURVE = (amdahl, saturating, peaked, boundaries)
FAMILIES = (*(family.__name__ for family in ONE_CURVE), "drift")


def make_job(seed: int) -> Job:
    random = np.random.default_rng(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    low, high = np.log(STEP_SECONDS)
    seconds, step_seconds = 3600 * random.uniform(*HOURS), float(np.exp(random.uniform(low, high)))
    unit = int(random.choice((1, 1, 1, 2)))
    return Job(
        seed, family, int(random.integers(1, 3)), int(random.integers(MOST_MEMBERS[0], MOST_MEMBERS[1] + 1)), unit,
        step_seconds, random.uniform(*NOISE), seconds, _phases(family, seconds, random),
    )  # fmt: skip


def _phases(family: str, seconds: float, random: np.random.Generator) -> list[tuple[float, Speedup]]:
    if family != "drift":
        return [(0.0, {each.__name__: each for each in ONE_CURVE}[family](random))]
    before, after = (ONE_CURVE[int(random.integers(len(ONE_CURVE)))](random) for _ in range(2))
    at, by = seconds * random.uniform(*DRIFTS_AT), random.uniform(*DRIFTS_BY)
    return [(0.0, before), (at, lambda n: by * after(n))]
