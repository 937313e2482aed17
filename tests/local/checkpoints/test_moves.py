"""Planned moves of real jobs: a script that has registered its state loses no step when its job or a member has to go.

The script saves nothing itself, so whatever a world goes on from is what was saved because it was asked for.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.chapters import live_through
from tests.local.scripts import calm, handling, migrating
from tests.local.training import DEADLINE, SCRIPT, Training, World, jobs, members, until

pytestmark = pytest.mark.slow


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Starts the job once more in a folder of its own: what a job leaves for the next is on the volume alone."""

    def begin(*flags: str, script: str | None = None) -> Training:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        moves = () if script else ("--migration-dir", str(tmp_path / "volume"))
        started.append(Training(folder, home, *moves, *flags, script=script or calm(migrating())))
        return started[-1]

    with jobs() as (home, started):
        yield begin


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "volume" / "train" / "migration.json").read_text())
    return found


def trained(job: Training, after: int = -1) -> World:
    """Of the newest whole world after that restart, some steps."""

    def found() -> World | None:
        worlds = {number: world for number, world in job.worlds().items() if number > after}
        world = worlds[max(worlds)] if worlds else {}
        return world if world and min(map(len, world.values())) >= 5 else None

    return until(found, job.story)


def last_step(world: World) -> int:
    return max(steps[-1].step for steps in world.values())


def goes_on(job: Training, before: World, after: int) -> tuple[int, World]:
    """The next world begins with the step behind the last that was made."""
    world = trained(job, after)
    made = max(step.step for step in job.steps() if step.restart == after)
    assert {steps[0].loaded for steps in world.values()} == {made}, job.told(0)
    assert len(world) == len(before)
    return world[0][0].restart, world


def parent_of(pid: int) -> int:
    """The template of a rank."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_no_step_is_repeated_when_a_member_has_to_go_or_a_restart_is_asked_for_or_the_job_is_stopped_and_begun_anew(
    start: Callable[..., Training], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    def a_member_has_to_go(job: Training) -> None:
        first = trained(job)
        os.kill(parent_of(first[1][0].pid), signal.SIGTERM)
        job.event("MemberDraining", 0, "worker-0 has to leave (SIGTERM)")
        _, second = goes_on(job, first, 0)
        assert members(second) != members(first)

    def a_restart_is_asked_for(job: Training) -> None:
        _, world = job.now()
        job.outrider("restart", "train", "--at-checkpoint")
        goes_on(job, world, world[0][0].restart)
        assert not [name for name in (tmp_path / "volume" / "train").iterdir() if name.name.startswith(".")]

    def the_stopped_job_is_begun_anew(job: Training) -> None:
        mark = job.mark()
        job.outrider("stop", "train")
        assert job.process.wait(DEADLINE) == 0, job.log()
        made = max(step.step for step in job.steps())
        saved = job.event("StateSaved", mark)
        assert record(tmp_path)["step"] == made, (saved, job.told(0))
        assert record(tmp_path)["history"][0]["what"] == "start"
        assert record(tmp_path)["history"][-1]["what"] == "saved"
        world = trained(start("--nproc-per-node", "2"))
        assert {steps[0].loaded for steps in world.values()} == {made}

    moves = (a_member_has_to_go, a_restart_is_asked_for, the_stopped_job_is_begun_anew)
    live_through(subtests, start("--nproc-per-node", "2"), *moves)


@pytest.mark.exhaustive
def test_a_state_that_was_damaged_is_told_and_the_script_begins_as_without_it(
    start: Callable[..., Training], tmp_path: Path
) -> None:
    job = start()
    trained(job)
    job.outrider("stop", "train")
    assert job.process.wait(DEADLINE) == 0, job.log()
    (path,) = (tmp_path / "volume" / "train").glob("state-*.pth")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    again = start()
    assert {steps[0].loaded for steps in trained(again).values()} == {0}
    again.event("SavedStateUnusable", 0, path.name, "damaged", "starts without it")


@pytest.mark.exhaustive
def test_a_script_that_registers_is_told_that_it_needs_a_directory(tmp_path: Path) -> None:
    with jobs() as (home, started):
        started.append(Training(tmp_path, home, script=migrating()))
        assert started[0].process.wait(DEADLINE) == 1
        assert "planned moves need a directory that outlives the pods" in started[0].log()


@pytest.mark.exhaustive
def test_a_state_that_cannot_be_written_is_told_and_the_job_ends(
    start: Callable[..., Training], tmp_path: Path
) -> None:
    job = start()
    trained(job)
    job.order(0, "progress['lock'] = __import__('threading').Lock()")
    until(lambda: not (job.folder / "order-0").exists())
    job.outrider("stop", "train")
    assert job.process.wait(DEADLINE) == 0, job.log()
    job.event("StateNotSaved", 0, "TypeError", "lock")
    assert "file" not in record(tmp_path)


@pytest.mark.exhaustive
def test_a_script_with_a_handler_of_its_own_saves_when_it_gets_the_signal(start: Callable[..., Training]) -> None:
    job = start("--nnodes", "2", "--save-signal", "SIGUSR1", script=handling())
    trained(job)
    job.outrider("restart", "train", "--at-checkpoint")
    second = trained(job, 0)
    (saved,) = job.saved
    assert {steps[0].loaded for steps in second.values()} == {saved}
    job.event("StateSaved", 0, f"model.pt at step {saved}, as requested by SIGUSR1")
    job.outrider("stop", "train")
    assert job.process.wait(DEADLINE) == 0, job.log()
    job.steps()
    assert len(job.saved) == 2
    assert saved < job.saved[1] <= last_step(job.worlds()[1])


@pytest.mark.exhaustive
def test_a_script_without_a_handler_lives_and_it_is_told(start: Callable[..., Training]) -> None:
    job = start("--save-signal", "SIGUSR1", script=SCRIPT)
    trained(job)
    job.outrider("stop", "train")
    assert job.process.wait(DEADLINE) == 0, job.log()
    job.event("StateNotSaved", 0, "local rank 0 has no handler for SIGUSR1 (yet)")
