"""Which of a job's events are kept to be shown."""

from __future__ import annotations

from typing import Any

from outrider.cli.top.sources import EVENTS_KEPT, QUIET_KEPT, newest


def of(kind: str, seq: int) -> dict[str, Any]:
    return {"seq": seq, "kind": kind}


def test_events_of_each_save_do_not_push_out_a_fault() -> None:
    events = [
        of("WorkerExited", 0),
        *(of("CheckpointSaved", seq) for seq in range(1, 10_000)),
        of("JobStopped", 10_000),
    ]
    found = newest(events)
    assert (found[0]["kind"], found[-1]["kind"], len(found)) == ("WorkerExited", "JobStopped", QUIET_KEPT + 2)
    assert [event["seq"] for event in found] == sorted(event["seq"] for event in found)
    assert len(newest(of("WorkerExited", seq) for seq in range(10_000))) <= EVENTS_KEPT
