"""Every second of every member has one cause, and what happens to the job decides which."""

from __future__ import annotations

import json

import pytest

from outrider.master.core.account import causes
from tests.unit.master.core.play import Play, job, running
from tests.unit.master.core.stage.actor import START_SECONDS, STEP_SECONDS


def spent(play: Play) -> dict[str, float]:
    """The account as users read it."""
    found: dict[str, float] = play.status()["time"]
    return found


def total(play: Play) -> float:
    return sum(spent(play).values())


def test_the_seconds_of_a_healthy_job_are_start_first_step_and_new_steps() -> None:
    play = running(3)
    play.run(20)
    found = spent(play)
    assert found["starting"] + found.get("importing", 0) == pytest.approx(3 * START_SECONDS, abs=0.3)
    assert found["first_step"] == pytest.approx(3 * STEP_SECONDS, abs=0.1)
    assert found["productive"] == pytest.approx(3 * play.now - 3 * START_SECONDS, abs=1.5)
    assert total(play) == pytest.approx(3 * play.now, abs=0.01)
    assert play.status()["goodput"] == pytest.approx(found["productive"] / total(play))


def test_what_ranks_do_besides_steps_has_its_own_causes() -> None:
    play = running(2)
    before = spent(play)["productive"]
    for actor in play.actors.values():
        actor.spends = {"checkpoint": 0.3, "data": 0.1, "evaluation": 0.2}
    play.run(10)
    found = spent(play)
    assert (found["checkpoint_stall"], found["data_wait"], found["evaluation"]) == pytest.approx((0.6, 0.2, 0.4))
    assert found["productive"] - before == pytest.approx(2 * 10 - 1.2, abs=0.5)


def test_an_activity_under_way_is_shown_as_such_and_counts_once() -> None:
    play = running(2)
    play.run(5)
    for actor in play.actors.values():
        actor.hung_at, actor.doing = play.now, ("checkpoint", play.now)
    play.run(8)
    assert spent(play)["checkpoint_stall"] == pytest.approx(2 * 8, abs=2.5)
    for actor in play.actors.values():
        actor.started_at += play.now - (actor.hung_at or 0.0)
        actor.spends, actor.hung_at, actor.doing = {"checkpoint": 8.0}, None, ("", 0.0)
    play.run(4)
    assert spent(play)["checkpoint_stall"] == pytest.approx(2 * 8, abs=0.3)
    assert total(play) == pytest.approx(2 * play.now, abs=0.01)


def test_steps_that_a_restart_makes_again_are_repeated_ones() -> None:
    play = running(2)
    play.run(2)
    play.save("worker-0")
    play.run(5)
    assert "repeated_steps" not in spent(play)
    play.crash("worker-1")
    play.until_next(2)
    play.run(20)
    repeated = play.status()["steps_repeated"] * STEP_SECONDS
    assert spent(play)["repeated_steps"] == pytest.approx(2 * repeated, abs=0.6)
    assert total(play) == pytest.approx(2 * play.now, abs=0.01)


def test_the_survivors_of_a_lost_member_wait_for_its_replacement() -> None:
    play = running(3, 3)
    play.lose("worker-1")
    play.until_next(3)
    play.run(3)
    found = spent(play)
    assert found["waiting"] == pytest.approx(2 * START_SECONDS, abs=0.7)
    assert found["starting"] == pytest.approx(4 * START_SECONDS, abs=0.7)
    assert total(play) == pytest.approx(3 * play.now, abs=0.01)


def test_a_silent_member_is_detected_from_the_last_it_said() -> None:
    play = running(3, 2, max_relaunches=0)
    play.run(5)
    play.freeze("worker-1")
    for actor in play.actors.values():
        actor.hung_at = play.now
    frozen_at = play.now
    play.until(lambda: play.phase == "restarting")
    took = play.now - frozen_at
    play.until_next(2)
    assert spent(play)["detecting"] == pytest.approx(3 * took, abs=3.5)


def test_a_hang_counts_from_the_last_progress() -> None:
    play = running(2, hang_step=20.0)
    play.run(10)
    hung_at = play.now
    for actor in play.actors.values():
        actor.hung_at = play.now
    play.until(lambda: bool(play.announced("HangDetected")), 90)
    took = play.now - hung_at
    play.until_next(2)
    play.run(1)
    assert spent(play)["hang"] == pytest.approx(2 * took, abs=2.5)
    assert spent(play).get("detecting", 0.0) == pytest.approx(0.0, abs=0.1)


