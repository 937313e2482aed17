"""The progress line while a job runs, and what a job without a step is waiting for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outrider.cli.run.progress_line import Progress, clock, waits_for
from tests.unit.cli.conftest import document
from tests.unit.cli.run.test_narration import event

NOW = datetime(2026, 11, 21, 3, 0, 30, tzinfo=UTC)


def pending(*states: str, **more: Any) -> dict[str, Any]:
    members = [document()["members"][0] | {"state": state, "rank_index": n} for n, state in enumerate(states)]
    return document(phase="pending", step=0, faults=[], members=members, world=0) | more


def test_a_running_job_shows_its_rate_loss_size_checkpoint_and_what_faults_cost() -> None:
    progress = Progress(lambda: 2.371)
    progress.event(event(1, "CheckpointSaved") | {"reason": "worker-0 finished saving ckpt.pt at step 1200."})
    progress.line(document(step=1180), 50.0, NOW)
    line = progress.line(document(step=1240), 60.0, NOW)
    assert line == (
        "digits · step 1,240, 6/s · loss 2.371 · 2 ranks, generation 1.2 · checkpoint 40 steps ago · "
        "1 fault, 0.2 s lost · 1 m 00 s"
    )


def test_while_a_fault_costs_time_the_line_says_for_how_long() -> None:
    fault = document()["faults"][0] | {"seconds_lost": None, "time": (NOW - timedelta(seconds=6)).isoformat()}
    line = Progress().line(document(phase="restarting", faults=[fault]), 60.0, NOW)
    assert (
        line == "digits · restarting · step 1,240 · 2 ranks, generation 1.2 · 1 fault, no new step for 6 s · 1 m 00 s"
    )


def test_steps_that_are_made_again_give_no_negative_rate() -> None:
    progress = Progress()
    progress.line(document(step=1240), 10.0, NOW)
    assert "step 1,200 ·" in progress.line(document(step=1200), 11.0, NOW)


def test_the_rate_does_not_include_the_time_before_the_first_step() -> None:
    progress = Progress()
    for second in range(10):
        progress.line(pending("starting"), float(second), NOW)
    assert "step 20, 10/s" in progress.line(document(step=20, faults=[]), 11.0, NOW)


@pytest.mark.parametrize(
    ("status", "waits"),
    [
        (pending("starting", "ready", "starting"), "importing the script's modules (2 of 3 members)"),
        (pending("checking", "ready"), "running the node check (1 of 2 members)"),
        (pending("ready", message="waiting for 1 more member"), "waiting for 1 more member"),
        (pending("running", phase="running", world=1), "1 rank, generation 1.2, no step yet"),
        (pending("ready", phase="restarting", message="Rank 1 was killed by SIGSEGV."), ""),
        (document(), ""),
        (pending("starting", phase="failed"), ""),
    ],
)
def test_what_a_job_without_a_step_waits_for(status: dict[str, Any], waits: str) -> None:
    assert waits_for(status) == waits


def test_without_a_progress_line_the_wait_is_logged_at_growing_intervals() -> None:
    progress, status = Progress(), pending("starting", "starting")
    logged = [second for second in range(0, 400) if progress.words(status, float(second))]
    assert logged == [10, 30, 60, 120, 180, 240, 300, 360]
    assert not progress.words(document(), 1000.0)


def test_durations_of_the_line() -> None:
    assert [clock(each) for each in (0.2, 4.6, 59.9, 185.0, 3725.0)] == ["0.2 s", "5 s", "59 s", "3 m 05 s", "1 h 02 m"]
