"""`outrider plot` of a real job that lives through a kill: while it runs, and when it is over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.timeline import rates, timeline_of
from runtime.series import moments
from tests.local.training import SCRIPT, jobs, kill, pids, until
from tests.local.training import Training as Job

pytestmark = pytest.mark.slow
PNG = b"\x89PNG"
SAYS = 'print(f"step {step} loss {loss.item():.4f}", flush=True)\n'


def test_a_job_that_lives_through_a_kill_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with jobs() as (home, started):
        monkeypatch.setenv("OUTRIDER_HOME", str(home))
        script = SCRIPT.replace("        time.sleep(0.02)\n", f"        time.sleep(0.02)\n        {SAYS}")
        assert SAYS in script
        job = Job(tmp_path, home, "--nnodes", "2", script=script)
        started.append(job)
        restart, world = job.training(2)
        kill(pids(world)[1])
        job.training(2, after=restart)
        job.event("Recovered", 0)

        def is_past_it() -> bool:
            recovered = int(job.event("Recovered", 0)["detail"]["step"])
            return any(moment["step"] > recovered for moment in moments(job.job_folder / "progress.jsonl"))

        until(is_past_it, "progress behind the fault")
        running = job.outrider("plot", "train", "-o", str(tmp_path / "running.png"))
        assert running.split() == [str(tmp_path / "running.png")]
        (tmp_path / "end").touch()
        assert job.process.wait(120) == 0, job.log()
        job.outrider("plot", "train", "-o", str(tmp_path / "over.png"))
        for name in ("running.png", "over.png"):
            assert (tmp_path / name).read_bytes().startswith(PNG)

        drawn = timeline_of("train")
        assert drawn.phase == "succeeded"
        assert [span.members for span in drawn.spans] == [2, 2]
        assert [mark.reason for mark in drawn.faults] == [job.event("WorkerExited", 0)["reason"]]
        assert drawn.spans[0].end <= drawn.spans[1].begin
        assert max(rate for _, _, rate in rates(drawn.steps)) > 0
        assert drawn.steps[-1][1] == drawn.step == json.loads((job.job_folder / "status.json").read_text())["step"]
        assert {f"{loss:.4f}" for _, loss in drawn.losses} <= {f"{step.loss:.4f}" for step in job.steps()}
        assert len(drawn.losses) > 2
