"""Why no generation forms, which the status says in one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.master.core.events import LeaseLost, OwnerSized, PodSeen, PodsListed, SpecChanged, TurnTold
from outrider.master.core.generation import formation
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Start
from tests.unit.master.core.play import Actor, Play, job, running

NO_NODE = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu"
NO_IMAGE = "ErrImagePull: the image lab/none:1 of main cannot be pulled"


def begun(members: int, least: int | None = None, **asked: object) -> Play:
    """A new job with a listed platform that creates no pods by itself."""
    play = Play(job(members, least, **asked))
    play.creates_pods = False
    play.run(0.1)
    return play


def come(play: Play, *numbers: int) -> None:
    for number in numbers:
        actor = Actor(MemberId(f"worker-{number}"), PodUid(f"u{number}"), RankIndex(number))
        play.actors[actor.id] = actor
        play.tell(play.pod(actor))
        play.connect(actor)
        play.report(actor)


def waits(play: Play, number: int, reason: str, **held: bool) -> None:
    member, uid, index = MemberId(f"worker-{number}"), PodUid(f"u{number}"), RankIndex(number)
    play.tell(PodSeen(member, uid, Role("worker"), index, "pending", reason, **held))  # type: ignore[arg-type]


# -- members that are awaited -------------------------------------------------------------------------------------
def test_before_the_platform_has_listed_the_members() -> None:
    assert Play(job(2)).message == "the platform has not listed the members yet"


def test_too_few_are_ready_and_the_coming_members_are_named() -> None:
    play = begun(3)
    needed = "a generation needs at least 3 members"
    assert play.message == f"waiting for worker-0, worker-1, worker-2: {needed}, none is ready"
    come(play, 1)
    assert play.message == "waiting for worker-0, worker-2: a generation needs at least 3 members, 1 is ready"
    assert begun(8).message == "waiting for 8 members: a generation needs at least 8 members, none is ready"


def test_enough_are_ready_and_another_is_worth_waiting_for() -> None:
    play = begun(4, 2)
    come(play, 0, 1, 3)
    assert play.message == "waiting for worker-2: 4 members are requested, 3 are ready"


def test_a_ready_spare_does_not_count_as_a_requested_member() -> None:
    play = begun(2, 1, spares=1)
    come(play, 1)
    actor = Actor(MemberId("worker-2"), PodUid("u2"), None)
    play.actors[actor.id] = actor
    play.tell(play.pod(actor))
    play.connect(actor)
    assert play.message == "waiting for worker-0: 2 members are requested, 1 is ready"


def test_a_blocked_member_is_named_with_what_the_platform_says() -> None:
    play = begun(3, 2)
    come(play, 0)
    waits(play, 1, NO_NODE, unschedulable=True)
    needed = "a generation needs at least 2 members"
    assert play.message == f"waiting for worker-2: {needed}, 1 is ready; worker-1: {NO_NODE}"
    waits(play, 2, NO_NODE, unschedulable=True)
    assert play.message == (
        f"waiting for members: a generation needs at least 2 members, 1 is available; worker-1: {NO_NODE} (and 1 more)"
    )


def test_pods_that_cannot_start_and_are_needed_are_counted_at_once() -> None:
    play = begun(2)
    for number in range(2):
        waits(play, number, NO_IMAGE, cannot_start=True)
    needed = "a generation needs 2 members"
    assert play.message == f"no generation can form: 2 members cannot start, and {needed}; worker-0: {NO_IMAGE}"
    come(play, 0)
    assert play.message.startswith(f"no generation can form: 1 member cannot start, and {needed}; worker-1: ErrImage")
    come(play, 1)
    assert play.stage == "committing"


def test_the_end_of_the_last_generation_comes_first() -> None:
    play = running(3)
    play.room = 2
    play.lose("worker-1")
    play.until(lambda: play.stage == "gathering")
    play.run(1)
    assert play.message == (
        "worker-1 is lost: killed; waiting for members: a generation needs at least 3 members, 2 are available; "
        "worker-3 cannot be scheduled"
    )


def test_a_member_that_was_not_ready_in_time_is_named() -> None:
    play = begun(2, start_patience=60.0)
    come(play, 0)
    play.run(100)
    assert play.message == (
        "waiting for members: a generation needs at least 2 members, 1 is available; worker-1 was not ready in time"
    )


@pytest.mark.parametrize(("unit", "said"), [
    (1, "waiting for worker-3: 4 members are requested, 3 are ready"),
    (4, "waiting for worker-3: 4 members are requested, 3 are ready"),
])  # fmt: skip
def test_whole_units(unit: int, said: str) -> None:
    play = begun(4, 3, node_unit=unit, start_patience=60.0)
    come(play, 0, 1, 2)
    assert play.message == said
    play.run(100)
    assert bool(play.sent(Start)) == (unit == 1)
    if unit == 4:
        needed = "a generation needs at least 3 members in whole units of 4"
        assert play.message == f"{needed}, and none of the 3 ready members can be in it"


def test_no_generation_starts_with_a_silent_member() -> None:
    play = begun(2)
    come(play, 0)
    play["worker-0"].frozen = True
    play.until(lambda: bool(play.suspects()))
    come(play, 1)
    assert play.message == "worker-0 is silent: no generation starts before the cause is known"
    play["worker-0"].frozen = False
    play.report(play["worker-0"])
    play.until_running(2)


# -- what blocks a generation -------------------------------------------------------------------------------------
def test_the_message_of_a_suspended_job_says_what_suspended_it() -> None:
    play = running(2)
    play.tell(SpecChanged(play.spec, suspended=True))
    play.until(lambda: not play.members())
    assert play.message == "The job is suspended."
    play.tell(SpecChanged(play.spec, suspended=False))
    assert play.message == "waiting for worker-2, worker-3: a generation needs at least 2 members, none is ready"


def test_a_queued_job_names_the_job_before_it() -> None:
    play = Play(replace(job(2), name="research/new"))
    play.room = 1
    play.until(lambda: play.lacks_room())
    play.tell(TurnTold("research/old"))
    assert play.message == "is queued behind research/old, which is older and lacks room too"
    play.tell(TurnTold(""))
    assert play.message.startswith("waiting for ")


def test_an_owner_that_is_scaled_to_0() -> None:
    play = Play(replace(job(2), is_adopted=True))
    play.tell(OwnerSized(0))
    play.tell(PodsListed(()))
    assert play.message == "the owner of the pods is scaled to 0; training continues when it is scaled up"


def test_members_that_are_measured() -> None:
    play = Play(job(2, node_check=True))
    play.until(play.is_checking)
    assert play.message == "check round 0: 2 members measured"
    play.until_running(2)


def test_a_check_after_a_fault_is_in_the_message_until_it_is_over() -> None:
    play = running(3, node_check=True)
    play.lose("worker-1")
    play.until(play.is_checking)
    assert play.message == "worker-1 is lost: killed; check round 2: 2 members measured"
    play.room = 3
    play.lose("worker-3")
    play.until(lambda: play.stage == "gathering" and not play.is_checking())
    assert "check round" not in play.message


def test_an_observed_job_starts_no_generation_beside_its_last_one() -> None:
    play = running(2, 1, observed=True)
    play.comes(Actor(MemberId("worker-2"), PodUid("u2"), None, has_trainer=False))
    for member in ("worker-0", "worker-1"):
        play.lose_trainer(member)
    play.run(5)
    assert play.ready() == {"worker-0", "worker-1"}
    assert play.message == (
        "no process of the generation runs any more; the job is only observed, and processes of its last generation "
        "may still run"
    )


def test_without_its_lease_a_master_says_what_it_may_do() -> None:
    play = running(2)
    play.run(2)
    play.saves_status = False
    play.tell(LeaseLost("The API server is away."))
    play.room = 0
    play.lose("worker-0")
    play.until(lambda: play.stage == "gathering")
    assert play.message.endswith(
        "; the master has lost its Lease: until it is held again, only the last generation may restart, unchanged"
    )


# -- the value ----------------------------------------------------------------------------------------------------
def test_the_chosen_members_are_in_rank_order_and_the_decision_changes_nothing() -> None:
    play = begun(3, 2)
    come(play, 2, 0)
    play.loses_patience()
    before = repr(play.state)
    formed = formation.of(play.state)
    assert ([member.id for member in formed.members], formed.reason) == (["worker-0", "worker-2"], "")
    assert formation.can_form(play.state)
    assert repr(play.state) == before
