"""`outrider restart` of a job that trains: refused where the script could not begin, live where it can."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.training import SCRIPT, Training, kill, pids

pytestmark = pytest.mark.slow
SIZE = 2
WITH_LIBRARY = SCRIPT.replace("import torch\n", "import torch\nimport library\n").replace(
    "10, 1\n", "10, library.VERSION\n"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prefix") / "site-packages"
    folder.mkdir()
    (folder / "library.py").write_text("VERSION = 1\n")
    return folder


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Iterator[Training]:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(site))
        training = Training(tmp_path_factory.mktemp("two"), home, "--nnodes", str(SIZE), script=WITH_LIBRARY)
    try:
        yield training
    finally:
        training.close()
        shutil.rmtree(home)


def refused(job: Training, *words: str) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    done = subprocess.run(job.cli("restart", job.job), env=job.environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2
    assert all(word in done.stderr for word in ("it trains on, the restart is refused", *words)), done.stderr
    job.event("RestartRefused", mark, *words)
    still, same = job.training(SIZE, more=len(world[0]) + 10)
    assert (still, pids(same)) == (restart, pids(world)), job.told(mark)


def test_a_script_that_could_not_begin_is_refused_and_the_job_trains_on(job: Training) -> None:
    job.training(SIZE)
    whole = job.script.read_text()
    beside = job.script.with_name("beside.py")
    job.script.write_text(whole + "\ndef (\n")
    refused(job, "train.py line", "SyntaxError")
    job.script.write_text("import beside\n" + whole)
    refused(job, "train.py line 1", "No module named 'beside'")
    beside.write_text("x = [\n")
    refused(job, "beside.py line 1", "SyntaxError")
    beside.write_text("x = []\n")
    restart, _ = job.training(SIZE)
    job.outrider("restart", job.job)
    job.training(SIZE, after=restart)


def test_a_template_whose_library_was_changed_is_never_forked_again(job: Training, site: Path) -> None:
    restart, world = job.training(SIZE)
    templates = [job.template(f"worker-{index}") for index in range(SIZE)]
    (site / "library.py.new").write_text("VERSION = 22\n")
    os.replace(site / "library.py.new", site / "library.py")
    mark = job.mark()
    job.outrider("restart", job.job)
    restart, world = job.training(SIZE, after=restart)
    assert {steps[0].version for steps in world.values()} == {22}
    assert [job.template(f"worker-{index}") for index in range(SIZE)] == templates
    kill(pids(world)[1])
    _, world = job.training(SIZE, after=restart)
    assert {steps[0].version for steps in world.values()} == {22}
    assert "TrainerLost" not in job.told(mark)
