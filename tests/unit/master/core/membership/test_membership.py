"""Connections, identities, and the pods that the platform shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.master.core.actions import CloseSession, CreatePod, Send
from outrider.master.core.events import ActionFailed, PodSeen, PodsListed, ScaleRequested, SidecarSaid
from outrider.master.core.membership.connections import TICKET_EVERY
from outrider.wire.ids import NO_GENERATION, Generation, JobName, MemberId, OrderId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Start, StartFailed, Stop
from outrider.wire.messages.links import Ping
from outrider.wire.messages.membership import PROTOCOL_VERSION, Hello, Leaving, Refused, Welcome
from outrider.wire.messages.report import Report
from tests.unit.master.core.play import START_SECONDS, Play, job, running

WORKER = Role("worker")


def hello(play: Play, member: str, **changes: object) -> Hello:
    actor = play[member]
    said = Hello(play.spec.name, actor.id, actor.uid, WORKER, actor.rank_index, "token", running=actor.running,
                 highest=actor.highest)  # fmt: skip
    return replace(said, **changes)  # type: ignore[arg-type]


def test_the_first_generation_forms_in_the_step_in_which_the_last_member_is_ready() -> None:
    play = Play(job(4))
    assert play.until_running(4) < START_SECONDS + 0.1


def test_with_min_ready_the_first_generation_waits_for_members_that_are_starting() -> None:
    play = Play(job(3, 1))
    play.creates_pods = False
    play.run(0.1)
    for i in range(3):
        member, uid, index = MemberId(f"worker-{i}"), PodUid(f"u{i}"), RankIndex(i)
        play.tell(PodSeen(member, uid, WORKER, index, "running" if i < 2 else "pending"))
    for i in range(2):
        _come(play, i)
    play.run(20)
    assert play.stage == "gathering"
    play.run(60)
    assert play.stage != "gathering"
    assert len(play.world) == 2
    assert play.announced("MemberNotReady")


def test_a_ready_spare_gets_the_rank_index_of_a_late_member_which_becomes_a_spare() -> None:
    play = Play(job(2, 1, spares=1))
    play.creates_pods = False
    play.run(0.1)
    for i, index in enumerate((RankIndex(0), RankIndex(1), None)):
        play.tell(PodSeen(MemberId(f"worker-{i}"), PodUid(f"u{i}"), WORKER, index, "running"))
    _come(play, 0)
    _come(play, 2)
    play.run(20)
    assert not play.announced("GenerationStarted")
    play.run(60)
    assert [each.reason for each in play.announced("SparePromoted")] == [
        "worker-2 takes rank index 1 instead of worker-1."
    ]
    assert play.world == ["worker-0", "worker-2"]
    _come(play, 1)
    play.run(20)
    assert len({each.reason.split()[1] for each in play.announced("GenerationStarted")}) == 1
    assert not play.deleted()


def test_a_rank_index_is_assigned_once_if_a_spare_and_a_surplus_member_compete_for_it() -> None:
    """After a pause of the master all events of that time come at once: a spare, and a smaller job."""
    play = Play(job(4, 1, spares=1))
    play.creates_pods = False
    play.run(0.1)
    for i, index in enumerate((RankIndex(0), RankIndex(1), RankIndex(2), RankIndex(3), None)):
        play.tell(PodSeen(MemberId(f"worker-{i}"), PodUid(f"u{i}"), WORKER, index, "running"))
    for i in (0, 2, 3):
        _come(play, i)
    play.run(70)
    assert play.announced("MemberNotReady")
    play.now += 40
    _come(play, 4)
    play.tell(ScaleRequested(2))
    play.run(5)
    reported = [each.reason for each in play.announced("SparePromoted")]
    assert reported == ["worker-4 takes rank index 1 instead of worker-1."]


def test_with_min_ready_the_first_generation_does_not_wait_for_an_unschedulable_pod() -> None:
    play = Play(job(3, 1))
    play.creates_pods = False
    play.run(0.1)
    for i in range(3):
        pod = PodSeen(MemberId(f"worker-{i}"), PodUid(f"u{i}"), WORKER, RankIndex(i), "pending", "0/3 nodes fit",
                      unschedulable=i == 2)  # fmt: skip
        play.tell(pod)
    for i in range(2):
        _come(play, i)
    assert len(play.world) == 2


def test_a_generation_waits_for_a_late_member_that_still_runs_an_earlier_generation() -> None:
    """However long the first generation has waited already: two trainings would write to one checkpoint."""
    play = Play(job(2, 1))
    play.creates_pods = False
    play.run(0.1)
    for i in range(2):
        play.tell(PodSeen(MemberId(f"worker-{i}"), PodUid(f"u{i}"), WORKER, RankIndex(i), "running"))
    play.run(play.spec.ready_patience + 1)
    _come(play, 1, running=Generation(0, 1))
    _come(play, 0)
    assert not play.sent(Start)
    assert play.until_running(2)
    assert play.world == ["worker-0", "worker-1"]


def _come(play: Play, number: int, running: Generation = NO_GENERATION) -> None:
    from tests.unit.master.core.play import Actor

    actor = Actor(MemberId(f"worker-{number}"), PodUid(f"u{number}"), RankIndex(number))
    actor.running = actor.highest = running
    play.actors[actor.id] = actor
    play.connect(actor)
    play.report(actor)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"job": JobName("letters")}, "belongs to job 'letters'"),
        ({"uid": PodUid("another")}, "only one of them can be worker-1"),
    ],
)
def test_a_hello_that_cannot_be_right_is_refused_with_the_reason(change: dict[str, object], sentence: str) -> None:
    play = running(2)
    before = play["worker-1"].session
    actions = play.tell(SidecarSaid("stranger", hello(play, "worker-1", **change)))
    refused = [a for a in actions if isinstance(a, Send) and isinstance(a.message, Refused)]
    assert len(refused) == 1
    assert sentence in refused[0].reason
    assert [a.session for a in actions if isinstance(a, CloseSession)] == ["stranger"]
    assert [a.session for a in play.say(play["worker-1"], Ping(1))] == [before], "the real member is not disturbed"


def test_a_sidecar_of_a_newer_version_tries_again_and_again_and_is_reported_once() -> None:
    """While masters are upgraded, new pods already have the new version."""
    play = running(2)
    newer = hello(play, "worker-1", version=PROTOCOL_VERSION + 1)
    for session in ("first", "second", "third"):
        (send, *_) = [a for a in play.tell(SidecarSaid(session, newer)) if isinstance(a, Send)]
        assert isinstance(send.message, Refused)
        assert "uses protocol version 2" in send.message.reason
        assert send.message.retry_after > 0
    assert len(play.announced("SidecarRejected")) == 1
    assert not play.deleted()
    play.connect(play["worker-1"])
    assert play.say(play["worker-1"], Ping(1)), "the master has its version now"


def test_a_connected_member_is_welcomed_again_in_the_middle_of_its_tickets_life() -> None:
    play = running(2)
    welcomes = len(play.sent(Welcome, "worker-1"))
    for renewed in (1, 2):
        play.until(lambda: len(play.sent(Welcome, "worker-1")) == welcomes + renewed, TICKET_EVERY + 1.0)  # noqa: B023


def test_a_member_that_the_platform_has_not_listed_is_to_try_again_soon() -> None:
    play = Play(job(2))
    play.creates_pods = False
    play.run(0.1)
    said = Hello(play.spec.name, MemberId("worker-0"), PodUid("u"), WORKER, RankIndex(0), "token")
    (send, _close) = play.tell(SidecarSaid("s", said))
    assert isinstance(send, Send)
    assert isinstance(send.message, Refused)
    assert 0 < send.message.retry_after < 1


def test_a_member_that_is_gone_is_refused_for_good() -> None:
    play = running(3, 2)
    said = hello(play, "worker-2")
    play.lose("worker-2")
    (send, *_rest) = play.tell(SidecarSaid("late", said))
    assert isinstance(send, Send)
    assert isinstance(send.message, Refused)
    assert send.message.retry_after < 0


def test_a_newer_connection_of_the_same_pod_replaces_the_older() -> None:
    play = running(2)
    old = play["worker-1"].session
    actions = play.tell(SidecarSaid("newer", hello(play, "worker-1")))
    assert [a.session for a in actions if isinstance(a, CloseSession)] == [old]
    assert any(isinstance(a, Send) and isinstance(a.message, Welcome) and a.session == "newer" for a in actions)
    generation = play.generation
    assert play.tell(SidecarSaid(old, Report(NO_GENERATION, "ready"))) == []
    play["worker-1"].session = "newer"
    play.run(10)
    assert play.generation == generation, "training continued"


def test_a_sidecar_that_reattaches_costs_nothing() -> None:
    play = running(2)
    play.reconnect("worker-1", highest=NO_GENERATION)
    play.run(10)
    assert play.generation.number == 1
    assert not play.faults()


def test_a_sidecar_that_comes_back_without_its_workers_is_a_fault() -> None:
    play = running(2)
    play["worker-1"].running = NO_GENERATION
    play.reconnect("worker-1")
    play.until(lambda: play.is_running() and play.generation.number == 2)
    assert [f.kind for f in play.faults()] == ["WorkersGone"]


def test_a_restarted_sidecar_has_time_to_find_its_workers_again() -> None:
    play = running(2)
    generation, play["worker-1"].running = play["worker-1"].running, NO_GENERATION
    play.reconnect("worker-1", highest=NO_GENERATION)
    play.run(2)
    play["worker-1"].running = generation
    play.run(10)
    assert play.generation.number == 1
    assert not play.faults()


def test_a_restarted_sidecar_that_finds_no_workers_in_time_is_a_fault() -> None:
    play = running(2)
    play["worker-1"].running = NO_GENERATION
    play.reconnect("worker-1", highest=NO_GENERATION)
    play.until(lambda: play.is_running() and play.generation.number == 2, 8.0)
    assert [f.kind for f in play.faults()] == ["WorkersGone"]


def test_the_check_of_a_restarted_sidecar_does_not_outlive_its_generation() -> None:
    play = running(2)
    play.reconnect("worker-1", highest=NO_GENERATION)
    play["worker-1"].running = NO_GENERATION
    play.run(2)
    play.crash("worker-0")
    play.until(lambda: play.is_running() and play.generation.number == 2, 2)
    play.run(TICKET_EVERY)
    assert [f.kind for f in play.faults()] == ["WorkerExited"]
    assert play.generation.number == 2


@pytest.mark.parametrize(("goes", "costs"), [(True, 0), (False, 1)])
def test_a_start_that_comes_to_a_pod_that_is_deleted_costs_no_restart(goes: bool, costs: int) -> None:
    play = running(2)
    if goes:
        play.tell(replace(play.pod(play["worker-1"]), phase="terminating", reason="it was deleted", grace=30.0))
    play.say(play["worker-1"], StartFailed(OrderId(1), play.generation, "this member is ending: deleted"))
    play.until(lambda: play.stage == "running" and play.generation.number == 2, 10)
    assert play.restarts_used() == costs


def test_an_order_is_repeated_more_and_more_slowly_until_it_is_acknowledged() -> None:
    play = running(2)
    play["worker-1"].stubborn = True
    play.crash("worker-0")
    begun = play.now
    times = []
    for _ in range(6):
        seen = len(play.sent(Stop, "worker-1"))
        play.until(lambda seen=seen: len(play.sent(Stop, "worker-1")) > seen)
        times.append(round(play.now - begun, 1))
    assert times == [0.5, 1.5, 3.5, 5.5, 7.5, 9.5]
    assert len({s.message.order for s in play.sent(Stop, "worker-1")}) == 1  # type: ignore[union-attr]


def test_a_new_connection_gets_pending_orders_at_once() -> None:
    play = running(2)
    play["worker-1"].stubborn = True
    play.crash("worker-0")
    actions = play.tell(SidecarSaid("newer", hello(play, "worker-1")))
    assert [type(a.message) for a in actions if isinstance(a, Send)] == [Welcome, Stop]


def test_a_member_that_still_runs_an_old_generation_is_ordered_to_stop_it() -> None:
    """A spare, which was never ordered to stop it."""
    play = running(2, spares=1)
    play.run(3)
    play.crash("worker-0")
    play.until_next(2)
    actions = play.tell(SidecarSaid(play["worker-2"].session, Report(Generation(1, 1), "running")))
    (stop,) = [a for a in actions if isinstance(a, Send)]
    assert isinstance(stop.message, Stop)
    assert stop.message.generation == Generation(1, 1)


def test_what_is_not_in_the_platforms_list_is_gone() -> None:
    play = running(3, 2)
    pods = tuple(play.pod(play[m]) for m in ("worker-0", "worker-1"))
    play["worker-2"].gone = True
    play.tell(PodsListed(pods))
    assert [f.kind for f in play.faults()] == ["MemberLost"]
    play.until_running(2)


def test_a_pod_that_is_never_heard_is_deleted_and_replaced() -> None:
    play = Play(job(2))
    play.until(lambda: "worker-1" in play.actors)
    play.freeze("worker-1")
    play.until_running(2, 400)
    assert play.deleted() == ["worker-1"]
    assert play.world == ["worker-0", "worker-2"]


def test_a_pod_that_cannot_be_created_is_tried_again() -> None:
    play = Play(job(1))
    play.creates_pods = False
    play.run(0.1)
    (create,) = [a for a in play.actions if type(a).__name__ == "CreatePod"]
    play.tell(ActionFailed(create, "quota exceeded"))
    play.creates_pods = True
    play.until_running(1)
    (announced,) = play.announced("CreateFailed")
    assert "quota exceeded" in announced.reason


def test_a_status_that_cannot_be_saved_is_tried_again_and_nothing_starts_before() -> None:
    play = Play(job(1))
    play.saves_status = False
    play.run(5)
    save = [a for a in play.actions if type(a).__name__ == "SaveStatus"][-1]
    play.tell(ActionFailed(save, "No space left on device"))
    assert not play.sent(Start)
    play.saves_status = True
    play.until_running(1)


def test_ranks_follow_rank_indexes_and_count_every_worker_process() -> None:
    play = Play(job(3, nproc=2))
    play.until_running(3)
    starts = {s.member: s.message for s in play.sent(Start)}
    reported = [(s.group_rank, s.first_rank, s.nproc, s.world_size, s.rank_index) for _m, s in sorted(starts.items())]  # type: ignore[union-attr]
    assert reported == [(0, 0, 2, 6, 0), (1, 2, 2, 6, 1), (2, 4, 2, 6, 2)]


def test_the_rendezvous_line_is_reported_for_every_member() -> None:
    play = Play(job(2, nproc=2))
    play.until_running(2)
    lines = [dict(a.detail) for a in play.announced("GenerationStarted")]
    assert [line["global_ranks"] for line in lines] == ["[0, 1]", "[2, 3]"]
    assert {line["world_size"] for line in lines} == {"4"}
    assert {line["restart_count"] for line in lines} == {"0"}
    assert {(line["master_addr"], line["master_port"]) for line in lines} == {("127.0.0.1", "30001")}


def test_a_command_that_ended_well_without_ever_meeting_the_hooks_fails_the_job() -> None:
    """It ran without ranks, on every member; a relaunch would only run it again."""
    play = Play(job(2))
    play.until(lambda: bool(play.actors))
    actor = play["worker-0"]
    play.tell(PodSeen(actor.id, actor.uid, WORKER, actor.rank_index, "succeeded", "Completed", exit_code=0))
    (failed,) = play.announced("JobFailed")
    assert "without RANK" in failed.reason
    assert len([a for a in play.actions if isinstance(a, CreatePod)]) == 2


def test_a_pod_that_is_evicted_before_its_template_has_come_does_not_fail_the_job() -> None:
    play = Play(job(2))
    play.until(lambda: bool(play.actors))
    actor = play["worker-0"]
    play.connect(actor)
    play.say(actor, Leaving("Evicted", 2.0))
    play.tell(PodSeen(actor.id, actor.uid, WORKER, actor.rank_index, "succeeded", "Evicted"))
    assert not play.announced("JobFailed")


def test_a_pod_that_ends_with_0_after_all_trained_members_are_lost_costs_only_a_relaunch() -> None:
    play = running(1)
    play.lose("worker-0")
    play.until(lambda: "worker-1" in play.actors)
    actor = play["worker-1"]
    play.tell(PodSeen(actor.id, actor.uid, WORKER, actor.rank_index, "succeeded", "Completed", exit_code=0))
    assert not play.announced("JobFailed")
    assert play.announced("MemberFailed")


def test_a_command_that_ended_with_0_beside_working_members_costs_only_a_relaunch() -> None:
    play = running(2)
    actor = play["worker-0"]
    play.tell(PodSeen(actor.id, actor.uid, WORKER, actor.rank_index, "succeeded", "Completed", exit_code=0))
    assert not play.announced("JobFailed")
    assert play.announced("MemberFailed")
