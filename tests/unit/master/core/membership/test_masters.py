"""A master that follows another one, diagnostics, the end of a job, and the status."""

from __future__ import annotations

import json

import pytest

from outrider.master.core.actions import Deliver, EndJob
from outrider.master.core.events import Asked, PodSeen, ScaleRequested, StopAsked
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Start, Started, Stop
from outrider.wire.messages.membership import PROTOCOL_VERSION, Finish, Refused
from tests.unit.master.core.play import Play, running


def successor(play: Play, *, saved: dict[str, object] | None = None, away: float = 1.0,
              clock_is_ahead: float = 0.0) -> Play:  # fmt: skip
    """The master dies, and another one takes over later, on a machine whose wall clock may be wrong."""
    left = json.loads(json.dumps(saved or play.saved))
    return Play(play.spec, term=play.term + 1, saved=left, actors=play.actors, now=play.now + away, master="m2",
                clock_is_ahead=clock_is_ahead)  # fmt: skip


def test_a_new_master_adopts_what_runs_and_stops_nothing() -> None:
    after = successor(running(4))
    after.run(20)
    assert after.announced("GenerationAdopted")
    assert after.generation == Generation(1, 1)
    assert not after.sent(Stop)
    assert not after.faults()


@pytest.mark.parametrize("newer", [(0,), (0, 1), (0, 1, 2, 3)], ids=["one", "half", "all"])
def test_a_rollback_over_a_wire_version_stops_no_job(newer: tuple[int, ...]) -> None:
    """The masters were rolled back, and the sidecars of some pods are newer."""
    play = running(4)
    for number in newer:
        play[f"worker-{number}"].version = PROTOCOL_VERSION + 1
    after = successor(play)
    after.run(600)
    assert not after.sent(Stop)
    assert not after.deleted()
    assert after.announced("GenerationAdopted")
    assert all(send.message.retry_after > 0 for send in after.sent(Refused))  # type: ignore[attr-defined]
    assert {after[f"worker-{number}"].running for number in range(4)} == {Generation(1, 1)}


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_wall_clocks_that_differ_by_an_hour_change_nothing(ahead: float) -> None:
    before = running(4, 3)
    before.freeze("worker-3")
    before.until_next(3)
    before.run(5)
    after = successor(before, clock_is_ahead=ahead)
    took = after.until(lambda: bool(after.announced("SilentMemberDeleted")), 60)
    assert took <= after.spec.replace_after + 2 * after.spec.silent_after
    assert after.announced("GenerationAdopted")
    assert not after.sent(Stop)
    assert not after.announced("HangSuspected")


def test_the_next_generation_after_an_adoption_has_the_higher_term_and_the_next_number() -> None:
    after = successor(running(4))
    after.run(3)
    after.crash("worker-1")
    after.until(lambda: after.is_running() and after.generation == Generation(2, 2))


def test_a_worker_that_died_while_no_master_watched_is_found() -> None:
    play = running(4)
    play["worker-1"].running = NO_GENERATION
    after = successor(play)
    after.until(lambda: after.is_running() and after.generation == Generation(2, 2), 10)
    assert [f.kind for f in after.faults()] == ["WorkersGone"]


def test_a_member_that_leaves_on_order_under_a_new_master_is_not_reported_as_lost_unseen() -> None:
    after = successor(running(3, 2))
    leaver = after["worker-2"]
    leaver.unheard = True
    after.run(0.05)
    why = "it was deleted with 5 s of grace"
    after.tell(PodSeen(leaver.id, leaver.uid, Role("worker"), leaver.rank_index, "terminating", why, grace=5.0))
    after.lose("worker-2", why)
    after.until(lambda: after.is_running() and after.generation == Generation(2, 2), 20)
    assert [(fault.kind, fault.reason) for fault in after.faults()] == [
        ("MemberLeftEarly", "worker-2 has left: it was deleted with 5 s of grace.")
    ]


def test_a_member_that_a_new_master_has_reported_as_lost_is_reported_once() -> None:
    after = successor(running(3, 2))
    after["worker-2"].unheard = True
    after.run(0.05)
    after.lose("worker-2", "its machine is gone")
    after.until(lambda: after.is_running() and after.generation == Generation(2, 2), 20)
    assert [fault.reason for fault in after.faults()] == ["worker-2 is lost: its machine is gone."]


def test_members_that_went_while_no_master_watched_are_reported_together() -> None:
    play = running(4, 2)
    play["worker-1"].gone = play["worker-3"].gone = True
    after = successor(play)
    after.until(lambda: after.is_running() and after.generation == Generation(2, 2), 20)
    assert [fault.reason for fault in after.faults()] == ["worker-1 and worker-3 were lost while no master watched."]


