"""A member that is cut off stops its worker processes; one that reaches any other, or was only paused, never does."""

from __future__ import annotations

import pytest

from outrider.sidecar.core.actions import Action, Announce, ProbeNeighbour, ReadPages, StopWorkers, TellTrainer
from outrider.sidecar.core.events import (
    ActionFailed,
    Event,
    MasterConnected,
    MasterDisconnected,
    MasterSaid,
    NeighbourLeft,
    NeighbourProbed,
    PortFound,
    Stalled,
    Woke,
    WorkerExited,
    WorkersStarted,
    WorkersStopped,
)
from outrider.sidecar.core.peer_health import LATELY
from outrider.wire.ids import MemberId
from outrider.wire.messages.generation import Ready, Stopped
from outrider.wire.messages.links import Neighbour, Ping, Pong
from outrider.wire.messages.membership import Hello, Welcome
from tests.unit.sidecar.core.play import (
    BEGAN,
    FIRST,
    RESTARTED,
    SECOND,
    Play,
    ended_well,
    messages,
    none,
    only,
    start,
    stop,
    template,
)

ONE = Neighbour(MemberId("worker-1"), "10.0.0.2", 9000)
TWO = Neighbour(MemberId("worker-2"), "10.0.0.3", 9000)
SILENT_AFTER = 3.0


class Among(Play):
    """A member whose neighbours and whose master answer as long as they are within reach."""

    def __init__(self) -> None:
        super().__init__()
        self.reached: set[Neighbour] = {ONE, TWO}
        self.master_answers = True
        self.done: list[Action] = []

    def tell(self, *events: Event) -> list[Action]:
        actions: list[Action] = []
        for event in events:
            actions = super().tell(event)
            self.done += actions
            for action in actions:
                self._answer(action)
        return actions

    def _answer(self, action: Action) -> None:
        if isinstance(action, ProbeNeighbour) and action.neighbour in self.reached:
            self.tell(NeighbourProbed(action.neighbour, True))
        for message in messages([action]):
            if isinstance(message, Ping) and self.master_answers:
                self.said(Pong(message.number))

    def trains(self, *neighbours: Neighbour) -> None:
        self.ready()
        self.tell(start(1, FIRST, neighbours=neighbours or (ONE, TWO)), WorkersStarted(FIRST, (101, 102)))
        self.without_pages()
        self.pass_time(0.1)

    def is_cut_off(self) -> None:
        self.reached, self.master_answers = set(), False

    def stopped(self) -> bool:
        return any(isinstance(action, StopWorkers) for action in self.done)


def test_a_member_that_is_cut_off_stops_its_workers_when_the_master_would_give_it_up_and_reports_why() -> None:
    play = Among()
    play.trains()
    play.pass_time(5)
    play.is_cut_off()
    cut_at = play.now
    play.pass_time(SILENT_AFTER + 0.1)
    stop = only(play.done, StopWorkers)
    assert stop.generation == FIRST
    assert (stop.grace, stop.handler_grace, stop.save_grace) == (0.2, 10.0, 0.0)
    line = next(each for each in play.done if isinstance(each, Announce) and each.kind == "Isolated")
    assert "neither the master nor worker-1, worker-2 could be reached" in line.reason
    assert play.now - cut_at < SILENT_AFTER + 1
    assert play.phase == "stopping"


def test_a_member_that_wakes_late_and_stops_its_workers_does_not_look_for_a_step_of_theirs_in_the_same_wake() -> None:
    play = Among()
    play.ready()
    play.tell(start(1, FIRST, neighbours=(ONE, TWO)), WorkersStarted(FIRST, (101, 102)))
    play.pass_time(5)
    play.is_cut_off()
    for _ in range(1000):
        due = play.deadline()
        assert due is not None
        play.now = max(play.now, due) + 0.2  # what is due meanwhile is due with it
        actions = play.tell(Woke())
        if play.stopped():
            break
    assert only(actions, StopWorkers)
    assert none(actions, ReadPages)


def test_a_network_that_is_back_after_a_second_is_not_noticed() -> None:
    play = Among()
    play.trains()
    for _ in range(20):
        play.pass_time(1.7)
        play.is_cut_off()
        play.pass_time(1.3)
        play.reached, play.master_answers = {ONE, TWO}, True
    assert not play.stopped()


