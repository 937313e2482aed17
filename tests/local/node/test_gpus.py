"""Which GPUs the ranks of real jobs see: a division of what the user allows. No GPU is needed, no rank uses one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lines import whole_lines
from tests.local.training import Training, jobs, until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

MODULE = """
import os
AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES")
"""
SCRIPT = """
import os, sys, time
from pathlib import Path
from devices import AT_IMPORT

folder = Path(sys.argv[1])
names = ("OUTRIDER_GENERATION", "RANK", "CUDA_VISIBLE_DEVICES")
seen = [*(os.environ[name] for name in names), Path(os.environ["OUTRIDER_DIR"]).name, AT_IMPORT]
with (folder / "seen.txt").open("a") as file:
    file.write(" ".join(seen) + "\\n")
while not (folder / "end").exists():
    time.sleep(0.02)
"""
SHELL = """#!/bin/sh
echo $OUTRIDER_GENERATION $NODE_RANK $CUDA_VISIBLE_DEVICES ${OUTRIDER_DIR##*/} $CUDA_VISIBLE_DEVICES >> seen.txt
until [ -e end ]; do sleep 0.05; done
"""
Seen = list[tuple[str, str]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,GPU-a,GPU-b")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "devices.py").write_text(MODULE)
    (tmp_path / "trainer.sh").write_text(SHELL)
    with jobs() as (home, started):

        def begin(*flags: str) -> Training:
            started.append(Training(tmp_path, home, *flags, script=SCRIPT))
            return started[-1]

        yield begin


def seen(job: Training, generation: str, count: int) -> Seen:
    """(member, devices) by rank, once so many have written it. A module that looked at its import has seen the same."""

    def rows() -> list[list[str]]:
        job.assert_goes_on()
        found = sorted(line.decode().split() for line in whole_lines(job.folder / "seen.txt"))
        return [row for row in found if row[0] == generation]

    until(lambda: len(rows()) == count, lambda: f"{count} ranks of {generation}\n{job.story()}")
    assert all(row[4] == row[2] for row in rows()), rows()
    return [(row[3], row[2]) for row in rows()]


@pytest.mark.parametrize("spares", [0, 1])
def test_who_takes_a_lost_member_s_place_has_its_gpus(start: Any, spares: int) -> None:
    job = start("--nnodes", "2", "--spares", str(spares))
    assert seen(job, "1.1", 2) == [("worker-0", "0,1"), ("worker-1", "GPU-a,GPU-b")]
    assert "outrider: GPUs: worker-0 has 0,1; worker-1 has GPU-a,GPU-b\n" in job.log()
    if spares:
        until(lambda: job.member("worker-2").get("state") == "spare", job.story)
    job.outrider("chaos", "kill-member", "train", "--member", "worker-1")
    assert seen(job, "1.2", 2) == [("worker-0", "0,1"), ("worker-2", "GPU-a,GPU-b")]
    job.outrider("chaos", "kill-process", "train", "--member", "worker-0")
    assert seen(job, "1.3", 2) == [("worker-0", "0,1"), ("worker-2", "GPU-a,GPU-b")]
    job.end_well()


def test_who_trains_on_without_a_lost_member_has_the_gpus_that_it_had(start: Any) -> None:
    job = start("--nnodes", "2:3", "--max-relaunches", "0", "--nproc-per-node", "1")
    assert seen(job, "1.1", 3) == [("worker-0", "0"), ("worker-1", "1"), ("worker-2", "GPU-a")]
    assert "worker-2 has GPU-a; not used: GPU-b\n" in job.log()
    job.outrider("chaos", "kill-member", "train", "--member", "worker-1")
    assert seen(job, "1.2", 2) == [("worker-0", "0"), ("worker-2", "GPU-a")]
    job.end_well()


def test_a_command_has_the_gpus_of_its_member(start: Any, tmp_path: Path) -> None:
    job = start("--nnodes", "2", "--nproc-per-node", "2", "--", "sh", str(tmp_path / "trainer.sh"))
    assert seen(job, "1.1", 2) == [("worker-0", "0,1"), ("worker-1", "GPU-a,GPU-b")]
    job.end_well()


def test_without_sharing_or_members_to_share_with_the_users_list_stays(start: Any) -> None:
    job = start("--nnodes", "2", "--share-gpus", "off")
    assert {devices for _, devices in seen(job, "1.1", 2)} == {"0,1,GPU-a,GPU-b"}
    assert "GPUs:" not in job.log()
    job.end_well()
