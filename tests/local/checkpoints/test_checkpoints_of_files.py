"""A checkpoint of several files, and a world that changes: they are of one step, always."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.training import SCRIPT, Training, members, until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
TWO_FILES = SCRIPT.replace(
    'torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "x": extra}, path)',
    'torch.save({"model": net.state_dict(), "step": step}, path)\n'
    "            time.sleep(0.1)  # what has to be gathered for the next file\n"
    '            torch.save({"optimizer": optimizer.state_dict(), "step": step, "x": extra}, FOLDER / "optimizer.pt")',
).replace(
    'optimizer.load_state_dict(saved["optimizer"])',
    'other = torch.load(FOLDER / "optimizer.pt")\n'
    '        assert saved["step"] == other["step"], "the model and the optimizer are of different steps"\n'
    '        optimizer.load_state_dict(other["optimizer"])',
)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Training]:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    made = Training(tmp_path, home, "--nnodes", "2:3", script=TWO_FILES)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(home)


def test_a_world_that_grows_at_a_checkpoint_or_is_stopped_in_one_leaves_both_files_of_one_step(job: Training) -> None:
    restart, world = job.training(3)
    mark = job.mark()
    job.signal_tree(members(world)[2], signal.SIGKILL)
    smaller, _ = job.training(2, after=restart)
    job.event("ResizeStarted", mark, "A checkpoint of step")
    larger, world = job.training(3, after=smaller)
    (job.folder / "saving").unlink(missing_ok=True)
    (job.folder / "slow").touch()
    until((job.folder / "saving").exists, job.story)  # rank 0 is in the second file
    job.signal_tree(members(world)[2], signal.SIGKILL)
    (job.folder / "slow").unlink()
    job.training(2, after=larger)
    assert not [event for event in job.events() if "different steps" in event["reason"]], job.story()
