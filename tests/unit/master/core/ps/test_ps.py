"""PS jobs: a fault of one member does not stop the others, and tasks that need each other recover together."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from outrider.master.core.actions import CreatePod, DeletePod, EndJob, HidePod
from outrider.master.core.events import (
    ActionFailed,
    Asked,
    CreateRejected,
    PodGone,
    PodsListed,
    ScaleRequested,
    SidecarSaid,
    SpecChanged,
    StopAsked,
)
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Exited, Start
from outrider.wire.messages.log_lines import Group, LineMatched
from outrider.wire.messages.membership import Finish
from tests.unit.master.core.play import Actor
from tests.unit.master.core.ps_play import PsPlay, created, ps_job, stopped, training


def start_of(play: PsPlay, member: str) -> Start:
    message = play.sent(Start, member)[-1].message
    assert isinstance(message, Start)
    return message


def test_every_task_gets_a_member_with_its_tf_config() -> None:
    play = PsPlay(ps_job(2, 2, evaluator=True))
    play.until_running()
    assert created(play) == [("ps-0", 0), ("ps-1", 1), ("chief-0", 0), ("worker-0", 0), ("worker-1", 1),
                             ("evaluator-0", 0)]  # fmt: skip
    start = start_of(play, "worker-1")
    assert json.loads(start.tf_config) == {
        "cluster": {
            "chief": ["digits-chief-0:3333"],
            "worker": ["digits-worker-0:3333", "digits-worker-1:3333"],
            "ps": ["digits-ps-0:2222", "digits-ps-1:2222"],
        },
        "task": {"type": "worker", "index": 1},
    }
    assert (start.role, start.rank_index, start.worker_id, start.worker_num) == ("worker", 1, 1, 2)
    evaluator = json.loads(start_of(play, "evaluator-0").tf_config)
    assert "evaluator" not in evaluator["cluster"]
    assert evaluator["task"] == {"type": "evaluator", "index": 0}


@pytest.mark.parametrize(("role", "member"), [("worker", "worker-1"), ("chief", "chief-0"), ("ps", "ps-0"),
                                              ("evaluator", "evaluator-0")])  # fmt: skip
def test_a_crash_stops_no_other_member(role: str, member: str) -> None:
    play = training(1, 2, evaluator=True)
    play.crash(member)
    play.until_running()
    assert stopped(play) == {member}
    assert [a.member for a in play.sent(Start)] == [member]


def test_a_lost_worker_is_replaced_by_the_next_id_with_its_rank_index_and_task() -> None:
    play = training(1, 2)
    before = start_of_task(play, "worker", 0)
    play.lose("worker-0", "its machine is gone")
    play.until_running()
    assert created(play) == [("worker-2", 0)]
    assert stopped(play) == set()
    start = start_of(play, "worker-2")
    assert (start.worker_id, start.rank_index, start.tf_config) == (2, 0, before)


def start_of_task(play: PsPlay, role: str, index: int) -> str:
    start = play.holder(role, index).start
    assert start is not None
    return start.tf_config


def test_lost_ones_of_several_roles_are_replaced_each_by_itself() -> None:
    play = training(2, 2)
    for member in ("ps-1", "chief-0", "worker-1"):
        play.lose(member)
    play.until_running()
    assert set(created(play)) == {("ps-2", 1), ("chief-1", 0), ("worker-2", 1)}
    assert stopped(play) == set()


def test_a_failed_pod_that_is_kept_loses_its_address() -> None:
    play = training(1, 2)
    play.fail("ps-0", 137)
    play.until_running()
    assert created(play) == [("ps-1", 0)]
    assert [(a.member, a.uid) for a in play.actions if isinstance(a, HidePod)] == [("ps-0", play["ps-0"].uid)]


def test_a_silent_worker_is_replaced_and_no_other_member_gets_a_message() -> None:
    play = training(1, 2)
    play.freeze("worker-1")
    play.until(lambda: any(member == "worker-2" for member, _index in created(play)))
    play.until(lambda: play.is_running() and play.holder("worker", 1).id == "worker-2")
    assert stopped(play) <= {"worker-1"}


def test_a_master_that_hears_no_member_deletes_none() -> None:
    play = training(2, 2)
    for actor in play.actors.values():
        actor.unheard = True
    play.run(40)
    assert [a.member for a in play.actions if isinstance(a, DeletePod)] == []
    for actor in play.actors.values():
        actor.unheard = False
    play.run(10)
    assert play.is_running()
    assert set(play.runs().values()) >= {"ps-0", "ps-1", "chief-0"}


def test_the_job_has_succeeded_when_the_chief_has_and_the_others_are_stopped() -> None:
    play = training(1, 2)
    play.done("chief-0")
    play.until(lambda: play.ended() is not None)
    ended = play.ended()
    assert ended is not None
    assert ended.exit_code == 0
    assert "chief has ended with code 0" in ended.reason
    assert {a.member for a in play.sent(Finish)} == {"ps-0", "chief-0", "worker-0", "worker-1"}
    assert play.status()["phase"] == "succeeded"


def test_without_a_chief_all_workers_are_waited_for() -> None:
    play = training(1, 2, chief=False)
    play.done("worker-0")
    play.run(5)
    assert play.ended() is None
    assert stopped(play) == set()
    play.done("worker-1")
    play.until(lambda: play.ended() is not None)
    assert {a.member for a in play.sent(Finish)} == {"ps-0", "worker-0", "worker-1"}


def test_an_evaluator_may_look_at_the_last_checkpoint() -> None:
    play = training(1, 1, evaluator=True)
    play.done("chief-0")
    play.run(20)
    assert play.ended() is None
    assert "evaluator-0" not in stopped(play)
    play.done("evaluator-0")
    play.run(1)
    assert play.ended() is not None


def test_an_evaluator_that_keeps_running_is_stopped_in_the_end() -> None:
    play = training(1, 1, evaluator=True)
    play.done("chief-0")
    play.until(lambda: play.ended() is not None, 90)
    assert "evaluator-0" in stopped(play)


def test_the_same_error_again_and_again_fails_the_job_with_it() -> None:
    play = PsPlay(ps_job(1, 2))
    play.until_running()
    for _ in range(3):
        play.crash("worker-1", code=3, signal=None, error="KeyError", message="'layer'", step=0)
        play.run(0.2)
    play.until(lambda: play.ended() is not None)
    ended = play.ended()
    assert ended is not None
    assert ended.exit_code == 3
    assert "worker-1 failed with KeyError: 'layer'" in ended.reason


def test_a_port_that_is_taken_is_named() -> None:
    play = training(1, 1)
    error = "tensorflow.python.framework.errors_impl.UnknownError"
    play.crash("ps-0", code=1, signal=None, error=error, message="Could not start gRPC server")
    reason = play.announced("WorkerExited")[0].reason
    assert "ps-0 failed with UnknownError: Could not start gRPC server: its address digits-ps-0:2222" in reason
    assert "is in use by another process" in reason


def test_restarts_in_place_use_one_budget_for_all_tasks() -> None:
    play = training(1, 2, max_restarts=1)
    play.crash("worker-0")
    play.until_running()
    play.run(1)
    play.crash("worker-1")
    play.until(lambda: play.ended() is not None, 20)
    ended = play.ended()
    assert ended is not None
    assert "the only allowed restart is used" in ended.reason


def test_what_ends_while_a_ps_is_away_is_an_effect_and_costs_no_restart() -> None:
    play = training(1, 2, max_restarts=0)
    play.lose("ps-0")
    play.crash(
        "worker-1",
        code=1,
        signal=None,
        error="tensorflow.python.framework.errors_impl.UnavailableError",
        message="Socket closed",
    )
    play.until_running()
    assert [a.member for a in play.announced("LostPsSideEffect")] == ["worker-1"]
    assert play.restarts_used() == 0


@pytest.mark.parametrize("error", ["ModuleNotFoundError", ""])
def test_what_is_no_error_of_tensorflow_is_no_effect(error: str) -> None:
    play = training(1, 2)
    play.lose("ps-0")
    play.crash("worker-1", code=1, signal=None, error=error, message="No module named 'layers'")
    play.until_running()
    assert play.announced("LostPsSideEffect") == []
    assert play.restarts_used() == 1


def test_a_worker_that_makes_no_step_once_all_ps_are_back_is_restarted_in_place() -> None:
    play = training(1, 2)
    for actor in play.actors.values():
        actor.hung_at = play.now
    play.lose("ps-0")
    play.until_running()
    for member in ("chief-0", "worker-0"):  # these two go on by themselves
        actor = play[member]
        actor.base, actor.started_at, actor.hung_at = actor.step_at(play.now), play.now, None
    play.until(lambda: bool(play.announced("SessionStuck")))
    play.until_running()
    assert [a.member for a in play.announced("SessionStuck")] == ["worker-1"]
    assert "its session is stuck" in play.announced("SessionStuck")[0].reason
    assert stopped(play) == {"worker-1"}
    assert play.restarts_used() == 0
    play.until(lambda: bool(play.announced("Recovered")))
    assert "All workers train again with ps-0" in play.announced("Recovered")[0].reason


def test_a_worker_whose_hooks_see_that_it_is_stuck_waits_neither_for_long_nor_for_the_chief() -> None:
    play = training(1, 2)
    for actor in play.actors.values():
        actor.hung_at = play.now
    play.lose("ps-0")
    play["worker-0"].is_stuck = True
    play.run(0.5)
    assert play.announced("SessionStuck") == [], "a parameter server is away"
    play.until_running()
    took = play.until(lambda: bool(play.announced("SessionStuck")))
    (event,) = play.announced("SessionStuck")
    assert (event.member, took <= 1.0) == ("worker-0", True), "with its next report"
    assert "the old session still blocks its process" in event.reason
    play["worker-0"].is_stuck = False
    play.until_running()
    assert stopped(play) == {"worker-0"}


def test_a_session_that_lost_its_server_when_no_member_was_lost_is_started_again_too() -> None:
    """A parameter server may also be lost under an earlier master."""
    play = training(1, 2)
    play["worker-1"].hung_at, play["worker-1"].is_stuck = play.now, True
    play.until(lambda: bool(play.announced("SessionStuck")))
    play["worker-1"].is_stuck = False
    play.until_running()
    play.run(30.0)
    assert [a.member for a in play.announced("SessionStuck")] == ["worker-1"]
    assert stopped(play) == {"worker-1"}
    assert play.restarts_used() == 0


def test_a_script_that_has_restarted_since_the_ps_is_back_does_not_count_as_stuck() -> None:
    play = training(1, 2)
    play["worker-1"].hung_at = play.now
    play.lose("ps-0")
    play.until_running()
    error = "tensorflow.python.framework.errors_impl.UnavailableError"
    play.crash("worker-1", code=1, signal=None, error=error, message="no session can be made in this process")
    play.until_running()
    play["worker-1"].hung_at = play["worker-1"].started_at
    play.run(20.0)
    assert [a.member for a in play.announced("LostPsSideEffect")] == ["worker-1"]
    assert play.announced("SessionStuck") == []


def test_a_ps_that_is_lost_before_anybody_trained_has_cost_no_step() -> None:
    play = PsPlay(ps_job(1, 2))
    play.until_running()
    for actor in play.actors.values():
        actor.hung_at = actor.started_at
    play.lose("ps-0")
    play.until_running()
    play.run(3.0)
    assert play.announced("Recovered") == []


def test_a_worker_that_never_connects_is_reported_and_named_if_others_train() -> None:
    play = PsPlay(ps_job(1, 2))
    play.until_running()
    play["worker-1"].hung_at = play["worker-1"].started_at
    play.until(lambda: bool(play.announced("NoFirstStep")), limit=300.0)
    (event,) = play.announced("NoFirstStep")
    assert event.member == "worker-1"
    assert "chief-0 and worker-0 train" in event.reason
    assert play.message == "all members run, but worker-1 has made no step yet"
    play.run(60.0)
    assert len(play.announced("NoFirstStep")) == 1


def test_workers_of_a_coordinator_make_no_steps_and_are_not_reported() -> None:
    play = PsPlay(ps_job(1, 2))
    play.blind = frozenset({"worker"})
    play.until_running()
    play.run(400.0)
    assert play.announced("NoFirstStep") == []


def test_workers_wait_for_the_chief_to_restore() -> None:
    play = training(1, 1)
    for actor in play.actors.values():
        actor.hung_at = play.now
    play.lose("ps-0")
    play.until_running()
    play.until(lambda: bool(play.announced("SessionStuck")))
    assert [a.member for a in play.announced("SessionStuck")] == ["chief-0"]


def test_a_job_gets_more_workers_and_fewer_while_the_others_train() -> None:
    play = training(1, 1, most=3)
    play.tell(ScaleRequested(2))
    play.until_running()
    assert created(play) == [("worker-1", 1)]
    config = json.loads(start_of(play, "worker-1").tf_config)
    assert config["cluster"]["worker"] == ["digits-worker-0:3333", "digits-worker-1:3333"]
    assert stopped(play) == set()
    play.tell(ScaleRequested(1))
    assert play.message == "all members run", "a removed task is not reported as missing"
    play.until(lambda: len(play.status()["seats"]) == 3)
    assert stopped(play) == {"worker-1"}
    assert [a.member for a in play.actions if isinstance(a, DeletePod)] == ["worker-1"]
    play.tell(ScaleRequested(2))
    play.until(lambda: created(play)[-1] == ("worker-2", 1))
    assert play.message == "worker-2 is not running", "worker-1 was another pod"
    play.until_running()


def test_a_size_that_it_cannot_have_is_refused_and_an_edited_one_is_taken() -> None:
    play = training(1, 1, most=3)
    play.tell(ScaleRequested(4))
    (refused,) = play.announced("ScaleRejected")
    assert refused.reason == "Invalid size: 4 workers: job digits runs with 1 to 3."
    play.tell(SpecChanged(replace(play.spec, replicas=2)))
    play.until(lambda: created(play) == [("worker-1", 1)])
    play.tell(SpecChanged(play.spec))
    assert len(play.announced("ScaleRequested")) == 1


def test_a_size_that_is_requested_before_the_first_list_of_pods_is_applied_after_it() -> None:
    play = PsPlay(ps_job(1, 1, most=2))
    play.tell(ScaleRequested(2))
    assert created(play) == []
    play.until_running()
    assert ("worker-1", 1) in created(play)


def test_a_job_that_is_suspended_has_no_members_and_says_so() -> None:
    play = training(1, 1)
    play.tell(SpecChanged(play.spec, suspended=True))
    play.until(lambda: not play.members())
    assert play.phase == "suspended"
    play.tell(SpecChanged(play.spec))
    play.until_running()
    assert play.phase == "running"


def test_a_tf_config_of_the_users_own_is_left_and_reported() -> None:
    play = PsPlay(ps_job(1, 1, tf_config_from="its container main"))
    (kept,) = play.announced("UserTfConfigFound")
    assert kept.reason.startswith("TF_CONFIG is set in its container main: members use it")


def test_a_pod_that_the_platform_refuses_is_reported_once_and_its_task_alone_waits() -> None:
    play = PsPlay(ps_job(1, 2))
    play.creates_pods = False
    play.run(0.1)
    refused = next(a for a in play.actions if isinstance(a, CreatePod) and a.member == "worker-1")
    play.tell(CreateRejected(refused, "exceeded quota"))
    assert [event.member for event in play.announced("CreateRejected")] == ["worker-1"]
    assert "exceeded quota" in play.announced("CreateRejected")[0].reason
    stranger = replace(refused, member=MemberId("helper-1"))
    assert play.tell(CreateRejected(stranger, "exceeded quota")) == []
    assert play.tell(ActionFailed(EndJob(0, NO_GENERATION, "x"), "OSError: no")) == []


def test_pods_of_an_earlier_master_get_their_tasks_even_without_a_saved_status() -> None:
    """The earlier master was killed before its first status was saved."""
    named = {"ps-0": ("ps", 0), "worker-7": ("worker", 1), "worker-8": ("worker", None), "helper-0": ("helper", 0)}
    actors = {
        member: Actor(MemberId(member), PodUid(f"u-{member}"), None if n is None else RankIndex(n), Role(role))
        for member, (role, n) in named.items()
    }
    play = PsPlay(ps_job(1, 2, keep_failed_pods=0), actors=actors)
    play.tell(PodsListed(tuple(map(play.pod, actors.values())), (PodGone(MemberId("chief-3"), PodUid("c"), "x", 1),)))
    play.until_running()
    assert [play.holder(*task).id for task in (("ps", 0), ("worker", 0), ("worker", 1))] == [
        "ps-0",
        "worker-8",
        "worker-7",
    ]
    assert created(play) == [("chief-0", 0)]
    assert play.deleted() == ["chief-3"]


def test_parameter_servers_know_all_workers_that_may_ever_be() -> None:
    play = training(1, 1, most=3)
    start = play.holder("ps").start
    assert start is not None
    assert len(json.loads(start.tf_config)["cluster"]["worker"]) == 3


def test_a_new_master_takes_over_what_runs_and_disturbs_nobody() -> None:
    before = training(2, 2)
    before.run(12)
    after = PsPlay(before.spec, term=2, saved=before.saved, actors=before.actors, now=before.now + 1, master="m2")
    after.until_running()
    after.run(5)
    assert stopped(after) == set()
    assert after.sent(Start) == []
    after.lose("worker-0")
    after.until_running()
    assert created(after) == [("worker-2", 0)]


@pytest.mark.parametrize("later", [3.0, 20.0], ids=["its end is on its way", "it has ended"])
def test_a_new_master_knows_which_tasks_have_ended(later: float) -> None:
    before = training(1, 2, chief=False)
    before.done("worker-0")
    before.run(later)
    after = PsPlay(before.spec, term=2, saved=before.saved, actors=before.actors, now=before.now + 1, master="m2")
    after.run(10)
    assert created(after) == []
    after.done("worker-1")
    after.until(lambda: after.ended() is not None)
    ended = after.ended()
    assert ended is not None
    assert ended.exit_code == 0


def test_a_new_master_ends_what_an_earlier_one_has_begun_to_end() -> None:
    before = training(1, 1)
    for actor in before.actors.values():
        actor.stubborn = True
    before.tell(StopAsked("enough"))
    before.run(3)
    assert before.ended() is None
    for actor in before.actors.values():
        actor.stubborn = False
    after = PsPlay(before.spec, term=2, saved=before.saved, actors=before.actors, now=before.now + 1, master="m2")
    after.until(lambda: after.ended() is not None)
    assert after.message == "The job was stopped: enough."
    assert created(after) == []
    assert stopped(after) == {"ps-0", "chief-0", "worker-0"}


def test_the_user_stops_it() -> None:
    play = training(1, 1)
    play.tell(StopAsked("enough"))
    play.tell(StopAsked("at once", hard=True))
    play.until(lambda: play.ended() is not None)
    assert stopped(play) == {"ps-0", "chief-0", "worker-0"}
    assert len(play.announced("JobStopped")) == 1
    assert play.message == "The job was stopped: enough."


def test_messages_before_a_hello_are_ignored() -> None:
    play = training(1, 1)
    assert play.tell(SidecarSaid("another", Exited(Generation(1, 1), (), 0))) == []


def test_a_question_is_answered_once_by_all_together() -> None:
    play = training(1, 1)
    play.tell(Asked("r1", "stacks"))
    play.run(1)
    delivered = [a for a in play.actions if type(a).__name__ == "Deliver"]
    assert len(delivered) == 1
    assert {member for member, _body in delivered[0].bodies} == {"ps-0", "chief-0", "worker-0"}  # type: ignore[union-attr]


def test_the_status_is_written_once_a_second_at_most_if_nothing_waits_for_it() -> None:
    play = training(2, 3)
    saves = [a for a in play.actions if type(a).__name__ == "SaveStatus"]
    play.run(20)
    saves = [a for a in play.actions if type(a).__name__ == "SaveStatus"]
    assert 1 <= len(saves) <= 10


def test_if_no_steps_are_seen_those_in_the_output_count() -> None:
    pattern = r"global_step: (?P<step>\d+)"
    play = PsPlay(ps_job(1, 1, metrics_pattern=pattern))
    play.blind = frozenset(("chief", "worker"))
    play.until_running()
    assert {a.member: a.message.patterns for a in play.sent(Start)} == {
        "ps-0": (), "chief-0": (pattern,), "worker-0": (pattern,)
    }  # fmt: skip
    chief = play["chief-0"]
    play.say(chief, LineMatched(chief.running, 0, pattern, "global_step: 126", 1, groups=(Group("step", "126"),)))
    assert play.status()["step"] == 126
    play.say(chief, LineMatched(chief.running, 0, pattern, "global_step: 100", 2, groups=(Group("step", "100"),)))
    assert play.status()["step"] == 126


def test_a_member_whose_imports_take_two_minutes_is_not_called_slow() -> None:
    play = PsPlay(ps_job(1, 1))
    play.creates_pods = False
    play.run(120)
    assert play.announced("MemberNotReady") == []
    play.run(61)
    assert {a.member for a in play.announced("MemberNotReady")} == {"ps-0", "chief-0", "worker-0"}