def test_a_master_that_is_gone_stops_nothing_as_long_as_one_neighbour_answers() -> None:
    play = Among()
    play.trains()
    play.pass_time(5)
    play.tell(MasterDisconnected())
    play.reached, play.master_answers = {TWO}, False
    play.pass_time(2000)
    assert not play.stopped()


def test_neighbours_that_are_gone_stop_nothing_as_long_as_the_master_answers() -> None:
    play = Among()
    play.trains()
    play.pass_time(5)
    play.reached = set()
    play.pass_time(200)
    assert not play.stopped()


def test_a_link_that_is_up_and_dead_is_no_sign_of_the_master() -> None:
    play = Among()
    play.trains()
    play.pass_time(5)
    play.is_cut_off()
    play.pass_time(4)
    assert play.is_linked
    assert play.stopped()


def test_the_master_is_asked_for_a_sign_only_where_no_neighbour_gives_one() -> None:
    play = Among()
    play.trains()
    play.done.clear()
    play.pass_time(60)
    assert none(play.done, Ping)
    assert len([each for each in play.done if isinstance(each, ProbeNeighbour)]) <= 61


def test_a_member_of_a_world_of_one_never_looks_around_and_never_stops() -> None:
    play = Among()
    play.ready()
    play.tell(start(1, FIRST), WorkersStarted(FIRST, (101, 102)), MasterDisconnected())
    play.pass_time(60)
    assert none(play.done, ProbeNeighbour)
    assert not play.stopped()


def test_neighbours_that_have_left_well_are_not_missed() -> None:
    play = Among()
    play.trains()
    play.pass_time(5)
    play.tell(NeighbourLeft(ONE.address, ONE.port), NeighbourLeft(TWO.address, TWO.port))
    play.is_cut_off()
    play.pass_time(60)
    assert not play.stopped()


def test_one_neighbour_that_has_left_well_does_not_hide_that_the_other_is_out_of_reach() -> None:
    play = Among()
    play.trains()
    play.pass_time(5)
    play.tell(NeighbourLeft(ONE.address, ONE.port))
    play.is_cut_off()
    play.pass_time(5)
    line = next(each for each in play.done if isinstance(each, Announce) and each.kind == "Isolated")
    assert "nor worker-2 could" in line.reason


def test_neighbours_that_never_answered_are_not_missed_because_they_may_be_forbidden_to() -> None:
    play = Among()
    play.reached = set()
    play.trains()
    play.pass_time(30)
    play.is_cut_off()
    play.pass_time(60)
    assert not play.stopped()


def test_neighbours_that_were_out_of_reach_long_before_the_master_was_are_not_missed() -> None:
    play = Among()
    play.trains()
    play.pass_time(5)
    play.reached = set()
    play.pass_time(LATELY + 10)
    play.is_cut_off()
    play.pass_time(60)
    assert not play.stopped()


def test_a_pause_of_the_sidecar_is_no_isolation() -> None:
    play = Among()
    play.trains()
    play.pass_time(5)
    play.now += 30
    play.tell(NeighbourProbed(ONE, False), NeighbourProbed(TWO, False), Stalled(30.0))
    play.pass_time(10)
    assert not play.stopped()


def test_a_busy_machine_that_pauses_the_sidecar_again_and_again_does_not_hide_that_it_is_cut_off() -> None:
    play = Among()
    play.trains()
    play.pass_time(5)
    play.is_cut_off()
    for _ in range(5):
        play.pass_time(1.2)
        play.now += 0.3
        play.tell(Stalled(0.3))
    assert play.stopped()


def test_after_a_pause_a_member_that_is_cut_off_looks_for_the_whole_time_again() -> None:
    play = Among()
    play.trains()
    play.pass_time(5)
    play.is_cut_off()
    play.pass_time(2.5)
    play.now += 30
    play.tell(NeighbourProbed(ONE, False), Stalled(30.0))
    play.pass_time(SILENT_AFTER - 0.2)
    assert not play.stopped()
    play.pass_time(0.5)
    assert play.stopped()


@pytest.mark.parametrize("silent_after", [0.5, 3.0, 30.0])
def test_patience_is_as_long_as_the_masters_and_two_seconds_at_least(silent_after: float) -> None:
    play = Among()
    play.trains()
    play.said(Welcome(1, silent_after=silent_after))
    play.pass_time(5)
    play.is_cut_off()
    play.pass_time(max(silent_after, 2.0) - 1.1)
    assert not play.stopped()
    play.pass_time(1.6)
    assert play.stopped()


