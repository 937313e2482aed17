"""A real job's fault is told on the dashboard, in OpenTelemetry, in the report and in the time account."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from outrider.master.core.account import stages
from tests.collector import Collector
from tests.local.chapters import Story
from tests.local.training import DEADLINE, Training, kill, members, one_job, pids, until
from tests.unit.cli.dashboard.conftest import Visit, visited
from tests.unit.cli.dashboard.conftest import until as until_said
from tests.unit.report.reader import Page

pytestmark = pytest.mark.slow


@pytest.fixture
def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector | None]:
    """None where Rotel is not installed."""
    found = None
    with suppress(ModuleNotFoundError):
        found = Collector(tmp_path)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
    yield found
    if found:
        found.close()


def test_a_killed_rank_and_an_order_from_the_dashboard(
    tmp_path: Path, collector: Collector | None, subtests: pytest.Subtests
) -> None:
    story, logs = Story(subtests), tmp_path / "logs"
    with one_job(tmp_path, "--nnodes", "2", "--dashboard", "--log-dir", str(logs)) as job:
        _restart, world = job.training(2, more=15)
        with story.chapter(_the_dashboard_follows_it_and_stops_the_job):
            _the_dashboard_follows_it_and_stops_the_job(job)
        with story.chapter(_the_account_adds_up):
            _the_account_adds_up(job)
        with story.chapter(_the_report_has_it):
            assert f"  report: {logs / 'report.html'}\n" in job.log()
            _the_report_has_it((logs / "report.html").read_text(), job, members(world)[1])
        with story.chapter(_a_collector_has_it):
            if collector is None:
                pytest.skip("needs the collector Rotel (its wheels are for x86-64 Linux)")
            _a_collector_has_it(collector)


def _the_dashboard_follows_it_and_stops_the_job(job: Training) -> None:
    found = until(lambda: re.search(r"Dashboard of \S+: (http://127\.0\.0\.1:\d+/\?token=\S+)", job.log()), job.log)

    async def visit() -> None:
        async with visited(found[1]) as visit:
            await _visit(job, visit)

    asyncio.run(visit())
    assert job.process.wait(DEADLINE) == 0, job.story()


async def _visit(job: Training, visit: Visit) -> None:
    await visit.opened()
    assert (await visit.get("/api/start"))[1]["job"] == job.job
    async with visit.stream(f"/api/jobs/{job.job}") as messages:
        first = await until_said(messages, "job", lambda found: found["phase"] == "running")
        assert first["faults"] == []
        assert (first["sizes"], first["may"]["scale"]) == ([2, 2], False)
        assert [each["state"] for each in first["members"]] == ["running", "running"]
        await until_said(messages, "timeline", lambda found: "productive" in _causes(found))
        restart, world = await asyncio.to_thread(job.now)
        kill(pids(world)[1])
        hurt = await until_said(messages, "job", lambda found: len(found["faults"]) == 1)
        assert (hurt["faults"][0]["kind"], hurt["faults"][0]["rank"]) == ("WorkerExited", "1")
        await until_said(messages, "timeline", lambda found: len(found["faults"]) == 1)
        later = await until_said(messages, "job", lambda found: bool(found["faults"][0]["stages"]))
        assert sum(each["share"] for each in later["account"]) == pytest.approx(1.0)
        await asyncio.to_thread(job.training, 2, after=restart, more=15)
        await asyncio.to_thread(job.event, "Recovered", 0)
        _status, stack = await visit.get(f"/api/jobs/{job.job}/members/{first['members'][0]['id']}/stack")
        assert stack["ranks"][0]["stack"]
        _status, lines = await visit.get(f"/api/jobs/{job.job}/members/{first['members'][0]['id']}/lines")
        assert isinstance(lines["lines"], list)
        assert f"{job.job} is running" in Page(await asyncio.to_thread(job.outrider, "report", job.job, "-o", "-")).text
        status, answer = await visit.post(f"/api/jobs/{job.job}/stop")
        assert (status, answer["sentence"]) == (200, f"{job.job} is being stopped.")
        await asyncio.to_thread(until, lambda: job.process.poll() is not None, job.story)
    with pytest.raises(aiohttp.ClientError):
        await visit.get("/api/start")


def _causes(timeline: Any) -> set[str]:
    return {timeline["causes"][each][0] for row in timeline["rows"] for each in row[2][1::2]}


def _the_account_adds_up(job: Training) -> None:
    (part,) = (json.loads(path.read_text()) for path in job.job_folder.glob("history-*.json"))
    spent, wall = job.status()["time"], 2 * (part["until"] - part["began_at"])
    assert sum(spent.values()) == pytest.approx(wall, abs=0.1)
    assert job.status()["goodput"] == pytest.approx(spent["productive"] / wall, abs=0.01)
    (fault,) = part["faults"]
    assert set(fault["stages"]) == set(stages.WHAT)
    assert sum(fault["stages"].values()) <= fault["seconds_lost"] + 0.1


def _the_report_has_it(html: str, job: Training, member: str) -> None:
    page = Page(html)
    assert f"{job.job} was stopped after" in page.text
    assert f"Kind: WorkerExited Rank: 1 Rank index: 1 Member: {member} Node: {socket.gethostname()}" in page.text
    assert f"rank 1 on {member}: signal 9" in page.text
    assert "new_step" in page.text
    data = json.loads(page.scripts[0])
    assert [row[0] for row in data["rows"]] in (["0", "1"], ["0–1"])
    assert [fault[2:] for fault in data["faults"]] == [["WorkerExited", 1]]
    assert len(data["generations"]) == 2
    assert "What this report lacks" not in page.text


def _a_collector_has_it(collector: Collector) -> None:
    """The recovery is a trace, and the Events are logs; the last one is sent before the master ends."""
    names = ("recovery", "detect", "stop", "wait", "agree", "new_step")
    until(lambda: all(re.search(rf"Name *: {name}$", collector.text(), re.M) for name in names), collector.text)
    for kind in ("Recovered", "JobStopped"):
        until(lambda kind=kind: f"EventName: outrider.{kind}" in collector.text(), collector.text)
    text = collector.text()
    recovered = text[text.index("EventName: outrider.Recovered") :]
    found = re.search(r"Trace ID *: ([0-9a-f]{32})", recovered)
    assert found is not None
    assert text.count(found[1]) > len(names), "each span and the Events of the recovery have the same trace"
