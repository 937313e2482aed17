"""Hangs: the limits, the questions to the ranks, and the remedy."""

from __future__ import annotations

import dataclasses
import math

import pytest

from outrider.master.core.actions import CreatePod, Deliver, Send
from outrider.master.core.events import Asked, SidecarSaid, SpecChanged, Stalled
from outrider.master.core.hangs import detector as hangs_detector
from outrider.master.core.hangs.limits import EVAL, INIT, LEAST, STEP
from outrider.wire.messages.diagnostics import Ask
from outrider.wire.messages.generation import Exited, Stepped, WorkerExit
from outrider.wire.messages.report import RankProgress, Report
from tests.unit.master.core.play import Play, job, running
from tests.unit.master.core.ranks import Answers, elsewhere, holds_the_gil, is_stopped, mute, stack, trains_on, waits

ANSWERS_WITHIN = 8.0
LONG = 4 * max(LEAST.values())
"""Seconds in which any hang would have been found, and the ranks asked again."""


def hang(play: Play) -> None:
    play.hang("worker-1", elsewhere(13))


def has_hung(play: Play) -> bool:
    return bool(play.announced(hangs_detector.KIND))


def asked_for(play: Play) -> list[str]:
    return [action.message.what for action in play.sent(Ask) if isinstance(action.message, Ask)]


# -- detection and remedy -----------------------------------------------------------------------------------------
def test_a_hang_is_detected_after_a_minute_and_restarted_in_place_with_its_culprit_named() -> None:
    play = running(3)
    hang(play)
    took = play.until(lambda: has_hung(play), 100)
    assert LEAST[STEP] <= took <= LEAST[STEP] + ANSWERS_WITHIN
    fault = play.announced(hangs_detector.KIND)[0]
    assert (fault.member, fault.severity) == ("worker-1", "warning")
    assert "rank 1 on worker-1 has not entered gloo:all_reduce number 14 (train.py:33 main)" in fault.reason
    assert fault.reason.startswith("No rank of generation 1.1 has completed a step for 6")
    play.until_next(3)
    assert play.restarts_used() == 1
    assert not play.deleted()


def test_no_rank_is_asked_while_training_makes_progress() -> None:
    play = running(3)
    play.run(600)
    assert asked_for(play) == []
    assert not play.announced("HangSuspected")


def test_every_rank_is_asked_for_collectives_and_stacks_and_the_user_gets_no_answer() -> None:
    play = running(3)
    hang(play)
    play.until(lambda: has_hung(play), 100)
    assert sorted(asked_for(play)[-6:]) == ["collectives"] * 3 + ["stacks"] * 3
    assert not [action for action in play.actions if isinstance(action, Deliver)]


def test_a_user_may_ask_at_the_same_time() -> None:
    play = running(2)
    hang(play)
    play.until(lambda: bool(play.announced("HangSuspected")), 100)
    play.tell(Asked("r1", "stacks"))
    play.until_next(2)
    assert [action.request for action in play.actions if isinstance(action, Deliver)] == ["r1"]


def test_a_member_that_does_not_answer_is_the_culprit() -> None:
    play = running(3)
    hang(play)
    play["worker-1"].answers = None
    play.until(lambda: has_hung(play), 100)
    assert play.announced(hangs_detector.KIND)[0].member == "worker-1"


@pytest.mark.parametrize("answers", [is_stopped(), holds_the_gil()])
def test_a_rank_that_is_stopped_or_holds_the_gil_is_the_culprit(answers: Answers) -> None:
    play = running(3)
    play.hang("worker-2", answers)
    play.until(lambda: has_hung(play), 100)
    assert play.announced(hangs_detector.KIND)[0].member == "worker-2"


