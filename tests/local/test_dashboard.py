"""`outrider run --dashboard` of a real job: its page's documents follow a fault, and an order ends it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.local.training import Training, kill, one_job, pids, until
from tests.unit.cli.dashboard.conftest import until as until_said
from tests.unit.cli.dashboard.conftest import visited

pytestmark = pytest.mark.slow


def test_a_fault_is_followed_live_and_the_job_is_stopped(tmp_path: Path) -> None:
    with one_job(tmp_path, "--nnodes", "2", "--dashboard") as job:
        job.training(2)
        found = until(lambda: re.search(r"Dashboard of \S+: (http://127\.0\.0\.1:\d+/\?token=\S+)", job.log()), job.log)
        asyncio.run(_visit(job, found[1]))


async def _visit(job: Training, address: str) -> None:
    async with visited(address) as visit:
        await visit.opened()
        assert (await visit.get("/api/start"))[1]["job"] == job.job
        async with visit.stream(f"/api/jobs/{job.job}") as messages:
            first = await until_said(messages, "job", lambda found: found["phase"] == "running")
            assert first["faults"] == []
            assert (first["sizes"], first["may"]["scale"]) == ([2, 2], False)
            assert [each["state"] for each in first["members"]] == ["running", "running"]
            await until_said(messages, "timeline", lambda found: "productive" in _causes(found))
            _restart, world = await asyncio.to_thread(job.now)
            kill(pids(world)[1])
            hurt = await until_said(messages, "job", lambda found: len(found["faults"]) == 1)
            assert (hurt["faults"][0]["kind"], hurt["faults"][0]["rank"]) == ("WorkerExited", "1")
            await until_said(messages, "timeline", lambda found: len(found["faults"]) == 1)
            later = await until_said(messages, "job", lambda found: bool(found["faults"][0]["stages"]))
            assert sum(each["share"] for each in later["account"]) == pytest.approx(1.0)
            _status, stack = await visit.get(f"/api/jobs/{job.job}/members/{first['members'][0]['id']}/stack")
            assert stack["ranks"][0]["stack"]
            _status, lines = await visit.get(f"/api/jobs/{job.job}/members/{first['members'][0]['id']}/lines")
            assert isinstance(lines["lines"], list)
            status, answer = await visit.post(f"/api/jobs/{job.job}/stop")
            assert (status, answer["sentence"]) == (200, f"{job.job} is being stopped.")
            await asyncio.to_thread(until, lambda: job.process.poll() is not None, job.story)
        with pytest.raises(aiohttp.ClientError):
            await visit.get("/api/start")


def _causes(timeline: Any) -> set[str]:
    return {timeline["causes"][each][0] for row in timeline["rows"] for each in row[2][1::2]}
