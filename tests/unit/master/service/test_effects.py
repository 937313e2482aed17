"""Announcements in the log."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from outrider.master.core.actions import Announce, EndJob
from outrider.master.service.effects import LINES, MasterEffects
from outrider.master.service.platform import Platform
from outrider.master.service.sidecars import Sidecars
from outrider.master.service.status_files import Records
from outrider.runtime.logs import JsonLines
from outrider.wire.ids import Generation, MemberId


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    lines, log = io.StringIO(), logging.getLogger("master")
    handler, before = logging.StreamHandler(lines), log.level
    handler.setFormatter(JsonLines("master"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield lines
    log.removeHandler(handler)
    log.setLevel(before)


class Nowhere:
    """A platform that has nothing to end."""

    def ended(self, exit_code: int) -> None:
        pass


@pytest.mark.parametrize(("job", "named"), [("research/gpt", {"job": "research/gpt"}), ("", {})])
def test_each_line_names_its_job_where_a_process_runs_several(
    job: str, named: dict[str, str], tmp_path: Path, written: io.StringIO
) -> None:
    records = Records(tmp_path)
    effects = MasterEffects(
        lambda event: None, lambda code: None, cast(Sidecars, None), cast(Platform, Nowhere()), records, job
    )
    effects.perform(Announce("MemberLost", "worker-1 is gone.", Generation(1, 2), MemberId("worker-1"), "warning"))
    effects.perform(
        Announce("SidecarRejected", "It is another one.", Generation(1, 2), MemberId("worker-1"), "warning")
    )
    effects.perform(EndJob(0, Generation(1, 2), "every rank ended with code 0"))
    records.close()

    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["kind"] for line in lines] == ["MemberLost", "SidecarRejected", "EndJob"]
    assert [{name: line[name] for name in ("job",) if name in line} for line in lines] == [named] * 3
    assert [line["seq"] for line in records.after(0)] == [1, 2], "what users read names no job, for it is the job's own"


def test_a_job_that_tells_too_much_leaves_the_log_to_the_others(tmp_path: Path, written: io.StringIO) -> None:
    records = Records(tmp_path)
    effects = MasterEffects(
        lambda event: None, lambda code: None, cast(Sidecars, None), cast(Platform, Nowhere()), records, "evil/loud"
    )
    for n in range(2 * LINES):
        effects.perform(Announce("DataPositionLoaded", f"line {n}", Generation(1, 2), MemberId("worker-1")))
    records.close()
    assert LINES <= len(written.getvalue().splitlines()) < LINES + 100
    assert len(records.after(0)) > LINES + 100, "what its user reads is whole"
