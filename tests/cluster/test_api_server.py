"""The API server is away for two minutes, and ranks are killed meanwhile.

A cluster cannot be asked for that: `$OUTRIDER_LAB stop-api` ends it, and `$OUTRIDER_LAB start-api` brings it back.
Ranks are killed from their node, which is the tests' machine.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import DEADLINE, ClusterJob, until
from tests.cluster.conftest import Make
from tests.cluster.masters import counts, leader, restarted
from tests.cluster.reading import shown
from tests.local.training import World

LAB = os.environ.get("OUTRIDER_LAB", "")
AWAY, KILLS = 120.0, 4
"""Seconds, and ranks that are killed meanwhile: fewer than there are restarts and reserved numbers."""

pytestmark = [
    pytest.mark.skipif(not LAB, reason="OUTRIDER_LAB names no command that stops the API server"),
    pytest.mark.exhaustive,
    pytest.mark.alone,
]


def lab(what: str) -> None:
    done = subprocess.run([*shlex.split(LAB), what], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, f"{LAB} {what}: {done.stderr}"


@pytest.fixture
def away() -> Iterator[None]:
    lab("stop-api")
    yield
    lab("start-api")


def kill_rank(uid: str, rank: int) -> None:
    """By the cgroup of its pod: nobody can be asked for it now."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_it = (process / "comm").read_text().strip() == f"rank {rank}"
            if is_it and uid in (process / "cgroup").read_text().replace("_", "-"):
                os.kill(int(process.name), signal.SIGKILL)
                return
        except OSError:  # it has ended
            continue
    raise AssertionError(f"there is no rank {rank} of pod {uid} on this machine")


def trains(job: ClusterJob, after: int) -> tuple[int, World]:
    """As `training`, by what the ranks have written alone."""

    def found() -> tuple[int, World] | None:
        newest = max(job.worlds(), default=-1)
        world = job.worlds().get(newest, {})
        return (newest, world) if newest > after and len(world) == 4 and min(map(len, world.values())) >= 3 else None

    restart, world = until(found, lambda: f"no world after restart {after}: {sorted(job.worlds())}")
    job.check(restart, world)
    return restart, world


def trains_until(job: ClusterJob, moment: float) -> None:
    """A step is made behind it."""
    until(lambda: max(step.time for step in job.steps()) > moment, f"a step behind {moment}: {len(job.steps())}")


def test_ranks_that_are_killed_while_the_api_server_is_away_begin_again_in_place(
    make: Make, request: pytest.FixtureRequest
) -> None:
    job = make()
    restart, _world = job.training(4)
    uid = shown("pods", job.pod("worker-1"), job.namespace)["metadata"]["uid"]
    masters, led = counts(), leader()["metadata"]["uid"]
    request.getfixturevalue("away")
    began = time.time()
    restart, _world = trains(job, after=restart - 1)
    for part in range(1, KILLS + 1):
        trains_until(job, began + AWAY * part / (KILLS + 1))
        kill_rank(uid, 3)
        restart, _world = trains(job, after=restart)
    trains_until(job, began + AWAY)
    lab("start-api")
    job.event("LeaseRegained")
    restart, _world = job.training(4, after=restart - 1, more=20)
    assert leader()["metadata"]["uid"] == led
    assert restarted(masters, counts()) == {}
