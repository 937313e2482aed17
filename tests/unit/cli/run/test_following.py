"""Following a job from the command that hosts it: no event is logged twice, none is left out."""

from __future__ import annotations

import io
import json
import queue
from collections.abc import Mapping
from typing import Any

from outrider.cli.run.follow import Follower
from outrider.cli.run.log import EventLog
from outrider.cli.run.progress_line import Progress
from outrider.cli.run.terminal import Screen
from tests.unit.cli.run.test_narration import event
from tests.waiting import DEADLINE


class WaitableLog(EventLog):
    """A log that a test can wait for."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self.logged: queue.Queue[int] = queue.Queue()

    def log(self, event: Mapping[str, Any]) -> None:
        super().log(event)
        self.logged.put(event["seq"])


def test_a_new_master_is_queried_for_events_after_the_last_one_of_the_old_master(running_job: Any) -> None:
    job = running_job()
    job.events = [event(1, "JobStarted"), event(2, "WorkerExited")]
    err = io.BytesIO()
    screen = Screen(io.BytesIO(), err, terminal=False)
    log = WaitableLog(screen)
    follower = Follower(job.folder, log, screen)
    follower.start()
    try:
        assert [log.logged.get(timeout=DEADLINE) for _ in range(2)] == [1, 2]
        job.events = [*job.events, event(3, "MasterStarted")]  # each answer ends: to the follower, its master died
        assert log.logged.get(timeout=DEADLINE) == 3
    finally:
        follower.close()
    assert [line.split(":")[-1].strip() for line in err.getvalue().decode().splitlines()] == [
        "Reason 1.",
        "Reason 2.",
        "Reason 3.",
    ]


def test_events_that_were_written_but_not_served_are_logged_at_the_end(running_job: Any) -> None:
    job = running_job()
    err = io.BytesIO()
    screen = Screen(io.BytesIO(), err, terminal=False)
    follower = Follower(job.folder, EventLog(screen), screen)
    follower.start()
    lines = [json.dumps(event(1, "JobStarted")), json.dumps(event(2, "JobSucceeded"))]
    (job.folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    follower.close()
    assert "JobSucceeded: Reason 2." in err.getvalue().decode()


def test_a_terminal_shows_the_progress_of_the_job(running_job: Any) -> None:
    job = running_job()
    both = io.BytesIO()
    screen = Screen(both, both, terminal=True)
    log = WaitableLog(screen)
    follower = Follower(job.folder, log, screen, Progress(), 0.01)
    follower.start()
    try:
        job.answered.wait(DEADLINE)
        while b"step 1,240" not in both.getvalue():
            job.answered.clear()
            assert job.answered.wait(DEADLINE)
    finally:
        follower.close()
    assert both.getvalue().endswith(b"\r\x1b[2K")
