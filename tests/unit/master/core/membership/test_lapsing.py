"""Without its Lease a master restarts the saved generation, unchanged, and does nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.master.core.actions import CreatePod, DeletePod, EndJob, PlacePod, ResizeOwner, SaveStatus, Send
from outrider.master.core.events import LeaseLost, LeaseRegained, ScaleRequested, SidecarSaid, StopAsked
from outrider.master.core.generation.reservations import RESERVED
from outrider.master.core.membership import past_lease
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, OrderId
from outrider.wire.messages.checkpoints import SaveState
from outrider.wire.messages.generation import Start, Stop
from outrider.wire.messages.membership import Finish, Welcome
from tests.unit.master.core.faults.test_log_rules import rule, writes
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.membership.test_membership import hello
from tests.unit.master.core.play import Play, job, running

FORBIDDEN = (SaveStatus, CreatePod, DeletePod, PlacePod, ResizeOwner, EndJob)


def lapsed(members: int, least: int | None = None, **policy: object) -> Play:
    """A job whose generation runs and is saved, and whose master has lost its Lease."""
    play = running(members, least or members, **policy)
    play.run(2)
    play.saves_status = False
    play.tell(LeaseLost("The API server is away."))
    play.actions.clear()
    return play


def test_a_killed_rank_is_restarted_with_the_same_generation() -> None:
    play = lapsed(3)
    places = dict(play.places())
    play.crash("worker-1")
    assert play.until_next(3) < 2.0
    assert play.generation == Generation(1, 2)
    assert play.places() == places
    assert not [action for action in play.actions if isinstance(action, FORBIDDEN)]


def test_it_is_restarted_only_as_often_as_numbers_are_reserved() -> None:
    play = running(2, 2, max_restarts=100)
    play.run(2)
    play.saves_status = False
    play.tell(LeaseLost("The API server is away."))
    for _ in range(RESERVED):
        play.crash("worker-0")
        play.until_next(2)
        play.run(2)
    assert play.generation.number == 1 + RESERVED
    play.crash("worker-0")
    play.run(60)
    assert (play.stage, play.generation.number) == ("gathering", 1 + RESERVED)
    play.saves_status = True
    play.tell(LeaseRegained())
    play.until(lambda: play.is_running(2))


def test_the_next_master_takes_that_generation_over_as_the_saved_one() -> None:
    play = lapsed(3)
    play.crash("worker-1")
    play.until_next(3)
    play.crash("worker-2")
    play.until_next(3)
    after = successor(play)
    after.run(10)
    assert after.announced("GenerationAdopted")
    assert after.generation == Generation(1, 3)
    assert not after.sent(Stop)
    after.crash("worker-0")
    after.until(lambda: after.is_running(3) and after.generation == Generation(2, 4))


def test_the_next_master_does_so_too_if_the_status_has_the_generation_as_stopped() -> None:
    play = running(3, 3)
    play["worker-2"].stubborn = True
    play.crash("worker-1")
    play.run(3)
    assert play.stage == "stopping"
    assert play.saved is not None
    assert play.saved["saved"]["world"] is None  # type: ignore[index]
    play.saves_status = False
    play.tell(LeaseLost("The API server is away."))
    play["worker-2"].stubborn = False
    play.until_next(3, 30)
    after = successor(play)
    after.run(10)
    assert after.generation == Generation(1, 2)
    assert not after.sent(Stop)


def test_members_that_run_a_generation_without_a_reservation_are_stopped() -> None:
    play = lapsed(2)
    for actor in play.actors.values():
        actor.running = actor.highest = Generation(1, 2 + RESERVED)
    after = successor(play)
    after.until_next(2, 30)
    assert after.generation > Generation(2, 2 + RESERVED)


def test_no_member_is_added_or_removed_however_long_it_takes() -> None:
    play = lapsed(3, 1)
    play.freeze("worker-2")
    play.tell(ScaleRequested(2))
    play.run(300)
    assert not [action for action in play.actions if isinstance(action, FORBIDDEN)]
    assert not play.sent(Start)
    play.thaw("worker-2")
    play.until(lambda: play.is_running(3), 60)
    assert not [action for action in play.actions if isinstance(action, FORBIDDEN)]
    play.saves_status = True
    play.tell(LeaseRegained())
    assert play.announced("ResizePending")


def test_a_member_that_has_heard_of_a_higher_term_ends_it() -> None:
    play = lapsed(3)
    play.reconnect("worker-2")
    play.run(0.2)
    newer = replace(hello(play, "worker-2"), term=2)
    play.tell(SidecarSaid("again", newer))
    play["worker-2"].session = "again"
    play.crash("worker-1")
    play.run(30)
    assert not play.sent(Start)


def test_a_generation_of_another_size_waits_for_the_lease() -> None:
    """It is decided, and it is unknown if its status was saved."""
    play = running(3, 2)
    play.run(2)
    play.lose("worker-2")
    play.saves_status = False
    play.run(5)
    assert play.stage == "committing"
    play.tell(LeaseLost("The API server is away."))
    play.run(60)
    assert play.generation != Generation(1, 1)
    assert not [send for send in play.sent(Start) if send.generation != Generation(1, 1)]
    play.saves_status = True
    play.tell(LeaseRegained())
    play.until(lambda: play.is_running(), 60)


def test_the_same_generation_starts_if_its_status_was_being_saved() -> None:
    play = running(3, 3)
    play.run(2)
    play.saves_status = False
    play.crash("worker-1")
    play.run(5)
    assert play.stage == "committing"
    play.tell(LeaseLost("The API server is away."))
    play.run(5)
    assert play.is_running(3)


def test_the_success_of_all_ranks_does_not_end_the_job_before_the_lease_is_held() -> None:
    play = lapsed(2)
    for member in ("worker-0", "worker-1"):
        play.done(member)
    play.run(60)
    assert play.ended() is None
    play.saves_status = True
    play.tell(LeaseRegained())
    play.until(lambda: play.ended() is not None, 60)


def test_a_rule_that_replaces_a_member_takes_effect_once_the_lease_is_held() -> None:
    """Its pod cannot be ordered to end before; a master that forgot it would let it run for ever."""
    play = lapsed(3, rules=(rule("replaceNode"),))
    writes(play, "worker-1")
    play.run(10)
    assert not play.sent(Finish)
    assert "worker-1" in play.world
    play.saves_status = True
    play.tell(LeaseRegained())
    play.until_next(3)
    assert [send.member for send in play.sent(Finish)] == ["worker-1"]
    assert sorted(play.world) == ["worker-0", "worker-2", "worker-3"]


def test_a_job_that_is_stopped_without_grace_and_without_the_lease_leaves_no_pod() -> None:
    play = lapsed(2)
    for actor in play.actors.values():
        actor.unheard = True
    play.tell(StopAsked("by hand", hard=True))
    play.run(10)
    assert not play.deleted()
    assert play.ended() is None
    play.saves_status = True
    play.tell(LeaseRegained())
    play.until(lambda: play.ended() is not None)
    assert sorted(play.deleted()) == ["worker-0", "worker-1"]


@pytest.mark.parametrize(
    ("message", "may"),
    [
        (Stop(OrderId(1), Generation(1, 1)), True),
        (Welcome(1), True),
        (Finish(OrderId(1), 0, "over"), False),
        (SaveState(OrderId(1), Generation(1, 1), "it moves"), False),
    ],
)
def test_only_harmless_messages_are_sent_without_the_lease(message: object, may: bool) -> None:
    said = Send("s", MemberId("worker-0"), message, NO_GENERATION, "why")  # type: ignore[arg-type]
    assert past_lease.may_be_done(said) == may
    assert not past_lease.may_be_done(DeletePod(MemberId("worker-0"), "u", 0.0, NO_GENERATION, "why"))  # type: ignore[arg-type]


def test_a_waiting_job_reports_no_lost_lease() -> None:
    play = Play(job(2))
    play.run(1)
    play.tell(LeaseLost("The API server is away."))
    assert not play.announced("LeaseLost")
    assert len(running(1).tell(LeaseLost("The API server is away."))) == 1


def test_a_pod_that_was_never_heard_is_deleted_at_the_end_of_its_job_once_the_lease_is_held() -> None:
    play = running(2, 2, spares=1)
    play.lose("worker-2")
    play.until(lambda: "worker-3" in play.actors)
    play["worker-3"].unheard = True
    play.saves_status = False
    play.tell(LeaseLost("The API server is away."))
    play.tell(StopAsked("by hand"))
    play.run(10)
    assert not play.deleted()
    play.saves_status = True
    play.tell(LeaseRegained())
    play.until(lambda: play.ended() is not None)
    assert play.deleted() == ["worker-3"]