def test_what_an_earlier_master_ordered_acknowledges_nothing_of_the_next_one() -> None:
    """A sidecar answers the third order of an earlier master, a Start; that does not acknowledge a Stop."""
    play = running(4)
    after = successor(play)
    after.until(lambda: bool(after.announced("GenerationAdopted")))
    started = after["worker-1"]
    assert started.start is not None
    started.stubborn = True
    after.crash("worker-0")
    after.say(started, Started(started.start.order, started.start.generation, (5,)))
    stops = len(after.sent(Stop, "worker-1"))
    after.run(3.0)
    assert len(after.sent(Stop, "worker-1")) > stops, "the order is repeated until it is acknowledged"


def test_a_start_that_an_earlier_master_gave_and_that_never_came_costs_no_restart() -> None:
    play = running(4)
    first = play.generation
    play.crash("worker-0")
    play.until_next(4)
    deaf = play["worker-1"]
    deaf.running, deaf.highest, deaf.stopped, deaf.unheard = NO_GENERATION, first, first, True
    after = successor(play)
    after.until(lambda: bool(after.announced("GenerationAdopted")))
    deaf.unheard = False
    after.connect(deaf)
    after.until(lambda: after.is_running(4) and after.generation == Generation(2, 3), 10)
    assert "runs nothing of generation 1.2" in after.announced("WorkersGone")[0].reason
    assert after.restarts_used() == 1, "that of the crash"


@pytest.mark.parametrize(("error", "used"), [("torch.distributed.DistBackendError", 0), ("ValueError", 1)])
def test_ranks_that_ended_under_an_earlier_master_cost_a_restart_if_another_fails_by_itself(
    error: str, used: int
) -> None:
    after = successor(running(2))
    after.until(lambda: bool(after.announced("GenerationAdopted")))
    gone = after["worker-1"]
    gone.running = NO_GENERATION
    after.connect(gone)
    assert after.announced("WorkersGone")
    after.crash("worker-0", code=1, error=error, message="x")
    after.until_next(2)
    assert [fault.kind for fault in after.faults()] == ["WorkerExited"]
    assert after.restarts_used() == used


def test_one_of_two_ranks_that_ended_while_no_master_watched_is_found() -> None:
    play = running(2, nproc=2)
    generation = play.generation
    after = successor(play)
    after.after(0.105, lambda: (after.crash("worker-1", local_rank=1), None)[1])
    after.until(lambda: after.is_running() and after.generation == Generation(2, 2), 10)
    (fault,) = after.faults()
    assert (fault.kind, fault.member) == ("WorkerExited", "worker-1")
    assert [each.generation for each in after.announced("WorkerExited")] == [generation]


def test_a_kept_failed_pod_is_reported_and_charged_once_whatever_masters_see_it() -> None:
    play = running(4)
    failed = PodSeen(MemberId("worker-1"), PodUid("uid-1"), Role("worker"), RankIndex(1), "failed", "Error", 137)
    play["worker-1"].gone = True
    play.tell(failed)
    play.until_running(4, 20)
    used = play.relaunches_used(1)
    after = successor(play)
    after.tell(failed)
    after.run(5)
    assert [f.kind for f in after.faults()] == ["MemberFailed"]
    assert (after.generation, after.relaunches_used(1)) == (play.generation, used)
    assert after.member("worker-4")["rank_index"] == 1


def test_a_port_that_an_earlier_master_assigned_is_not_used_again_though_its_member_never_received_it() -> None:
    play = running(2)
    port = play["worker-0"].start.master_port
    left = json.loads(json.dumps(play.saved))
    left["saved"]["world"] = None  # it was being stopped when the master died
    unaware, stopped = play["worker-0"], play["worker-1"]
    unaware.running, unaware.highest, unaware.port = NO_GENERATION, NO_GENERATION, port - 1
    stopped.running, stopped.stopped = NO_GENERATION, Generation(1, 1)
    after = successor(play, saved=left)
    after.until(lambda: after.is_running(2) and after.generation == Generation(2, 2), 10)
    assert after.sent(Start)[-1].message.master_port > port


def test_a_member_that_was_lost_while_no_master_watched_is_replaced() -> None:
    play = running(4)
    play["worker-1"].gone = True
    after = successor(play)
    after.until_running(4, 20)
    assert sorted(after.world) == ["worker-0", "worker-2", "worker-3", "worker-4"]
    assert [f.kind for f in after.faults()] == ["MemberLost"]


def test_a_member_that_froze_while_no_master_watched_is_judged_by_silence() -> None:
    play = running(4, 3)
    play.freeze("worker-3")
    after = successor(play)
    after.until_running(3, 15)
    assert "MemberSilent" in [f.kind for f in after.faults()]


