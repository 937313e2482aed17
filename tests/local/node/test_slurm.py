"""Within Slurm: one node, started once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cli.errors import UserError
from outrider.cli.run.slurm import about_slurm

ONE_NODE = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "SLURM_NODELIST": "n1", "SLURM_CPUS_ON_NODE": "2",
}  # fmt: skip


def test_an_allocation_of_one_node_needs_no_word() -> None:
    assert about_slurm({}) == []
    assert about_slurm(ONE_NODE) == []
    assert about_slurm({"SLURM_JOB_NUM_NODES": "x", "SLURM_STEP_NUM_TASKS": ""}) == []


def test_of_more_nodes_one_is_used_and_that_is_said() -> None:
    (line,) = about_slurm(ONE_NODE | {"SLURM_JOB_NUM_NODES": "4"})
    assert "has 4 nodes, but outrider run uses only the node it was started on" in line


def test_one_command_a_rank_is_refused() -> None:
    with pytest.raises(UserError, match=r"started this command 4 times.*srun --ntasks=1"):
        about_slurm(ONE_NODE | {"SLURM_STEP_NUM_TASKS": "4"})


@pytest.mark.slow
def test_a_job_in_an_allocation_has_its_own_ranks(tmp_path: Path, home: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text("import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])")
    done = subprocess.run(
        [sys.executable, "-P", "-E", "-m", "outrider", "run", "--nproc-per-node", "2", str(script)],
        env={**os.environ, **ONE_NODE, "OUTRIDER_HOME": str(home)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0]: rank 0 of 2", "[1]: rank 1 of 2"]