def test_a_second_hang_of_the_same_member_replaces_it() -> None:
    play = running(3)
    for _ in range(2):
        play.hang("worker-1", elsewhere(13))
        number = play.generation.number
        play.until(lambda number=number: play.is_running() and play.generation.number > number, 200)  # type: ignore[misc]
        play.run(5)
    assert "worker-1" not in play.world
    assert "worker-1 caused a hang before" in play.announced("MemberFailed")[0].reason
    assert play.restarts_used() == 1


def test_hangs_count_against_the_node_of_their_culprit() -> None:
    play = Play(job(4))
    play.nodes = {f"worker-{number}": f"n{number}" for number in range(4)}
    play.until_running(4)
    play.run(3)
    for _ in range(2):
        hang(play)
        play.until_next(4, 200)
        play.run(5)
    assert "1 incidents" not in play.announced("NodeExcluded")[0].reason
    made = [action for action in play.actions if isinstance(action, CreatePod)]
    assert made[-1].avoid == ("n1",)


def test_a_hang_with_another_culprit_replaces_no_member() -> None:
    play = running(3)
    for culprit in ("worker-1", "worker-2"):
        play.hang(culprit, elsewhere(13))
        play.until_next(3, 200)
        play.run(5)
    assert not play.announced("MemberFailed")
    assert play.restarts_used() == 2


def test_if_lost_members_are_not_replaced_a_second_hang_restarts_in_place() -> None:
    play = running(3, max_relaunches=0)
    for _ in range(2):
        hang(play)
        play.until_next(3, 200)
        play.run(5)
    assert play.world == ["worker-0", "worker-1", "worker-2"]


def test_in_an_adopted_job_the_controller_replaces_the_pod() -> None:
    play = Play(job(2, is_adopted=True))
    play.run(0.1)
    for number in range(2):
        play.appears(f"worker-{number}", number)
    play.until_running(2)
    play.run(5)
    for count in range(1, 3):
        hang(play)
        play.until(lambda count=count: len(play.announced(hangs_detector.KIND)) == count, 200)  # type: ignore[misc]
        play.run(8)
    assert play.deleted() == ["worker-1"]


def test_without_a_restart_left_the_job_fails_with_the_hang() -> None:
    play = running(2, max_restarts=0)
    hang(play)
    play.until(lambda: play.ended() is not None, 200)
    assert "has not entered gloo:all_reduce number 14" in play.message
    assert "no restart is allowed" in play.message


def test_a_loss_that_explains_the_hang_gives_the_restart_back() -> None:
    play = running(3)
    hang(play)
    play.until(lambda: has_hung(play), 100)
    play.lose("worker-1", "its machine is gone")
    assert play.restarts_used() == 0


# -- limits -------------------------------------------------------------------------------------------------------
def pause(play: Play, seconds: float) -> None:
    """No rank makes a step for `seconds`, then all continue."""
    for actor in play.actors.values():
        actor.hung_at = play.now
    play.run(seconds)
    for actor in play.actors.values():
        actor.hung_at = None
    play.run(5)


def test_a_step_may_take_ten_times_the_slowest_recent_one() -> None:
    play = running(2)
    pause(play, 30)
    hang(play)
    took = play.until(lambda: has_hung(play), 600)
    assert 270 <= took <= 310 + ANSWERS_WITHIN


@pytest.mark.parametrize("phase", ["checkpoint", "eval", "init"])
def test_a_phase_has_its_own_limit(phase: str) -> None:
    play = running(2)
    hang(play)
    play["worker-0"].phase = phase
    took = play.until(lambda: has_hung(play), 2000)
    assert LEAST[EVAL] <= took <= LEAST[EVAL] + ANSWERS_WITHIN + 2
    assert f"(phase {phase}, limit 600 s)" in play.announced(hangs_detector.KIND)[0].reason


def test_a_long_evaluation_raises_the_limit_of_the_next_one() -> None:
    play = running(2)
    for actor in play.actors.values():
        actor.hung_at, actor.phase = play.now, "eval"
    play.run(400)
    for actor in play.actors.values():
        actor.hung_at, actor.phase = None, ""
    play.run(5)
    for actor in play.actors.values():
        actor.phase = "eval"
    hang(play)
    assert 3990 <= play.until(lambda: has_hung(play), 5000) <= 4010 + ANSWERS_WITHIN


