"""A real job exports to a collector that is not there; `test_a_fault_is_told` has one that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.runtime.ports import find_port
from tests.local import plain
from tests.local.training import kill, one_job, pids

pytestmark = pytest.mark.slow


def test_a_job_whose_collector_is_away_ends_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{find_port()}")
    with one_job(tmp_path, "--nnodes", "2", script=plain.SCRIPT) as job:
        restart, world = job.training(2)
        kill(pids(world)[1])
        job.training(2, after=restart)
        job.end_well()
        assert "The collector took not all" in (job.job_folder / "master.log").read_text()
