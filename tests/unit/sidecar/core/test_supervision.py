"""The rules of one member: one generation at a time, no old orders, one trainer, only true reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.sidecar.core.actions import (
    Announce,
    Exit,
    FindPort,
    FinishTrainer,
    ProbePeer,
    ReadPages,
    RefuseHook,
    SampleUsage,
    Send,
    StartWorkers,
    StopWorkers,
    SweepProcesses,
)
from outrider.sidecar.core.events import (
    ActionFailed,
    CommandEnded,
    HookDisconnected,
    MasterConnected,
    MasterDisconnected,
    MasterSaid,
    PagesRead,
    PortFound,
    TrainerEnded,
    UsageSampled,
    WorkerExited,
    WorkersNotStarted,
    WorkersStarted,
    WorkersStopped,
)
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, OrderId
from outrider.wire.messages.generation import Exited, Ready, Started, StartFailed, Stepped, Stop, Stopped
from outrider.wire.messages.links import Ping, Probe, Probed
from outrider.wire.messages.membership import Finish, Hello, Refused, TrainerExited, TrainerLost, Welcome
from outrider.wire.messages.report import RankProgress, Report
from tests.unit.sidecar.core.play import (
    BEGAN,
    FIRST,
    RESTARTED,
    SECOND,
    Play,
    ended_well,
    killed,
    messages,
    none,
    only,
    start,
    stop,
    template,
)


def running(play: Play) -> None:
    play.ready()
    play.tell(start(1, FIRST), WorkersStarted(FIRST, (101, 102)))


def test_a_repeated_start_is_answered_and_not_done_again() -> None:
    play = Play()
    running(play)
    actions = play.tell(start(1, FIRST))
    assert only(actions, Started).pids == (101, 102)
    assert none(actions, StartWorkers)


def test_a_repeated_stop_is_answered_once_each_and_ordered_once() -> None:
    play = Play()
    running(play)
    assert only(play.tell(stop(2, FIRST)), StopWorkers)
    assert none(play.tell(stop(2, FIRST)), StopWorkers)
    assert only(play.tell(WorkersStopped(FIRST)), Stopped).order == 2
    assert only(play.tell(stop(2, FIRST)), Stopped).order == 2


def test_a_stop_that_overtakes_its_start_wins() -> None:
    play = Play()
    play.ready()
    assert only(play.tell(stop(1, FIRST)), Stopped)
    assert "was stopped here" in only(play.tell(start(2, FIRST)), StartFailed).error
    assert only(play.tell(start(3, SECOND)), StartWorkers)


def test_a_start_of_a_paused_old_master_is_refused_while_the_new_generation_runs() -> None:
    play = Play()
    play.ready()
    play.tell(start(1, Generation(2, 1)), WorkersStarted(Generation(2, 1), (101, 102)))
    actions = play.tell(start(9, Generation(1, 8)))
    assert "older than 2.1" in only(actions, StartFailed).error
    assert play.phase == "running"


def test_a_master_of_a_lower_term_is_not_obeyed() -> None:
    play = Play()
    play.ready()
    play.tell(MasterDisconnected(), MasterConnected(), MasterSaid(Welcome(5)))
    play.tell(MasterDisconnected(), MasterConnected(), MasterSaid(Welcome(4)))
    assert play.said(Finish(OrderId(1), 0, "says a master that was paused")) == []


def test_a_start_while_older_worker_processes_live_is_refused() -> None:
    play = Play()
    running(play)
    actions = play.tell(start(2, SECOND))
    assert "have not ended yet" in only(actions, StartFailed).error
    assert none(actions, StartWorkers)


def test_a_start_that_could_not_be_done_leaves_the_member_ready_with_another_port() -> None:
    play = Play()
    play.ready()
    play.tell(start(1, FIRST))
    actions = play.tell(WorkersNotStarted(FIRST, "fork: out of memory"))
    assert only(actions, StartFailed).error == "fork: out of memory"
    assert only(play.tell(PortFound(2001)), Ready).port == 2001
    assert only(play.tell(start(1, FIRST)), StartFailed).error == "fork: out of memory"


def test_a_start_without_an_answer_is_taken_back() -> None:
    play = Play()
    play.ready()
    play.tell(start(1, FIRST))
    actions = play.pass_time(61)
    assert only(actions, StopWorkers).generation == FIRST
    assert only(actions, StartFailed)


def test_processes_that_ended_before_started_are_reported_after_it() -> None:
    play = Play()
    play.ready()
    play.tell(start(1, FIRST), WorkerExited(FIRST, killed(0, 101)))
    said = messages(play.tell(WorkersStarted(FIRST, (101, 102))))
    assert [type(each) for each in said] == [Started, Exited]


def test_a_start_of_more_processes_than_the_template_runs_by_now_is_refused() -> None:
    play = Play()
    play.ready()
    play.tell(HookDisconnected("c1", True), replace(template(connection="c2"), nproc=1))
    refusal = only(play.tell(start(1, FIRST)), StartFailed)
    assert refusal.error == "the master ordered 2 worker processes, but this member runs 1"


@pytest.mark.parametrize("is_ordered_before", [True, False])
def test_a_start_is_ordered_again_of_a_template_whose_line_broke(is_ordered_before: bool) -> None:
    play = Play()
    play.ready()
    broke = HookDisconnected("c1", True)
    actions = play.tell(*((start(1, FIRST), broke) if is_ordered_before else (broke, start(1, FIRST))))
    assert none(actions, StartWorkers)
    assert only(play.tell(template(connection="c2")), StartWorkers).connection == "c2"
    assert play.phase == "forking"


def test_a_template_that_has_started_all_while_its_line_was_broken_needs_no_other_order() -> None:
    play = Play()
    play.ready()
    play.tell(start(1, FIRST), HookDisconnected("c1", True))
    actions = play.tell(template(connection="c2", running=FIRST, workers=((0, 101), (1, 102))))
    assert only(actions, Started).pids == (101, 102)
    assert none(actions, StartWorkers)


@pytest.mark.parametrize(("error", "is_told"), [("OSError: no fork", True), ("ConnectionError: the line broke", False)])
def test_an_order_to_start_that_does_not_reach_its_template_is_refused_unless_the_line_heals(
    error: str, is_told: bool
) -> None:
    play = Play()
    play.ready()
    order = only(play.tell(start(1, FIRST)), StartWorkers)
    actions = play.tell(ActionFailed(order, error))
    assert only(actions, StartFailed).error == error if is_told else actions == []


def test_an_action_that_is_repeated_by_itself_is_not_reported_as_failed_and_others_are() -> None:
    play = Play()
    running(play)
    play.pass_time(1.0)
    assert play.tell(ActionFailed(Send(Ping(1), FIRST, "x"), "ConnectionError: no link")) == []
    assert play.tell(ActionFailed(ReadPages(FIRST, "a report is due"), "FileNotFoundError: no page yet")) == []
    order = only(play.tell(stop(2, FIRST)), StopWorkers)
    line = only(play.tell(ActionFailed(order, "OSError: no")), Announce)
    assert (line.kind, line.reason) == ("ActionFailed", "StopWorkers failed: OSError: no")


def test_a_member_that_cannot_be_asked_for_is_one_that_is_not_reached() -> None:
    play = Play()
    play.ready()
    probe = only(play.said(Probe(OrderId(4), MemberId("worker-1"), "10.0.0.2", 9000, 0.4)), ProbePeer)
    said = only(play.tell(ActionFailed(probe, "OSError: no socket")), Probed)
    assert (said.member, said.reachable) == ("worker-1", False)


def test_processes_that_end_with_0_during_a_stop_are_not_reported_and_others_are() -> None:
    play = Play()
    running(play)
    play.tell(stop(2, FIRST))
    assert play.tell(WorkerExited(FIRST, ended_well(0, 101))) == []
    assert only(play.tell(WorkerExited(FIRST, killed(1, 102))), Exited).exits == (killed(1, 102),)


def test_a_stop_with_less_grace_replaces_the_pending_one_and_both_are_answered() -> None:
    play = Play()
    running(play)
    graces = [each.grace for order, grace in ((2, 30.0), (3, 60.0), (4, 5.0))
              for each in play.said(Stop(OrderId(order), FIRST, grace)) if isinstance(each, StopWorkers)]  # fmt: skip
    assert graces == [30.0, 5.0]
    answers = play.tell(WorkersStopped(FIRST))
    assert [each.order for each in messages(answers) if isinstance(each, Stopped)] == [2, 3, 4]


def test_a_stop_is_ordered_again_of_a_template_whose_line_broke() -> None:
    play = Play()
    running(play)
    play.tell(HookDisconnected("c1", True), stop(2, FIRST))
    actions = play.tell(template(connection="c2", running=FIRST, workers=((0, 101), (1, 102))))
    assert only(actions, StopWorkers).connection == "c2"


def test_processes_that_a_reconnected_hook_no_longer_names_ended_unseen() -> None:
    play = Play()
    running(play)
    play.tell(HookDisconnected("c1", True), template(connection="c2", running=FIRST, workers=((0, 101),)))
    exited = only(play.pass_time(1.5), Exited)
    assert [each.local_rank for each in exited.exits] == [1]
    assert exited.alive == 1


def test_an_end_that_a_reconnected_hook_tells_again_is_known_as_it_was() -> None:
    play = Play()
    running(play)
    play.tell(HookDisconnected("c1", True), template(connection="c2", running=FIRST, workers=((0, 101),)))
    assert only(play.tell(WorkerExited(FIRST, ended_well(1, 102))), Exited).exits[0].code == 0
    assert none(play.pass_time(1.5), Exited)


def test_a_sidecar_that_was_away_while_all_ended_well_says_so() -> None:
    play = Play()
    play.tell(RESTARTED, MasterConnected(), template(), MasterSaid(Welcome(1)), PortFound(2000))
    play.tell(WorkerExited(FIRST, ended_well(0, 101)))
    play.tell(WorkerExited(FIRST, ended_well(1, 102)))
    assert play.phase == "done"
    assert only(play.tell(MasterDisconnected(), MasterConnected()), Hello).finished


def test_a_restarted_sidecar_does_not_say_hello_before_it_knows_what_runs() -> None:
    play = Play()
    assert none(play.tell(RESTARTED, MasterConnected()), Hello)
    hello = only(play.tell(template(running=FIRST, workers=((0, 101), (1, 102)))), Hello)
    assert (hello.running, hello.highest) == (FIRST, FIRST)


def test_a_restarted_sidecar_without_hooks_says_hello_all_the_same_but_answers_no_stop_yet() -> None:
    play = Play()
    play.tell(RESTARTED, MasterConnected())
    assert only(play.pass_time(3.0), Hello).running == NO_GENERATION
    play.said(Welcome(1))
    assert play.tell(stop(1, FIRST)) == []
    play.pass_time(10.0)
    assert only(play.tell(stop(1, FIRST)), Stopped)


def test_a_template_that_dies_during_a_stop_has_stopped_everything() -> None:
    play = Play()
    running(play)
    play.tell(stop(2, FIRST))
    actions = play.tell(TrainerEnded(50))
    assert only(actions, SweepProcesses).trainer == 50
    assert only(actions, TrainerLost).generation == FIRST
    assert only(actions, Stopped).order == 2


def test_a_template_that_does_not_answer_a_stop_is_killed_from_outside() -> None:
    play = Play()
    running(play)
    play.tell(stop(2, FIRST))
    sweeps = [each for each in play.pass_time(81) if isinstance(each, SweepProcesses)]
    assert [each.trainer for each in sweeps] == [50]


def test_a_second_template_is_refused_while_the_first_lives_and_taken_when_it_is_gone() -> None:
    play = Play()
    running(play)
    refusal = only(play.tell(template(pid=60, connection="c2")), RefuseHook)
    assert (refusal.connection, "pid 50" in refusal.reason) == ("c2", True)
    assert play.phase == "running"
    play.tell(TrainerEnded(50), template(pid=60, connection="c3"))
    assert only(play.tell(PortFound(2001)), Ready).trainer_pid == 60


def test_a_launcher_that_only_runs_its_command_gives_way_to_the_template_inside_it() -> None:
    play = Play()
    play.tell(BEGAN, MasterConnected(), MasterSaid(Welcome(1)))
    play.tell(template(pid=40, connection="c0", what="launcher", can_start=False))
    assert play.phase == "waiting"
    play.tell(template(pid=50))
    assert only(play.tell(PortFound(2000)), Ready).trainer_pid == 50
    play.tell(HookDisconnected("c0", True), template(pid=40, connection="c2", what="launcher", can_start=False))
    assert only(play.tell(start(1, FIRST)), StartWorkers).connection == "c1"


def test_a_launcher_that_becomes_its_command_is_the_trainer_from_then_on() -> None:
    play = Play()
    play.tell(BEGAN, MasterConnected(), MasterSaid(Welcome(1)))
    play.tell(template(pid=40, connection="c0", what="launcher", can_start=False), HookDisconnected("c0", True))
    assert only(play.tell(template(pid=40, connection="c1")), FindPort)
    assert only(play.tell(PortFound(2000)), Ready).trainer_pid == 40


def test_a_launcher_whose_command_has_ended_is_not_lost_when_it_ends() -> None:
    play = Play()
    running(play)
    assert only(play.tell(CommandEnded(3, "the command ended with 3")), TrainerExited).code == 3
    assert none(play.tell(TrainerEnded(50)), TrainerLost)


def test_a_start_is_not_offered_by_a_launcher_that_cannot() -> None:
    play = Play()
    play.tell(BEGAN, MasterConnected(), MasterSaid(Welcome(1)))
    play.tell(template(pid=40, what="launcher", can_start=False))
    assert "no template or launcher" in only(play.tell(start(1, FIRST)), StartFailed).error


def test_stepped_is_sent_once_when_every_rank_steps_and_one_that_knows_where_it_is_is_beyond() -> None:
    """Only rank 0 may have loaded the checkpoint: rank 1 got its state by broadcast and counts from 0."""
    play = Play()
    play.ready()
    play.tell(start(1, FIRST, high_step=10), WorkersStarted(FIRST, (101, 102)))

    def pages(*steps: int) -> PagesRead:
        ranks = [RankProgress(rank, each, 0.01, "step" if each else "init") for rank, each in enumerate(steps)]
        return PagesRead(FIRST, tuple(ranks))

    assert none(play.tell(pages(11)), Stepped)
    assert none(play.tell(pages(11, 0)), Stepped)
    assert none(play.tell(pages(10, 1)), Stepped)
    assert only(play.tell(pages(11, 2)), Stepped).step == 11
    assert none(play.tell(pages(12, 3)), Stepped)


def test_a_report_goes_out_each_second_even_where_usage_cannot_be_read() -> None:
    play = Play()
    play.ready()
    assert only(play.tell(UsageSampled(1.5, 100.0)), Report).cpu == 1.5
    sample = only(play.pass_time(1.0), SampleUsage)
    assert only(play.tell(ActionFailed(sample, "OSError: gone")), Report).state == "ready"
    play.pass_time(1.0)
    assert only(play.pass_time(1.0), Report)


def test_no_port_is_looked_for_again_until_there_is_one() -> None:
    play = Play()
    find = play.tell(BEGAN, MasterConnected(), MasterSaid(Welcome(1)), template())[-1]
    play.tell(ActionFailed(find, "NoFreePort: none"))
    assert only(play.pass_time(2.0), FindPort)
    assert only(play.tell(PortFound(2000)), Ready)


def test_a_refused_member_retries_after_the_time_in_the_refusal() -> None:
    play = Play()
    play.tell(BEGAN, MasterConnected())
    play.said(Refused("the job is not known here yet", retry_after=2.0))
    assert none(play.pass_time(1.5), Hello)
    assert only(play.pass_time(1.0), Hello)


def test_a_member_that_is_refused_again_and_again_asks_ever_more_slowly_and_logs_each_reason_once() -> None:
    play = Play()
    play.tell(BEGAN, MasterConnected())
    unknown, other = Refused("no pod is shown", retry_after=0.2), Refused("it is another's", retry_after=0.2)
    assert only(play.said(unknown), Announce)
    for _ in range(4):
        assert only(play.pass_time(0.3), Hello)
        assert none(play.said(unknown), Announce)
    for _ in range(8):
        play.said(unknown)
    assert none(play.pass_time(4.5), Hello)
    assert only(play.pass_time(1.0), Hello)
    assert only(play.said(other), Announce)
    play.said(Welcome(1))
    assert only(play.said(other), Announce)
    assert only(play.pass_time(0.3), Hello)


def test_a_refusal_that_was_on_its_way_when_the_link_broke_wants_no_hello_without_a_link() -> None:
    play = Play()
    play.tell(BEGAN, MasterConnected(), MasterDisconnected())
    play.said(Refused("the job is not known here yet", retry_after=2.0))
    assert play.deadline() is None


def test_a_member_whose_version_is_newer_than_the_masters_keeps_its_ranks_and_asks_on() -> None:
    play = Play()
    running(play)
    again = Refused("worker-0 speaks version 2 of the protocol and this master only versions up to 1", retry_after=5.0)
    for _ in range(10):
        actions = play.said(again)
        assert none(actions, FinishTrainer)
        assert none(actions, StopWorkers)
        assert only(play.pass_time(5.1), Hello)
    assert play.generation == FIRST


def test_a_member_that_is_refused_for_good_ends_what_runs_and_itself() -> None:
    play = Play()
    running(play)
    actions = play.said(Refused("another member has this identity", retry_after=-1.0))
    assert only(actions, FinishTrainer).exit_code == 1
    assert only(play.tell(TrainerEnded(50)), Exit)


@pytest.mark.parametrize("comes", [True, False])
def test_a_member_that_is_refused_before_its_trainer_has_come_waits_for_it(comes: bool) -> None:
    """A container without the order would wait for a sidecar for ever, and its pod would never end."""
    play = Play()
    play.tell(BEGAN)
    play.tell(MasterConnected())
    assert none(play.said(Refused("the job is over", retry_after=-1.0)), Exit)
    if comes:
        assert only(play.tell(template()), FinishTrainer).exit_code == 1
        assert only(play.tell(TrainerEnded(50)), Exit)
    else:
        assert only(play.pass_time(120), Exit).reason == "no trainer has connected: the job is over"


def test_a_sidecar_ends_with_0_whatever_the_trainers_code_unless_it_ends_as_the_trainer() -> None:
    for as_trainer, code in ((False, 0), (True, 3)):
        play = Play()
        play.ready(replace(BEGAN, ends_as_trainer=as_trainer))
        play.said(Finish(OrderId(1), 3, "left out"))
        assert only(play.tell(TrainerEnded(50)), Exit).exit_code == code


def test_a_trainer_that_does_not_end_after_finish_is_killed() -> None:
    play = Play()
    running(play)
    play.said(Finish(OrderId(3), 0, "over"))
    actions = play.pass_time(120)
    assert only(actions, SweepProcesses).trainer == 0
    assert only(actions, Exit)


def test_a_finish_reaches_a_template_that_reconnects() -> None:
    play = Play()
    running(play)
    play.tell(HookDisconnected("c1", True))
    assert none(play.said(Finish(OrderId(3), 7, "over")), FinishTrainer)
    actions = play.tell(template(connection="c2", running=FIRST, workers=((0, 101), (1, 102))))
    assert only(actions, FinishTrainer).exit_code == 7
