"""Outrider is upgraded under a running job, and put back: the job of one machine, whose new processes are of the
release that is installed then, under the names that an image has for one release. Masters and members of both releases
meet over real sockets and one real status file.
"""

from __future__ import annotations

import sysconfig
import venv
from contextlib import suppress
from pathlib import Path

import pytest

from manifests import old_names
from tests import release_before
from tests.local import plain
from tests.local.training import Training, World, jobs, kill, members, pids

pytestmark = pytest.mark.slow


class Installation:
    """A Python of its own, in which one release is installed at a time, beside all that this Python has."""

    def __init__(self, folder: Path) -> None:
        self._current, self._next = folder / "current", folder / "next"
        venv.create(folder / "venv", symlinks=True)
        self.python = str(folder / "venv" / "bin" / "python")
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        names = folder / "names"
        names.mkdir()
        old_names.make_modules(names)
        (packages / "releases.pth").write_text(f"{self._current}\n{names}\n{sysconfig.get_path('purelib')}\n")

    def install(self, release: Path) -> None:
        self._next.symlink_to(release)
        self._next.rename(self._current)


def _is_taken_over(job: Training, restart: int, world: World) -> None:
    """By a master of what is installed now: no process ends, and each rank makes one step behind the other."""
    mark, made = job.mark(), len(world[0])
    kill(job.master())
    job.event("GenerationAdopted", mark)
    same, now = job.training(2, more=made + 30)
    assert (same, pids(now)) == (restart, pids(world))
    for steps in now.values():
        assert [each.step for each in steps] == list(range(steps[0].step, steps[0].step + len(steps)))


def _is_mended(job: Training) -> None:
    """A rank is killed, then a whole member, whose replacement is of what is installed now."""
    restart, world = job.now()
    restart, world = job.training(2, more=len(world[0]) + 20)
    kill(pids(world)[1])
    restart, world = job.training(2, after=restart, more=20)
    for pid in job.tree(members(world)[1]):
        with suppress(ProcessLookupError):
            kill(pid)
    job.training(2, after=restart, more=20)


def test_a_job_trains_through_an_upgrade_and_back(tmp_path: Path) -> None:
    before, after, here = tmp_path / "before", tmp_path / "after", Installation(tmp_path)
    before.mkdir()
    after.mkdir()
    for name in ("outrider", "training_hooks"):
        (after / name).symlink_to(release_before.REPOSITORY / name)
    here.install(release_before.unpacked(before))

    class Installed(Training):
        @staticmethod
        def cli(*arguments: str) -> list[str]:
            return [here.python, "-P", "-E", "-m", "cli", *arguments]

    with jobs() as (home, started):
        work = home / "work"
        work.mkdir()
        job = Installed(work, home, "--nnodes", "2", "--nproc-per-node", "1", script=plain.SCRIPT)
        started.append(job)
        job.training(2, more=20)
        for release in (after, before):
            here.install(release)
            _is_taken_over(job, *job.now())
            _is_mended(job)
        job.end_well()