def test_no_cause_ever_loses_a_second() -> None:
    play = running(3, 2)
    seen: dict[str, float] = {}

    def hold() -> None:
        for cause, seconds in play.final_seconds().items():
            assert seconds >= seen.get(cause, 0.0) - 1e-9, cause
            seen[cause] = seconds

    for fault in (lambda: play.crash("worker-0"), lambda: play.lose("worker-1"), lambda: play.freeze("worker-2")):
        fault()
        for _ in range(200):
            play.run(0.1)
            hold()
    assert set(seen) <= set(causes.CAUSES)


def test_the_account_of_a_job_that_never_trained_is_all_start() -> None:
    play = Play(job(2))
    play.run(1)
    found = spent(play)
    assert set(found) <= {"starting", "importing", "waiting"}
    assert (play.status()["goodput"], play.status()["mtbf_seconds"]) == (None, None)


def test_a_rank_whose_clock_is_wrong_harms_no_sum() -> None:
    play = running(2)
    for actor, wrong in zip(play.actors.values(), ({"importing": 1e9}, {"data": -5.0}), strict=True):
        actor.spends = wrong
    play.run(10)
    assert total(play) == pytest.approx(2 * play.now, abs=0.01)
    assert min(spent(play).values()) >= 0


def test_a_new_master_knows_all_but_the_time_since_the_last_status() -> None:
    play = running(2)
    play.run(30)
    at, before = play.now, spent(play)
    after = Play(play.spec, term=2, saved=json.loads(json.dumps(play.saved)), actors=play.actors, now=at + 6.0)
    after.run(10)
    found = spent(after)
    written = at - 10.0
    assert found["unknown"] <= 2 * (at + 6.0 - written) + 0.1
    assert found["productive"] >= before["productive"] - 2 * 10.0
    assert total(after) == pytest.approx(2 * after.now, abs=0.5)


def test_the_account_ends_with_the_job() -> None:
    play = running(2)
    play.run(5)
    for member in list(play.world):
        play.done(member)
    play.until(lambda: play.is_ended)
    at = total(play)
    play.run(60)
    assert total(play) == at


def test_the_goodput_of_the_last_hour_forgets_what_was_before() -> None:
    play = Play(job(2))
    play.run(1)
    play.wait_for_room = True
    play.until_running(2)
    play.run(3700)
    status = play.status()
    assert status["goodput_1h"] > status["goodput"]
    assert status["goodput_1h"] == pytest.approx(1.0, abs=0.02)


def test_a_step_that_takes_far_too_long_is_shown_as_a_hang_until_it_ends() -> None:
    play = running(2, hang_detection=False)
    play.run(10)
    for actor in play.actors.values():
        actor.hung_at = play.now
    play.run(300)
    assert spent(play)["hang"] == pytest.approx(2 * 280, abs=5)
    for actor in play.actors.values():
        actor.started_at, actor.hung_at = actor.started_at + play.now - (actor.hung_at or 0.0), None
        actor.spends = {"evaluation": 299.0}
    play.run(5)
    assert "hang" not in spent(play)
    assert spent(play)["evaluation"] == pytest.approx(2 * 299, abs=3)


def test_ranks_of_older_hooks_are_counted_by_their_phase() -> None:
    play = Play(job(2))
    play.until(lambda: len(play.actors) == 2)
    for actor in play.actors.values():
        actor.accounts = False
    play.until_running(2)
    play.run(30)
    found = spent(play)
    assert found["productive"] == pytest.approx(2 * 30, abs=4)
    assert total(play) == pytest.approx(2 * play.now, abs=0.01)


def test_a_command_whose_steps_are_unseen_has_made_no_first_step() -> None:
    play = Play(job(2))
    play.until(lambda: len(play.actors) == 2)
    for actor in play.actors.values():
        actor.has_pages = False
    play.until_running(2)
    play.run(30)
    assert spent(play)["first_step"] == pytest.approx(2 * 30, abs=4)
    assert play.status()["goodput"] is None