def test_until_a_steps_duration_is_known_the_limit_of_an_init_applies() -> None:
    """A first step that compiles, a second one that compiles another graph, and jobs with steps of minutes."""
    play = Play(job(2))
    play.until_running(2)
    for actor in play.actors.values():
        actor.hung_at, actor.answers = play.now + 0.11, waits(1)
    play.run(500)
    assert [actor.step_at(play.now) for actor in play.actors.values()] == [1, 1]
    assert not play.announced("HangSuspected")
    assert play.until(lambda: has_hung(play), 200) < 120


def test_phases_that_change_without_a_step_count_as_a_hang_in_the_end() -> None:
    play = running(2)
    hang(play)

    def flip() -> None:
        play["worker-0"].phase = "checkpoint" if play["worker-0"].phase == "step" else "step"
        play.after(20.0, flip)

    flip()
    longest = sum(LEAST.values())
    assert play.until(lambda: has_hung(play), 4000) <= longest + ANSWERS_WITHIN


def test_the_users_own_limits_apply() -> None:
    play = running(2, hang_step=5.0)
    hang(play)
    assert play.until(lambda: has_hung(play), 100) <= 5 + ANSWERS_WITHIN


def test_a_limit_that_the_user_set_does_not_grow_with_slow_steps() -> None:
    play = running(2, hang_step=20.0)
    pause(play, 15)
    hang(play)
    assert play.until(lambda: has_hung(play), 400) <= 20 + ANSWERS_WITHIN


def test_without_hang_detection_no_rank_is_asked() -> None:
    play = running(2, hang_detection=False)
    hang(play)
    play.run(LONG)
    assert asked_for(play) == []


def test_edited_limits_apply_at_once() -> None:
    play = running(2, hang_detection=False)
    hang(play)
    play.run(100)
    play.tell(SpecChanged(dataclasses.replace(play.spec, hang_detection=True, hang_step=20.0)))
    assert play.until(lambda: has_hung(play), 100) <= ANSWERS_WITHIN


# -- what is not a hang -------------------------------------------------------------------------------------------
def test_if_collectives_still_start_the_limit_of_an_evaluation_applies() -> None:
    play = running(2)
    play.hang("worker-1", trains_on(), trains_on())
    play.until(lambda: bool(play.announced("HangCleared")), 100)
    assert (
        "still start collectives; this may be an evaluation, so the limit is now 600 s"
        in play.announced("HangCleared")[0].reason
    )
    play.run(400)
    assert not has_hung(play)
    assert play.until(lambda: has_hung(play), 400) < 200


def test_if_no_rank_waits_the_limit_of_an_evaluation_applies_too() -> None:
    play = running(2)
    alike = Answers([], stack(70, "evaluate"))
    play.hang("worker-1", alike, alike)
    play.run(500)
    assert not has_hung(play)
    assert len(play.announced("HangSuspected")) == 1
    for actor in play.actors.values():
        actor.hung_at = None
    play.run(100)
    assert not has_hung(play)


def test_a_limit_that_the_user_set_applies_whatever_the_evidence_is() -> None:
    play = running(2, hang_step=30.0)
    play.hang("worker-1", trains_on(), trains_on())
    assert play.until(lambda: has_hung(play), 100) <= 30 + ANSWERS_WITHIN


def test_a_step_while_the_answers_come_ends_the_suspicion() -> None:
    play = running(2)
    hang(play)
    play["worker-0"].frozen, play["worker-1"].frozen = False, False
    play.until(lambda: bool(play.announced("HangSuspected")), 100)
    for actor in play.actors.values():
        actor.unheard = True  # their answers do not come
    play.run(0.5)
    for actor in play.actors.values():
        actor.unheard, actor.hung_at = False, None
    play.until(lambda: bool(play.announced("HangCleared")), 5)
    play.run(20)
    assert not has_hung(play)


