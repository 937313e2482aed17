"""What a seed decides before anything happens: the job, the script and the pace of the world."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from outrider.master.core.spec import THROUGHPUT, JobSpec
from outrider.wire.ids import JobName
from tests.simulation import lines

SIZES = (1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 5, 6, 8, 16)
OWNED = 0.15
"""Jobs whose pods another controller makes."""
ALONE_AFTER = 300.0
"""Half of it is longer than any master of a seed is away from the members or the platform."""
CHECKED = 0.3
"""Jobs that measure their members."""
SCALING = 0.2
"""Jobs that find their own size, of those that have a range and make their pods."""
CHECKS_LAST = 60.0
"""Seconds that the checks of newcomers and of those who replace bad ones may take, while nothing goes wrong."""


@dataclass(frozen=True, slots=True)
class Scenario:
    spec: JobSpec
    chaos_seconds: float
    step_seconds: float
    save_every: int
    save_seconds: tuple[float, float]
    init_seconds: tuple[float, float]
    pod_seconds: tuple[float, float]
    handles_sigterm: bool
    total_steps: int
    crash_at: int | None
    import_error: bool
    fork_fails: float
    stop_at: float | None
    """When the user ends the job."""
    stop_hard: bool
    delete_grace: float | None
    """The job is deleted instead, and its pods with it, each with so many seconds."""
    memory_limit: int
    """Bytes of each container; 0: none has a limit, and who runs out of memory begins again in place."""
    evaluates_every: int
    """Each so many saves are an evaluation instead; 0: none is."""
    alone_after: float = 0.0
    """Seconds after which a pod whose command forms its world by itself begins without a master; 0: none does."""

    @property
    def recovery_seconds(self) -> float:
        """A start that is overdue, a stop with all its graces, a pod from nothing, and the patience of growth; seen at
        most: 134 s and the patience of growth. A hang has its limit. A script that ends has its work to do, and one
        that fails at once all the restarts that its user has given it."""
        work = self.total_steps * (self.step_seconds + self.save_seconds[1] / self.save_every)
        limits = (self.spec.hang_step or 60.0, self.spec.hang_init, self.spec.hang_checkpoint, self.spec.hang_eval)
        checks = CHECKS_LAST if self.spec.node_check else 0.0
        tries = 8.0 * self.spec.max_restarts if self.import_error or self.crash_at is not None else 0.0
        return 150.0 + max(limit or 0.0 for limit in limits) + self.spec.grow_patience + work + checks + tries

    @staticmethod
    def of(seed: int) -> Scenario:
        rng = random.Random(f"scenario {seed}")
        of_memory = random.Random(f"memory {seed}")
        is_owned = random.Random(f"owner {seed}").random() < OWNED
        of_check = random.Random(f"check {seed}")
        memory = of_memory.choice((0, 700 << 20))
        of_hangs = random.Random(f"hangs {seed}")
        of_end = random.Random(f"end {seed}")
        is_slow = of_hangs.random() < 0.15
        size = rng.choice(SIZES)
        kind = rng.random()
        spec = JobSpec(
            name=JobName("sim"),
            min_members=size if rng.random() < 0.3 else rng.randint(1, size),
            max_members=size,
            replicas=size,
            nproc=rng.choice((1, 1, 1, 2)),
            spares=rng.choice((0, 0, 0, 1)),
            max_restarts=rng.choice((3, 10, 100)),
            max_restarts_asked=True,
            max_relaunches=rng.choice((None, None, None, None, 0)),
            grow_patience=rng.choice((20.0, 60.0)),
            handler_grace=5.0,
            save_grace=20.0,
            start_patience=20.0,
            keep_failed_pods=of_memory.choice((None, 0, 1, 3)),
            max_memory=of_memory.choice((None, 2000 << 20)),
            hang_step=10.0 if is_slow else of_hangs.choice((None, 10.0, 20.0)),
            hang_init=45.0,
            hang_checkpoint=60.0,
            hang_eval=60.0,
        )
        if is_owned:  # who runs out of memory begins again in place, and no pod is made by the master
            spec = replace(spec, is_adopted=True, spares=0, max_relaunches=None, keep_failed_pods=None)
            memory = 0
        if of_check.random() < CHECKED:
            spec = replace(spec, node_check=True, exclude_stragglers=of_check.random() < 0.5)
        spec = replace(spec, **_scaling(spec, random.Random(f"scaling {seed}")))
        alone_after = _alone_after(spec, random.Random(f"alone {seed}"))
        by_signal = "SIGUSR1" if random.Random(f"save signal {seed}").random() < 0.15 else ""
        return Scenario(
            spec=replace(spec, rules=lines.rules_of(seed), save_signal=by_signal),
            chaos_seconds=rng.uniform(30, 90) + 1.1 * alone_after,
            step_seconds=rng.choice((0.1, 0.3, 0.5)),
            save_every=rng.choice((5, 10, 20)),
            save_seconds=_save_seconds(rng, is_slow),
            init_seconds=rng.choice(((0.02, 0.1), (0.5, 3.0))),
            pod_seconds=rng.choice(((0.05, 0.5), (2.0, 10.0))),
            handles_sigterm=rng.random() < 0.2,
            total_steps=rng.randint(30, 300) if kind < 0.08 else 0,
            crash_at=1 if 0.08 <= kind < 0.10 else None,
            import_error=0.10 <= kind < 0.12,
            fork_fails=rng.choice((0.0, 0.0, 0.02)),
            stop_at=rng.uniform(1, 60) if rng.random() < 0.08 else None,
            stop_hard=rng.random() < 0.3,
            delete_grace=of_end.choice((3.0, 10.0, 30.0)) if of_end.random() < 0.5 else None,
            memory_limit=memory,
            evaluates_every=of_hangs.choice((0, 2, 5)),
            alone_after=alone_after,
        )


def _alone_after(spec: JobSpec, rng: random.Random) -> float:
    """Only jobs of another owner that have one size (`injection_alone`)."""
    return rng.choice((0.0, ALONE_AFTER)) if spec.is_adopted and spec.min_members == spec.max_members else 0.0


def _scaling(spec: JobSpec, rng: random.Random) -> dict[str, Any]:
    """Some jobs find their own size, which changes under all that goes wrong."""
    if spec.is_adopted or spec.min_members == spec.max_members or rng.random() > SCALING:
        return {}
    return {
        "scaling": THROUGHPUT,
        "replicas": rng.randint(spec.min_members, spec.max_members),
        "min_gain": rng.choice((0.0, 0.5)),
        "scale_cooldown": rng.choice((0.0, 30.0)),
        "scale_evaluation": rng.choice((20.0, 1800.0)),
        "scale_room_patience": 5.0,
    }


def _save_seconds(rng: random.Random, is_slow: bool) -> tuple[float, float]:
    """Slow: longer than a step may take before it hangs."""
    usual = rng.choice(((0.05, 0.3), (1.0, 6.0)))
    return (15.0, 25.0) if is_slow else usual
