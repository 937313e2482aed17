"""The last status of a job: none of its members is shown as if it were still there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outrider.master.core.actions import SaveStatus
from outrider.master.core.events import StopAsked
from tests.unit.master.core.play import Play, running
from tests.unit.master.core.ps_play import training


def last(play: Play) -> list[dict[str, Any]]:
    """The members in the last status that was written."""
    play.until(lambda: play.ended() is not None)
    written = [action for action in play.actions if isinstance(action, SaveStatus)][-1]
    members: Any = written.status["members"]
    return list(members)


def succeed(play: Play) -> None:
    play.done("worker-0")
    play.done("worker-1")


@pytest.mark.parametrize(("end", "states"), [
    (succeed, ["done", "done", "gone"]),
    (lambda play: play.crash("worker-1", signal=None, code=1), ["gone", "gone", "gone"]),
    (lambda play: play.tell(StopAsked("enough")), ["gone", "gone", "gone"]),
])  # fmt: skip
def test_each_member_is_done_or_gone(end: Callable[[Play], object], states: list[str]) -> None:
    play = running(2, spares=1, max_restarts=0)
    end(play)
    members = last(play)
    assert [each["state"] for each in members] == states
    assert all(each["pids"] == {"sidecar": 0, "trainer": 0, "workers": []} for each in members)


def test_of_a_ps_job_too() -> None:
    play = training(1, 1)
    play.tell(StopAsked("enough"))
    assert {each["state"] for each in last(play)} <= {"done", "gone"}