def test_a_stop_that_the_old_master_did_not_finish_is_finished() -> None:
    play = running(4)
    play.crash("worker-1")
    play["worker-1"].running = NO_GENERATION
    after = successor(play)
    after.until(lambda: after.is_running() and after.generation == Generation(2, 2), 20)


def test_members_that_run_different_generations_are_stopped_and_started_together() -> None:
    play = running(2)
    play["worker-1"].running = play["worker-1"].highest = Generation(1, 2)
    after = successor(play)
    after.until(lambda: after.is_running() and after.generation == Generation(2, 3), 10)
    assert after.announced("GenerationMismatch")


def test_budgets_faults_and_checkpoints_outlive_the_master() -> None:
    play = running(2)
    play.save("worker-0")
    for _ in range(2):
        play.crash("worker-1")
        play.run(5)
    after = successor(play)
    after.run(3)
    assert after.restarts_used() == 2
    assert after.handed_over()["fault_counts"] == {"WorkerExited": 2}
    assert after.saved_steps() == play.saved_steps() != {}
    assert after.prints() == play.prints() != {}
    assert after.status()["faults"] == play.status()["faults"]


def test_stacks_are_collected_and_members_without_an_answer_are_missing() -> None:
    play = running(3)
    play.freeze("worker-2")
    play.tell(Asked("r1", "stacks"))
    play.until(lambda: any(isinstance(a, Deliver) for a in play.actions), 8)
    (deliver,) = [a for a in play.actions if isinstance(a, Deliver)]
    assert [m for m, _body in deliver.bodies] == ["worker-0", "worker-1"]
    assert deliver.missing == ("worker-2",)


def test_a_job_that_is_stopped_stops_its_ranks_with_grace_and_ends_with_0() -> None:
    play = running(2)
    play.tell(StopAsked("the user asked for it"))
    assert [s.message.grace for s in play.sent(Stop)] == [0.2, 0.2]  # type: ignore[union-attr]
    assert not play.sent(Finish)
    play.until(lambda: play.ended() is not None, 5)
    end = play.ended()
    assert end is not None
    assert end.exit_code == 0
    assert len(play.sent(Finish)) == 2
    assert play.phase == "stopped"


def test_a_reason_that_is_a_sentence_is_reported_with_one_full_stop() -> None:
    play = running(1)
    play.tell(StopAsked("The master was told to end (SIGTERM)."))
    assert play.announced("JobStopped")[0].reason == "The job is stopped: The master was told to end (SIGTERM)."


def test_a_hard_stop_leaves_no_pod_behind_that_was_just_being_made() -> None:
    play = running(2)
    play.creates_pods = False
    play.lose("worker-1")
    assert "worker-2" in play.members()
    play.tell(StopAsked("Ctrl-C twice", hard=True))
    assert play.ended() is None
    play.tell(PodSeen(MemberId("worker-2"), PodUid("late"), Role("worker"), RankIndex(1), "pending"))
    assert play.deleted() == ["worker-0", "worker-2"]
    assert play.ended() is not None


def test_a_hard_stop_waits_some_seconds_at_most_for_a_pod_that_is_never_shown() -> None:
    play = running(2)
    play.creates_pods = False
    play.lose("worker-1")
    play.tell(StopAsked("Ctrl-C twice", hard=True))
    assert play.until(lambda: play.ended() is not None) < 6.0
    assert sum(isinstance(action, EndJob) for action in play.actions) == 1


def test_a_hard_stop_waits_for_no_member() -> None:
    play = running(2)
    play["worker-1"].stubborn = True
    play.tell(StopAsked("Ctrl-C twice", hard=True))
    assert play.ended() is not None
    assert sorted(play.deleted()) == ["worker-0", "worker-1"]


def test_members_that_do_not_acknowledge_the_end_are_deleted() -> None:
    play = running(2)
    play["worker-1"].unheard = True
    play.done("worker-0")
    play["worker-1"].unheard = False
    play.done("worker-1")
    play["worker-1"].unheard = True
    play.until(lambda: play.ended() is not None, 10)
    assert play.deleted() == ["worker-1"]


def test_the_status_has_the_documented_shape() -> None:
    play = running(3, 2, spares=1)
    play.run(4)
    play.save("worker-0")
    play.lose("worker-1")
    play.run(5)
    status = play.status()
    assert json.loads(json.dumps(status)) == status
    assert list(status) == ["version", "job", "phase", "generation", "world", "step", "step_estimated",
                            "steps_repeated", "resumed_from", "restarts", "goodput", "goodput_1h", "goodput_1d",
                            "mtbf_seconds", "time", "goodput_by_steps", "replicated_step", "checkpoint_saved_at",
                                "message", "exit_code",
                            "modes", "faults", "dry_run", "excluded_nodes", "memory", "node_check", "stragglers",
                            "straggler_watch", "network", "unreachable", "data", "members"]  # fmt: skip
    assert {m["id"]: m["state"] for m in status["members"]} == {
        "worker-0": "running", "worker-1": "replaced", "worker-2": "running", "worker-3": "running",
        "worker-4": "spare"}  # fmt: skip
    (fault,) = status["faults"]
    assert fault["kind"] == "MemberLost"
    assert fault["seconds_lost"] > 0
    assert fault["time"].startswith("2023-11-14T22:13:")
    assert 0 < status["goodput_by_steps"] <= 1


