"""Autoscaling on the stage: a job is measured by its reports and changed through its members."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.master.core.actions import WriteReplicas
from outrider.master.core.events import ActionFailed, Event, ScaleRequested, ScalingAsked, SpecChanged
from tests.unit.master.core.play import Play, job, running

GROW = 2.0
"""Seconds after which growth no longer waits for a checkpoint."""


def scaled(least: int, most: int, replicas: int, **settings: object) -> Play:
    """Steps take 0.37 s whatever the size: linear growth."""
    spec = replace(job(most, least), replicas=replicas, scaling="throughput", scale_cooldown=0.0, grow_patience=GROW)
    play = Play(replace(spec, **settings))  # type: ignore[arg-type]
    play.pace = lambda world: 0.37
    play.until_running(replicas)
    return play


def scaling_status(play: Play) -> dict[str, object]:
    play.run(2)
    assert play.saved is not None
    found = play.saved["scaling"]
    assert isinstance(found, dict)
    return found


def until(play: Play, members: int, limit: float = 120.0) -> None:
    play.until(lambda: len(play.world) == members and play.is_running(members), limit)


def test_a_linear_job_grows_to_its_most() -> None:
    play = scaled(1, 4, 1)
    until(play, 2)
    until(play, 4)
    play.run(60)
    found = scaling_status(play)
    assert (found["condition"], found["continue"], found["current"]) == ("ReachMaxReplicas", False, 4)
    assert [each["members"] for each in found["sizes"]] == [1, 2, 4]  # type: ignore[attr-defined]
    assert found["next_evaluation"]


def test_each_size_that_is_found_is_written_into_the_elastic_job_with_its_reason() -> None:
    play = scaled(1, 4, 1)
    until(play, 4)
    written = [action for action in play.actions if isinstance(action, WriteReplicas)]
    assert [action.replicas for action in written] == [2, 4]
    assert "2 members are tried" in written[0].reason
    assert [each.reason for each in play.announced("ScaleDecided")] == [action.reason for action in written]


def test_one_that_gains_nothing_goes_back_and_stays() -> None:
    play = scaled(1, 4, 2)
    play.pace = lambda world: 0.37 * world / 2
    until(play, 4)
    play.until(lambda: play.has_settled(), 400)
    found = scaling_status(play)
    assert (found["condition"], found["continue"]) == ("ReachMaxMetric", False)
    assert len(play.world) == found["current"] == 1, "each further member adds nothing"


def test_without_room_it_goes_back_and_asks_for_it_again() -> None:
    play = scaled(1, 4, 2)
    play.room = 2
    play.until(lambda: play.wanted() == 4, 60)
    play.run(5)
    assert scaling_status(play)["condition"] == "HasPendingPod"
    play.run(60)
    found = scaling_status(play)
    assert (found["condition"], found["continue"], found["current"], found["last"]) == ("Stop", False, 2, 4)
    assert "worker-2, worker-3" in str(found["message"])
    assert play.world == ["worker-0", "worker-1"]
    play.room = None
    until(play, 4, 500)


def test_room_that_is_found_sooner_is_used() -> None:
    play = scaled(1, 4, 2)
    play.room = 2
    play.until(lambda: play.lacks_room_to_grow(), 120)
    play.room = None
    play.appears("worker-9", 2)
    play.appears("worker-10", 3)
    play.until(lambda: not play.lacks_room_to_grow(), 20)
    until(play, 4, 60)


def test_a_user_who_scales_the_job_is_obeyed_and_autoscaling_pauses() -> None:
    play = scaled(1, 4, 1)
    until(play, 2)
    play.tell(ScaleRequested(1))
    play.run(200)
    assert len(play.world) == 1
    assert play.announced("ScaleRequested")[0].reason == "1 member is requested instead of 2."
    assert (scaling_status(play)["condition"], scaling_status(play)["continue"]) == ("Stop", False)
    assert play.announced("ScalingPaused")


@pytest.mark.parametrize("change", [ScalingAsked(), "edited"], ids=["requested", "edited"])
def test_a_policy_that_is_resumed_or_edited_starts_again(change: Event | str) -> None:
    play = scaled(1, 4, 1)
    until(play, 2)
    play.tell(ScaleRequested(1))
    until(play, 1)
    play.tell(SpecChanged(replace(play.spec, min_gain=0.4)) if isinstance(change, str) else change)
    until(play, 4)


def test_the_size_in_the_elastic_job_is_not_a_users_request() -> None:
    play = scaled(1, 4, 1)
    play.tell(SpecChanged(play.spec))
    until(play, 2)
    play.tell(SpecChanged(replace(play.spec, replicas=2)))
    until(play, 4)
    play.tell(SpecChanged(replace(play.spec, replicas=2, max_restarts=3)))  # read before the write of 4 was
    play.run(5)
    assert len(play.world) == 4
    assert not play.announced("ScalingPaused")
    play.tell(SpecChanged(replace(play.spec, replicas=3)))
    until(play, 3)
    assert play.announced("ScalingPaused")


def test_a_size_that_could_not_be_written_is_written_again() -> None:
    play = scaled(1, 2, 1)
    play.until(lambda: any(isinstance(action, WriteReplicas) for action in play.actions), 60)
    (write,) = [action for action in play.actions if isinstance(action, WriteReplicas)]
    play.tell(ActionFailed(write, "the API server is gone"))
    play.run(15)
    assert len([action for action in play.actions if isinstance(action, WriteReplicas)]) == 2


def test_the_next_master_knows_what_was_measured() -> None:
    play = scaled(1, 4, 1)
    until(play, 4)
    play.run(60)
    before = scaling_status(play)
    later = Play(play.spec, term=2, saved=play.saved, actors=play.actors, now=play.now)
    later.pace = play.pace
    later.run(5)
    after = scaling_status(later)
    assert after["current"] == 4
    assert [each["members"] for each in after["sizes"]] == [1, 2, 4]  # type: ignore[attr-defined]
    assert after["decisions"] == before["decisions"]


def test_if_no_whole_unit_lies_between_the_limits_nothing_is_changed() -> None:
    play = scaled(1, 3, 3, node_unit=1)
    play.tell(SpecChanged(replace(play.spec, node_unit=4)))
    play.run(60)
    assert not play.announced("ScaleDecided")


def test_a_job_without_a_policy_is_left_alone() -> None:
    play = running(2, 1)
    play.run(200)
    assert len(play.world) == 2
    assert play.saved is not None
    assert "scaling" not in play.saved


@pytest.mark.parametrize(
    ("limits", "size"),
    [({"max_members": 2, "replicas": 2}, 2), ({"min_members": 6, "replicas": 6}, 6),
     ({"node_unit": 3, "max_members": 6, "replicas": 3}, 3)],
    ids=["fewer", "more", "units"],
)  # fmt: skip
def test_limits_that_exclude_the_current_size_are_kept_and_are_not_a_users_request(
    limits: dict[str, int], size: int
) -> None:
    play = scaled(1, 8, 1, min_gain=1.0)
    play.pace = lambda world: 0.37 * max(1, world / 4)
    until(play, 4, 400)
    play.until(lambda: play.has_settled(), 400)
    assert play.wanted() == 4
    play.tell(SpecChanged(replace(play.spec, **limits)))  # type: ignore[arg-type]
    until(play, size, 60)
    assert not play.announced("ScalingPaused")
    assert any(f"from 4 to {size}" in event.reason for event in play.announced("ScaleDecided"))
    play.run(300)
    assert limits.get("min_members", 1) <= play.wanted() <= limits.get("max_members", 8)
    assert play.wanted() % limits.get("node_unit", 1) == 0


def test_a_size_that_a_user_requests_counts_even_if_the_job_has_it() -> None:
    play = scaled(1, 4, 1)
    until(play, 2)
    play.tell(ScaleRequested(2))
    play.run(200)
    assert len(play.world) == 2
    assert play.announced("ScalingPaused")


def test_the_next_master_asks_for_room_again_when_the_last_one_would_have() -> None:
    play = scaled(1, 4, 2)
    play.room = 2
    play.until(lambda: play.lacks_room_to_grow(), 120)
    play.run(2)
    later = Play(play.spec, term=2, saved=play.saved, actors=play.actors, now=play.now)
    later.pace = play.pace
    later.until_running(2)
    assert later.lacks_room_to_grow()
    until(later, 4, 500)


def test_a_size_is_not_written_again_once_the_job_is_over_or_a_user_has_another() -> None:
    play = scaled(1, 2, 1)
    play.until(lambda: any(isinstance(action, WriteReplicas) for action in play.actions), 60)
    (write,) = [action for action in play.actions if isinstance(action, WriteReplicas)]
    play.tell(ActionFailed(write, "the API server is gone"))
    play.tell(ScaleRequested(1))
    play.run(60)
    assert len([action for action in play.actions if isinstance(action, WriteReplicas)]) == 1


def test_a_job_without_a_policy_has_none_to_resume() -> None:
    play = running(2, 1)
    play.tell(ScalingAsked())
    assert not play.announced("ScalingResumed")


def test_a_member_that_finds_its_room_in_time_is_no_reason_to_go_back() -> None:
    play = scaled(1, 4, 2)
    play.room = 2
    play.until(lambda: scaling_status(play)["condition"] == "HasPendingPod", 60)
    for actor in [each for each in play.actors.values() if each.waits]:
        actor.waits = False
        play.tell(play.pod(actor))
        play.connect(actor)
        play.report(actor)
    until(play, 4, 60)
    play.run(120)
    assert not play.lacks_room_to_grow()
    assert len(play.world) == 4
