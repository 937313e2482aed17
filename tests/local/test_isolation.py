"""A member whose master and whose peers' sidecars are all frozen at once: to it, that is to be cut off."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.processes import is_alive
from tests.local.training import Training, members, pids, until

pytestmark = pytest.mark.slow


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Training]:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    training = Training(tmp_path, home, "--nnodes", "3")
    try:
        yield training
    finally:
        training.close()
        shutil.rmtree(home)


def test_it_stops_its_rank_by_itself_and_the_job_goes_on_when_the_others_are_back(job: Training) -> None:
    restart, world = job.training(3)
    victim, others = members(world)[1], [members(world)[0], members(world)[2]]
    mark = job.mark()
    frozen = [job.master(), *map(job.sidecar, others)]
    log = job.job_folder / "members" / victim / "sidecar.log"
    try:
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: not is_alive(pids(world)[1]), lambda: f"the rank of {victim} to end: {log.read_text()[-4000:]}")
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    event = job.event("MemberIsolated", mark, f"{victim} says: neither the master nor", "this member is cut off")
    assert event["member"] == victim
    _, new = job.training(3, after=restart)
    assert members(new) == members(world)
    assert [e["member"] for e in job.events(mark) if e["kind"] == "MemberIsolated"] == [victim]
    job.end_well()
