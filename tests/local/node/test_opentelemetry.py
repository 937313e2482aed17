"""A real job exports to a real collector (Rotel, from a wheel), which decodes the protobuf and shows what it got."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.runtime.ports import find_port
from tests.collector import Collector
from tests.local import plain
from tests.local.training import Training, kill, one_job, pids, until

pytestmark = pytest.mark.slow
pytest.importorskip("rotel", reason="needs the collector Rotel (its wheels are for x86-64 Linux)")


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    found = Collector(tmp_path)
    yield found
    found.close()


def lose_a_rank(job: Training) -> None:
    restart, world = job.training(2)
    kill(pids(world)[1])
    job.training(2, after=restart)


def test_a_recovery_of_a_real_job_reaches_a_collector_as_a_trace_and_its_events_as_logs(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    with one_job(tmp_path, "--nnodes", "2") as job:
        lose_a_rank(job)
        job.event("Recovered", 0)
        job.end_well()
    names = ("recovery", "detect", "stop", "wait", "agree", "new_step")
    until(lambda: all(re.search(rf"Name *: {name}$", collector.text(), re.M) for name in names), collector.text)
    for kind in ("Recovered", "JobSucceeded"):  # the last Event of the job is sent before the master ends
        until(lambda kind=kind: f"EventName: outrider.{kind}" in collector.text(), collector.text)
    text = collector.text()
    recovered = text[text.index("EventName: outrider.Recovered") :]
    found = re.search(r"Trace ID *: ([0-9a-f]{32})", recovered)
    assert found is not None
    assert text.count(found[1]) > len(names), "each span and the Events of the recovery have the same trace"


def test_a_job_whose_collector_is_away_ends_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{find_port()}")
    with one_job(tmp_path, "--nnodes", "2", script=plain.SCRIPT) as job:
        lose_a_rank(job)
        job.end_well()
        assert "The collector took not all" in (job.job_folder / "master.log").read_text()