def test_what_the_status_says_while_a_member_is_frozen_and_after() -> None:
    play = running(3, 2, max_relaunches=0)
    play.freeze("worker-1")
    play.until_running(2, 10)
    states = {m["id"]: m["state"] for m in play.status()["members"]}
    assert states["worker-1"] == "silent"


def test_a_new_master_knows_which_rank_index_a_promoted_spare_has() -> None:
    """Its pod still has no rank index. Taken for a spare, it would be in the generation but not counted."""
    play = running(4, 2, spares=1)
    play.lose("worker-0")
    play.until(lambda: play.is_running(4) and "worker-4" in play.world)
    play.run(12)
    after = successor(play)
    after.until(lambda: bool(after.announced("GenerationAdopted")))
    after.run(2)
    assert after.member("worker-4")["rank_index"] == 0
    after.tell(ScaleRequested(3))
    after.save("worker-1")
    after.save("worker-1")
    after.until_running(3)
    assert after.world == ["worker-4", "worker-1", "worker-2"]


# -- excluded members ---------------------------------------------------------------------------------------------
def left_out(away: float) -> Play:
    """A member falls silent and is excluded; the others continue training, and another master comes."""
    play = running(4, 3)
    play.creates_pods = False
    play["worker-1"].unheard = play["worker-1"].frozen = True
    play.until(lambda: bool(play.announced("MemberSilent")))
    play.until_running(3)
    play.run(1.5)
    return successor(play, away=away)


def test_an_excluded_member_stays_so_under_a_new_master_and_has_the_usual_time_to_reach_it() -> None:
    after = left_out(away=30.0)
    after.run(1.0)
    row = next(m for m in after.status()["members"] if m["id"] == "worker-1")
    assert row["state"] == "silent"
    after.run(after.spec.replace_after - 2.0)
    assert not after.deleted()
    after.until(lambda: bool(after.deleted()), 5)
    assert after.deleted() == ["worker-1"]
    assert not after.announced("MemberNotReady")


def test_an_excluded_member_that_reaches_the_new_master_returns() -> None:
    after = left_out(away=30.0)
    after.run(1.0)
    after["worker-1"].unheard = after["worker-1"].frozen = False
    after.connect(after["worker-1"])
    after.report(after["worker-1"])
    after.run(2 * after.spec.replace_after)
    assert after.announced("MemberReturned")
    assert not after.deleted()


def test_a_member_outside_the_generation_that_the_new_master_never_hears_is_judged_by_silence() -> None:
    play = running(3, 2, spares=1)
    play.until(lambda: "worker-3" in play.ready())
    play.run(2.0)
    play["worker-3"].unheard = play["worker-3"].frozen = True
    after = successor(play)
    after.until(lambda: "worker-3" in after.deleted(), 3 * after.spec.replace_after)
    assert after.announced("MemberSilent")
    assert not after.announced("MemberNotReady")


def test_ranks_that_end_on_the_order_of_an_earlier_master_are_missed_and_cost_nothing() -> None:
    """The master was killed while they stopped: they report that they run, are adopted, and end. Found by seed 1140."""
    before = running(2)
    after = Play(before.spec, term=2, saved=before.saved, actors=before.actors, now=before.now + 1, master="m2")
    after.until(lambda: bool(after.announced("GenerationAdopted")))
    for actor in after.actors.values():
        actor.stopped, actor.running = actor.running, NO_GENERATION
        after.say_ready(actor)
    after.until(lambda: after.is_running(2) and after.generation.number == 2)
    assert after.announced("WorkersGone")[0].reason == (
        "worker-0 has stopped generation 1.1 on the order of an earlier master."
    )
    assert after.restarts_used() == 0


def test_a_late_member_that_has_ended_a_generation_started_without_the_lease_is_stopped_up_to_it() -> None:
    """This master knows only the generation before it; a member ordered to end only that would never be ready again."""
    play = running(2)
    late, after_it = play["worker-0"], Generation(1, 2)
    late.unheard = True
    after = successor(play)
    after.until(lambda: bool(after.announced("GenerationAdopted")))
    late.running, late.highest, late.finished, late.unheard = NO_GENERATION, after_it, True, False
    after.connect(late)
    after.run(0.1)
    assert {send.message.generation for send in after.sent(Stop, "worker-0")} == {after_it}  # type: ignore[union-attr]
