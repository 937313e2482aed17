"""Members whose processes do not end: from when their time counts, and when the pod goes."""

from __future__ import annotations

from outrider.master.core.events import SidecarDisconnected, Stalled
from outrider.master.core.generation import orders
from outrider.wire.messages.generation import Stop
from tests.unit.master.core.play import Play, job, running

LONGEST_STOP = orders.longest_stop(job())
GIVEN_UP_AFTER = LONGEST_STOP + orders.UNENDED


def cut_off(play: Play, member: str) -> None:
    """The member's connection breaks for good, but its peers reach it."""
    actor = play[member]
    actor.unheard = True
    play.tell(SidecarDisconnected(actor.session))


def link_again(play: Play, member: str) -> None:
    play[member].unheard = False
    play.connect(play[member])


def test_a_stop_whose_end_could_not_be_reported_does_not_count_against_the_next_one() -> None:
    """The master is cut off from all members while they stop. When it is back, the next generation and its stop follow
    within moments, and that stop has all grace periods."""
    play = running(2)
    play.creates_pods = False
    play.crash("worker-0")
    for member in ("worker-0", "worker-1"):
        cut_off(play, member)
    play.run(LONGEST_STOP + 5)
    assert play.announced("StopOverdue")
    for member in ("worker-0", "worker-1"):
        link_again(play, member)
    play.until_running(2, 2.0)
    play["worker-1"].stubborn = True
    play.crash("worker-0")
    play.run(GIVEN_UP_AFTER - 1)
    assert not play.deleted()
    play.run(2)
    assert play.deleted() == ["worker-1"]


def test_a_member_has_the_whole_time_of_a_stop_from_the_connection_on_which_it_receives_it() -> None:
    play = running(2)
    cut_off(play, "worker-1")
    play.crash("worker-0")
    play.run(LONGEST_STOP)
    play["worker-1"].stubborn = True
    link_again(play, "worker-1")
    play.run(GIVEN_UP_AFTER - 1)
    assert not play.deleted()
    play.run(2)
    assert play.deleted() == ["worker-1"]


def test_no_generation_starts_while_a_member_that_was_cut_off_still_has_time_to_stop() -> None:
    """It may be saving: another generation beside it would write the same checkpoint."""
    play = running(2)
    play.creates_pods = False
    play["worker-1"].stubborn = True
    cut_off(play, "worker-1")
    play.crash("worker-0")
    play.run(0.5)
    cut_off(play, "worker-0")
    play.run(LONGEST_STOP / 2)
    for member in ("worker-0", "worker-1"):
        link_again(play, member)
    play.run(LONGEST_STOP - 1)
    assert not play.announced("StopOverdue")
    play.until(lambda: bool(play.announced("StopOverdue")))


def test_a_member_that_only_its_peers_reach_is_not_deleted_for_a_stop_that_it_cannot_receive() -> None:
    """The master sees a working connection: the network has only lost what was sent."""
    play = running(4)
    play["worker-1"].unheard = True
    play.run(10)
    play.crash("worker-0")
    play.run(GIVEN_UP_AFTER + 30)
    assert play.sent(Stop, "worker-1")
    assert not play.deleted()
    play["worker-1"].unheard = False
    play.until(lambda: "worker-1" in play.ready() or "worker-1" in play.world)
    assert not play.deleted()


def test_a_member_that_has_stopped_is_no_longer_waited_for() -> None:
    play = running(2)
    play.crash("worker-0")
    play.until_next(2)
    play.run(GIVEN_UP_AFTER + 2)
    assert not play.deleted()
    assert play.is_running(2)


def test_a_new_master_deletes_a_member_that_an_earlier_one_could_not_stop() -> None:
    first = running(2, 1)
    first["worker-1"].stubborn = True
    first.crash("worker-0")
    first.run(LONGEST_STOP + 1)
    assert first.announced("StopOverdue")
    second = Play(first.spec, term=2, saved=first.saved, actors=first.actors, now=first.now, master="m2")
    second.run(GIVEN_UP_AFTER + 2)
    assert second.deleted() == ["worker-1"]


def test_a_pause_of_the_master_deletes_no_member() -> None:
    play = running(2)
    play["worker-1"].stubborn = True
    play.crash("worker-0")
    play.run(LONGEST_STOP)
    play.now += 20.0
    play.tell(Stalled(20.0))
    play.run(5.0)
    assert not play.deleted()


def test_a_stop_that_was_ordered_just_before_a_pause_of_the_master_has_all_its_time() -> None:
    """The master's clock continued or leapt: that says nothing about the time that the members had."""
    play = running(2)
    play["worker-1"].stubborn = True
    play.crash("worker-0")
    play.now += LONGEST_STOP - 5.0
    play.tell(Stalled(LONGEST_STOP - 5.0))
    play.run(LONGEST_STOP - 1.0)
    assert not play.announced("StopOverdue")
    play.until(lambda: bool(play.announced("StopOverdue")))