def test_a_new_highest_step_is_reported_at_once_and_is_progress() -> None:
    """Before a report shows it: the first step may come a moment before the limit of the init is over."""
    play = running(2)
    hang(play)
    play.until(lambda: bool(play.announced("HangSuspected")), 100)
    play.say(play["worker-0"], Stepped(play.generation, play.step() + 1, 0.0))
    assert play.announced("HangCleared")
    play.run(30)
    assert not has_hung(play)


def test_no_generation_is_judged_while_no_member_is_heard() -> None:
    """The master's own network fails: all members are silent at once, and their steps are unknown."""
    play = running(2)
    for actor in play.actors.values():
        actor.unheard = True
    play.run(100)
    assert not play.announced("HangSuspected")


def test_a_generation_is_judged_if_some_members_are_heard() -> None:
    play = running(4)
    hang(play)
    play["worker-3"].unheard = True
    play.until(lambda: has_hung(play), 100)


def test_a_pause_of_the_master_is_not_counted() -> None:
    play = running(2)
    hang(play)
    play.run(50)
    play.now += 100
    play.tell(Stalled(100.0))
    play.run(8)
    assert not play.announced("HangSuspected")
    play.until(lambda: has_hung(play), 30)


def test_a_suspended_job_does_not_hang() -> None:
    play = running(2)
    hang(play)
    play.run(30)
    play.tell(SpecChanged(play.spec, suspended=True))
    play.run(1000)
    assert not play.announced("HangSuspected")


def test_after_a_rank_has_ended_the_limit_of_a_step_no_longer_applies() -> None:
    play = running(2)
    hang(play)
    play.say(play["worker-0"], Exited(play.generation, (WorkerExit(0, 5, 0),), 0))
    play.run(300)
    assert not has_hung(play)


# -- jobs whose steps cannot be counted ---------------------------------------------------------------------------
def uncounted(answers: Answers, **policy: float) -> Play:
    play = Play(job(2, **policy))
    play.until_running(2, 20)
    for actor in play.actors.values():
        actor.phase, actor.answers, actor.hung_at = "init", answers, play.now
    return play


@pytest.mark.parametrize("answers", [trains_on(), Answers([], stack(9, "fit")), Answers(None, stack(9, "fit"))])
def test_a_job_that_never_showed_a_step_is_left_alone_and_that_is_reported_once(answers: Answers) -> None:
    play = uncounted(answers)
    play.run(LONG)
    assert len(play.announced("HangDetectionUnavailable")) == 1
    assert not play.announced("HangSuspected")
    assert not has_hung(play)


def test_a_job_without_any_page_is_left_alone_too() -> None:
    play = uncounted(trains_on())
    for actor in play.actors.values():
        actor.has_pages = False
    play.run(LONG)
    assert len(play.announced("HangDetectionUnavailable")) == 1


def test_a_rank_that_does_not_respond_is_not_a_hang_in_such_a_job() -> None:
    """A program without our hooks beside others with them."""
    play = uncounted(Answers([], stack(9, "fit")))
    play["worker-1"].answers = mute()
    play.run(LONG)
    assert not has_hung(play)


def test_a_stopped_process_ends_such_a_job_even_without_pages() -> None:
    play = uncounted(mute())
    for actor in play.actors.values():
        actor.has_pages = False
    play["worker-1"].answers = is_stopped()
    assert play.until(lambda: has_hung(play), 2000) <= LEAST[INIT] + ANSWERS_WITHIN + 2
    assert play.announced(hangs_detector.KIND)[0].member == "worker-1"


