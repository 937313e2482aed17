"""Looks at ranks without progress: a certain hang ends the generation at once, a rank that works gets more time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.master.core.hangs.detector import KIND
from outrider.master.core.hangs.limits import EVAL, LEAST, STEP
from outrider.wire.messages.diagnostics import Ask
from outrider.wire.messages.generation import Exited, WorkerExit
from tests.unit.master.core.play import Play, job, running
from tests.unit.master.core.ranks import Answers, call, elsewhere, holds_the_gil, is_stopped, stack, waits

SOON = 15.0
LEAST_SECONDS = 10.0
"""Two looks are made before a generation is ended."""
USED = {"cpu": 1.0, "io": 1, "net": 1, "tree": 1}


def hung_after(play: Play, most: float = 2000.0) -> float:
    return play.until(lambda: bool(play.announced(KIND)), most)


def works(answers: Answers, play: Play, what: str = "cpu", until: float = float("inf")) -> Answers:
    """The rank uses some of `what` each second; for bytes over TCP, more than an idle library sends."""
    a_second = 10_000 if what == "net" else 1
    return replace(answers, used=lambda: USED | {what: a_second * min(play.now, until)})


def idle(answers: Answers) -> Answers:
    return replace(answers, used=lambda: USED)


def of_all(seq: int, **other: object) -> dict[str, object]:
    return call(seq, **other)  # type: ignore[arg-type]


# -- certain hangs ------------------------------------------------------------------------------------------------
UNLIKE = {
    "another number": Answers([of_all(13)]),
    "another kind": Answers([of_all(14, op="gloo:broadcast")]),
    "another shape": Answers([of_all(14, sizes=[[8, 8]])]),
}
CERTAIN = {
    "stopped": is_stopped(),
    "has left": replace(elsewhere(13), has_left=True),
    **UNLIKE,
}


@pytest.mark.parametrize("what", CERTAIN)
def test_a_certain_hang_ends_at_once_with_its_culprit_named(what: str) -> None:
    play = running(3)
    play.hang("worker-1", idle(CERTAIN[what]), idle(waits(14)))
    assert LEAST_SECONDS <= hung_after(play) <= SOON
    assert play.announced(KIND)[0].member == "worker-1"
    assert not play.announced("HangSuspected")


def test_a_certain_hang_of_a_subgroup_ends_at_once_too() -> None:
    here = {"group": "tp", "id": "3", "ranks": [0, 1]}
    play = running(3)
    play.hang("worker-2", idle(elsewhere(1)), idle(Answers([of_all(5, **here)])))
    play["worker-1"].answers = idle(Answers([of_all(6, **here)]))
    assert hung_after(play) <= SOON


def test_ranks_that_wait_for_an_ended_rank_are_a_certain_hang() -> None:
    play = running(3)
    play.hang("worker-1", idle(waits(14)), idle(waits(14)))
    play.say(play["worker-1"], Exited(play.generation, (WorkerExit(0, 5, 0),), 0))
    assert LEAST_SECONDS <= hung_after(play) <= SOON
    assert "it has exited with code 0" in play.announced(KIND)[0].reason


@pytest.mark.parametrize("what", ["net", "cpu", "io"])
def test_different_numbers_are_not_a_certain_hang_while_a_rank_of_the_group_works(what: str) -> None:
    """A broadcast may be complete for its root while other ranks still receive it."""
    play = running(3)
    play.hang("worker-1", works(UNLIKE["another number"], play, what), idle(waits(14)))
    assert hung_after(play) >= LEAST[STEP]


def test_tensors_of_several_shapes_may_be_gathered() -> None:
    play = running(3)
    play.hang("worker-1", idle(Answers([of_all(14, op="gloo:all_gather", sizes=[[1]])])),
              idle(Answers([of_all(14, op="gloo:all_gather")])))  # fmt: skip
    assert hung_after(play) >= LEAST[STEP]


@pytest.mark.parametrize("answers", [Answers(None, "", "traced"), elsewhere(13), holds_the_gil()])
def test_a_debugger_a_late_rank_and_a_held_gil_are_not_certain(answers: Answers) -> None:
    play = running(3)
    play.hang("worker-1", idle(answers), idle(waits(14)))
    assert LEAST[STEP] <= hung_after(play) <= LEAST[STEP] + 10


def test_a_generation_that_continues_between_two_looks_is_left_alone() -> None:
    play = running(3)
    play.hang("worker-1", idle(is_stopped()), idle(waits(14)))
    play.run(9)
    for actor in play.actors.values():
        actor.hung_at = None
    play.run(300)
    assert not play.announced(KIND)


def test_a_stopped_process_that_no_rank_waits_for_gets_the_limit_of_a_step() -> None:
    play = running(3)
    play.hang("worker-1", idle(is_stopped()), idle(elsewhere(13)))
    assert hung_after(play) >= LEAST[STEP]


def test_a_limit_that_the_user_set_applies() -> None:
    play = running(3, hang_step=90.0)
    play.hang("worker-1", idle(is_stopped()), idle(waits(14)))
    assert 90.0 <= hung_after(play) <= 100.0


# -- ranks that work ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("what", ["cpu", "io", "net", "tree"])
@pytest.mark.parametrize("answers", [elsewhere(13), holds_the_gil()])
def test_a_rank_that_works_gets_the_limit_of_an_evaluation_and_that_is_reported_once(
    what: str, answers: Answers
) -> None:
    play = running(3)
    play.hang("worker-1", works(answers, play, what), idle(waits(14)))
    assert LEAST[EVAL] <= hung_after(play) <= LEAST[EVAL] + 10
    events = play.announced("SlowStep")
    assert len(events) == 1
    assert "rank 1 on worker-1 works at train.py" in events[0].reason
    assert "2 ranks wait for it" in events[0].reason


def test_a_rank_that_stops_working_is_hung_a_minute_later() -> None:
    play = running(3)
    play.hang("worker-1", works(elsewhere(13), play, until=play.now + 100), idle(waits(14)))
    assert 150 <= hung_after(play) <= 200


def test_a_rank_that_answers_now_and_then_is_not_known_to_work() -> None:
    """On a crowded machine an answer comes too late, and then the bytes of the store are unknown."""
    play = running(3)
    late = Answers(None, stack(40), used=lambda: USED | {"cpu": 1.05})
    play.hang("worker-1", idle(elsewhere(13)), idle(waits(14)))
    play.until(lambda: bool(play.sent(Ask)), 20)
    play.run(1)
    play["worker-1"].answers = late
    assert hung_after(play) <= LEAST[STEP]
    assert not play.announced("SlowStep")


@pytest.mark.parametrize("what", ["cpu", "io"])
def test_work_of_the_ranks_that_wait_does_not_count(what: str) -> None:
    """NCCL waits in a busy loop."""
    play = running(3)
    play.hang("worker-1", idle(elsewhere(13)), works(waits(14), play, what))
    assert LEAST[STEP] <= hung_after(play) <= LEAST[STEP] + 10


def keeps_in_touch(answers: Answers, play: Play) -> Answers:
    """NCCL's RAS: two connections, 120 bytes a second each, whatever the ranks do."""
    return replace(answers, used=lambda: USED | {"net": 240 * int(play.now)})


