"""The report that `outrider run` leaves behind; `test_a_fault_is_told` has that of a job with a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local import plain
from tests.local.training import one_job

pytestmark = pytest.mark.slow


def test_a_report_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs" / "report.html").mkdir(parents=True)
    with one_job(tmp_path, "--nnodes", "1", "--log-dir", str(tmp_path / "logs"), script=plain.SCRIPT) as job:
        job.training(1)
        job.end_well()
        assert f"outrider: the report {tmp_path / 'logs' / 'report.html'} could not be written: " in job.log()
