"""`outrider restart` of a job that trains: refused where the script could not begin, live where it can."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.local import plain
from tests.local.chapters import live_through
from tests.local.training import Training, kill, one_job, pids

pytestmark = pytest.mark.slow
SIZE = 2
SCRIPT = plain.SCRIPT.replace("from pathlib import Path\n", "from pathlib import Path\nimport library\n").replace(
    '"version": 1', '"version": library.VERSION'
)


def refused(job: Training, *words: str) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    done = subprocess.run(job.cli("restart", job.job), env=job.environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2
    assert all(word in done.stderr for word in ("the restart is refused, and no rank was stopped", *words)), done.stderr
    job.event("RestartRejected", mark, *words)
    still, same = job.training(SIZE, more=len(world[0]) + 10)
    assert (still, pids(same)) == (restart, pids(world)), job.told(mark)


def a_script_that_could_not_begin_is_refused_and_the_job_trains_on(job: Training) -> None:
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


def a_changed_script_is_live_after_a_restart(job: Training) -> None:
    restart, _ = job.training(SIZE)
    whole = job.script.read_text()
    job.script.write_text(whole.replace("library.VERSION", "2 * library.VERSION"))
    mark = job.mark()
    job.outrider("restart", job.job)
    job.event("RestartRequested", mark)
    _, new = job.training(SIZE, after=restart)
    assert {steps[0].version for steps in new.values()} == {2}
    assert new[0][0].step == new[0][0].loaded + 1


def a_template_whose_library_was_changed_is_never_forked_again(job: Training) -> None:
    restart, world = job.training(SIZE)
    templates = [job.template(f"worker-{index}") for index in range(SIZE)]
    site = Path(job.environment["PYTHONPATH"])
    (site / "library.py.new").write_text("VERSION = 22\n")
    os.replace(site / "library.py.new", site / "library.py")
    mark = job.mark()
    job.outrider("restart", job.job)
    restart, world = job.training(SIZE, after=restart)
    assert {steps[0].version for steps in world.values()} == {44}
    assert [job.template(f"worker-{index}") for index in range(SIZE)] == templates
    kill(pids(world)[1])
    _, world = job.training(SIZE, after=restart)
    assert {steps[0].version for steps in world.values()} == {44}
    assert "TrainerLost" not in job.told(mark)


def test_a_job_is_restarted_where_its_script_could_begin(
    tmp_path: Path, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "prefix" / "site-packages"
    site.mkdir(parents=True)
    (site / "library.py").write_text("VERSION = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    with one_job(tmp_path, "--nnodes", str(SIZE), script=SCRIPT) as job:
        live_through(
            subtests,
            job,
            a_script_that_could_not_begin_is_refused_and_the_job_trains_on,
            a_changed_script_is_live_after_a_restart,
            a_template_whose_library_was_changed_is_never_forked_again,
        )
        job.end_well()