def test_it_stops_with_the_graces_of_the_job_and_waits_for_no_save_that_would_end_in_the_next_worlds_time() -> None:
    play = Among()
    play.trains()
    play.said(Welcome(1, stop_grace=1.0, handler_grace=20.0, save_grace=90.0))
    play.is_cut_off()
    play.pass_time(5)
    stop = only(play.done, StopWorkers)
    assert (stop.grace, stop.handler_grace, stop.save_grace) == (1.0, 20.0, 0.0)


def test_when_the_master_is_back_it_hears_why_and_the_member_is_ready_for_the_next_generation_only() -> None:
    play = Among()
    play.trains()
    play.is_cut_off()
    play.pass_time(5)
    play.tell(MasterDisconnected(), WorkersStopped(FIRST), PortFound(2001))
    hello = only(play.tell(MasterConnected()), Hello)
    assert (hello.running.number, hello.highest, hello.finished) == (0, FIRST, False)
    assert "this member was cut off" in hello.isolated
    ready = only(play.said(Welcome(1)), Ready)
    assert (ready.port, ready.after) == (2001, FIRST)
    play.tell(start(2, FIRST, neighbours=(ONE, TWO)))
    assert play.phase == "ready"
    play.tell(start(3, SECOND, neighbours=(ONE, TWO)))
    assert play.phase == "forking"
    assert only(play.tell(MasterDisconnected(), MasterConnected()), Hello).isolated == ""


def test_a_master_that_is_back_before_the_stop_is_over_learns_that_it_is_pending() -> None:
    play = Among()
    play.trains()
    play.is_cut_off()
    play.pass_time(5)
    hello = next(each for each in messages(play.done) if isinstance(each, Hello) and each.isolated)
    assert hello.running == FIRST
    play.said(Welcome(1))
    play.tell(stop(9, FIRST))
    stopped = only(play.tell(WorkersStopped(FIRST)), Stopped)
    assert stopped.order == 9
    assert only(play.tell(PortFound(2001)), Ready).after == FIRST


def test_what_has_ended_well_is_not_stopped() -> None:
    play = Among()
    play.trains()
    play.tell(WorkerExited(FIRST, ended_well(0, 101)), WorkerExited(FIRST, ended_well(1, 102)))
    play.is_cut_off()
    play.pass_time(30)
    assert not play.stopped()
    assert play.phase == "done"


def test_a_start_that_is_being_done_is_stopped_as_well() -> None:
    play = Among()
    play.ready()
    play.tell(start(1, FIRST, neighbours=(ONE, TWO)))
    play.pass_time(0.1)
    play.is_cut_off()
    play.pass_time(5)
    assert only(play.done, StopWorkers).generation == FIRST


def test_a_sidecar_that_was_restarted_learns_its_neighbours_with_the_welcome() -> None:
    play = Among()
    play.tell(RESTARTED, MasterConnected(), template(running=FIRST, workers=((0, 101), (1, 102))))
    play.said(Welcome(1, neighbours=(ONE, TWO)))
    play.pass_time(5)
    play.is_cut_off()
    play.pass_time(4)
    assert only(play.done, StopWorkers).generation == FIRST


def test_a_welcome_that_names_no_neighbours_takes_none_away() -> None:
    play = Among()
    play.trains()
    play.tell(MasterDisconnected(), MasterConnected(), MasterSaid(Welcome(2)))
    play.pass_time(5)
    play.is_cut_off()
    play.pass_time(4)
    assert play.stopped()


def test_a_probe_that_could_not_be_sent_counts_as_unanswered() -> None:
    play = Among()
    play.trains()
    play.pass_time(5)
    play.is_cut_off()
    probe = ProbeNeighbour(ONE, 0.4, FIRST, "is it there?")
    for _ in range(12):
        play.tell(ActionFailed(probe, "OSError: the network is unreachable"))
        play.pass_time(0.3)
    assert play.stopped()


def test_nothing_is_looked_for_while_nothing_runs() -> None:
    play = Among()
    play.tell(BEGAN, template(), MasterConnected(), MasterSaid(Welcome(1, neighbours=(ONE,))), PortFound(2000))
    play.tell(MasterDisconnected())
    assert {type(each) for each in play.pass_time(100)} == {TellTrainer}, "only the log is told why nothing runs"