def test_bytes_of_idle_libraries_are_not_work() -> None:
    play = running(3)
    play.hang("worker-1", keeps_in_touch(elsewhere(13), play), keeps_in_touch(waits(14), play))
    assert LEAST[STEP] <= hung_after(play) <= LEAST[STEP] + 10
    assert not play.announced("SlowStep")


@pytest.mark.parametrize("what", UNLIKE)
def test_bytes_of_idle_libraries_leave_a_hang_certain(what: str) -> None:
    play = running(3)
    play.hang("worker-1", keeps_in_touch(UNLIKE[what], play), keeps_in_touch(waits(14), play))
    assert LEAST_SECONDS <= hung_after(play) <= SOON


def test_a_collective_that_sends_bytes_is_not_hung() -> None:
    play = running(3)
    play.hang("worker-1", works(waits(14), play, "net"), works(waits(14), play, "net"))
    assert hung_after(play) >= LEAST[EVAL]


def test_slow_steps_cause_no_question_each_time() -> None:
    play = Play(job(3))
    play.pace = lambda _size: 30.0  # type: ignore[method-assign]
    play.until_running(3)
    play.run(100)
    assert play.sent(Ask)
    play.actions.clear()
    play.run(400)
    assert not play.sent(Ask)


def test_a_single_rank_is_not_asked() -> None:
    play = running(1)
    play.hang("worker-0", idle(elsewhere(13)))
    play.run(30)
    assert not play.sent(Ask)