def test_a_stuck_collective_still_ends_such_a_job() -> None:
    play = uncounted(waits(3, age=700.0))
    play["worker-1"].answers = elsewhere(2)
    assert play.until(lambda: has_hung(play), 2000) <= LEAST[INIT] + ANSWERS_WITHIN + 2
    assert play.announced(hangs_detector.KIND)[0].member == "worker-1"


def test_an_init_limit_that_the_user_set_applies_to_such_a_job() -> None:
    play = uncounted(Answers([], stack(9, "download")), hang_init=30.0)
    assert play.until(lambda: has_hung(play), 100) <= 30 + ANSWERS_WITHIN + 2


# -- invalid numbers ----------------------------------------------------------------------------------------------
BAD = (math.nan, math.inf, -math.inf, -1.0, 1e300)


@pytest.mark.parametrize("bad", BAD)
def test_invalid_times_neither_cause_a_hang_nor_hide_one(bad: float) -> None:
    play = running(3)
    liar = play["worker-2"]

    def lie() -> None:
        rows = (RankProgress(0, liar.step_at(play.now), bad, "step", bad), RankProgress(9, -3, bad, "?", bad))
        play.say(liar, Report(liar.running, "running", 7, bad, ranks=rows))
        play.run(1)

    for _ in range(100):
        lie()
    assert not play.announced("HangSuspected")
    assert math.isfinite(play.position().stepped_at or 0.0)
    hang(play)
    for _ in range(80):
        lie()
    assert has_hung(play)


# -- the next master ----------------------------------------------------------------------------------------------
def followed(play: Play, after: float, clock_is_ahead: float = 0.0) -> Play:
    """Another master takes over `after` seconds later."""
    later = Play(play.spec, term=play.term + 1, saved=play.saved, actors=play.actors, now=play.now + after, master="m2",
                 clock_is_ahead=clock_is_ahead)  # fmt: skip
    later.run(1)
    return later


def test_a_new_master_knows_the_time_of_the_last_progress() -> None:
    play = running(2)
    hang(play)
    play.run(50)
    later = followed(play, 5)
    assert later.until(lambda: has_hung(later), 100) <= 20
    assert later.announced(hangs_detector.KIND)[0].member == "worker-1"


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_a_new_master_whose_wall_clock_is_an_hour_wrong_sees_no_false_hang_and_misses_none(ahead: float) -> None:
    play = running(2)
    hang(play)
    play.run(20)
    later = followed(play, 5, ahead)
    later.run(30)
    assert not later.announced("HangSuspected")
    later.until(lambda: has_hung(later), 60)


def test_a_new_master_counts_steps_that_it_missed_as_progress() -> None:
    play = running(2)
    play.run(20)
    later = followed(play, 300)
    later.run(300)
    assert not later.announced("HangSuspected")


def test_a_new_master_knows_how_slow_the_job_is_and_which_member_was_the_culprit() -> None:
    play = running(2)
    for actor in play.actors.values():
        actor.hung_at = play.now
    play.run(40)
    for actor in play.actors.values():
        actor.hung_at = None
    play.run(15)
    hang(play)
    play.until_next(2, 600)
    play.run(15)
    later = followed(play, 2)
    hang(later)
    later.run(300)
    assert not later.announced("HangSuspected")
    later.until(lambda: bool(later.announced("MemberFailed")), 200)


def test_a_hang_first_stops_all_members() -> None:
    play = running(2)
    hang(play)
    play.until(lambda: has_hung(play), 100)
    kinds = [action for action in play.actions if isinstance(action, Send) and type(action.message).__name__ == "Stop"]
    assert len(kinds) == 2


def test_a_report_of_an_older_generation_is_not_progress() -> None:
    play = running(2)
    old = play.generation
    play.crash("worker-0")
    play.until_next(2)
    play.run(3)
    hang(play)
    for number in range(100):
        late = Report(old, "running", 100 + number, ranks=(RankProgress(0, 100 + number, 0.0, "step"),))
        play.tell(SidecarSaid(play["worker-0"].session, late))
        play.run(1)
    assert has_hung(play)
