"""A container that is too small: its rank index gets twice the memory, in any later pod and under any later master."""

from __future__ import annotations

import dataclasses

import pytest

from outrider.master.core.actions import CreatePod
from outrider.master.core.events import PodSeen
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Exited, Stop, WorkerExit
from outrider.wire.messages.membership import Finish, TrainerLost
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Actor, Play, job, running

MIB = 2**20


def limited(members: int = 3, least: int | None = None, limit: int = 700 * MIB, **policy: object) -> Play:
    """A job that trains in containers with a memory limit."""
    play = Play(job(members, least, **policy))
    play.memory_limit = limit
    play.until_running(members)
    play.run(2.0)
    play.actions.clear()
    return play


def run_out(play: Play, member: str) -> None:
    play.crash(member, signal=9, out_of_memory=True)
    play.until_next()


def made(play: Play) -> list[tuple[str, int | None, int]]:
    found = (a for a in play.actions if isinstance(a, CreatePod))
    return [(a.member, a.rank_index, a.memory_limit // MIB) for a in found]


def test_a_rank_that_ran_out_of_memory_is_replaced_by_a_pod_with_twice_as_much() -> None:
    play = limited()
    run_out(play, "worker-1")
    assert made(play) == [("worker-3", 1, 1400)]
    (event,) = play.announced("MemoryLimitRaised")
    assert event.reason == (
        "worker-1 ran out of memory. Its replacement gets 1400Mi instead of 700Mi, and a request that grows by the "
        "same factor."
    )
    (finish,) = play.sent(Finish)
    assert (finish.member, finish.message.exit_code) == ("worker-1", 137)  # type: ignore[union-attr]
    assert sorted(play.world) == ["worker-0", "worker-2", "worker-3"]


def test_running_out_of_memory_is_one_fault_that_costs_a_relaunch_and_no_restart() -> None:
    play = limited(max_restarts=0)
    run_out(play, "worker-1")
    (fault,) = play.faults()
    assert (fault.kind, fault.member) == ("MemberFailed", "worker-1")
    assert fault.reason == (
        "Rank 1 on worker-1 was killed because the container ran out of memory; its replacement gets 1400Mi instead "
        "of 700Mi."
    )
    assert play.restarts_used() == 0
    assert play.relaunches_used(1) == 1
    assert not play.deleted(), "its pod stays to be inspected"


def test_a_rank_that_lost_a_process_to_its_memory_counts_as_out_of_memory() -> None:
    play = limited(max_restarts=0, permanent_codes=(1,))
    message = "DataLoader worker (pid 7) is killed by signal: Killed. "
    play.crash("worker-1", code=1, error="RuntimeError", message=message, out_of_memory=True)
    play.until_next()
    assert made(play) == [("worker-3", 1, 1400)]
    (fault,) = play.faults()
    assert fault.reason == (
        "Rank 1 on worker-1 failed with RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed, because "
        "the container ran out of memory; its replacement gets 1400Mi instead of 700Mi."
    )


def test_running_out_of_memory_repeatedly_is_not_a_crash_loop() -> None:
    play = running(2, crash_loop=2)
    for _ in range(3):
        play.crash("worker-1", code=1, error="RuntimeError", message="killed", out_of_memory=True, step=0)
        play.until_next(2)
    assert play.ended() is None


def test_the_survivors_continue_at_once_if_they_are_enough() -> None:
    play = limited(3, 2)
    play.crash("worker-1", signal=9, out_of_memory=True)
    assert play.until_next(2) < 0.1
    play.until_running(3, 700)


def test_memory_doubles_each_time_up_to_the_cap_and_then_the_cap_is_reported() -> None:
    play = limited(2, max_memory=2000 * MIB, relaunch_limit=3)
    for member in ("worker-1", "worker-2", "worker-3"):
        run_out(play, member)
        play.run(2)
    assert made(play) == [("worker-2", 1, 1400), ("worker-3", 1, 2000), ("worker-4", 1, 2000)]
    assert "its replacement gets the same maximum, 2000Mi (maxMemory" in play.faults()[-1].reason
    play.crash("worker-4", signal=9, out_of_memory=True)
    play.run(5)
    assert play.ended() is not None
    assert "its replacement gets the same maximum" in play.message


def test_a_later_replacement_for_another_reason_has_as_much_memory() -> None:
    play = limited()
    run_out(play, "worker-1")
    play.run(2)
    play.lose("worker-3")
    play.until_next(3)
    assert made(play)[-1] == ("worker-4", 1, 1400)


def test_a_new_master_knows_what_a_rank_index_needs() -> None:
    play = limited()
    run_out(play, "worker-1")
    play.run(2)
    after = successor(play)
    after.run(5)
    after.lose("worker-3")
    after.until_next(3)
    assert made(after) == [("worker-4", 1, 1400)]
    assert after.state_of("worker-1") == "failed"


def test_a_new_master_right_after_it_treats_the_member_as_failed() -> None:
    play = limited()
    play.crash("worker-1", signal=9, out_of_memory=True)
    play.run(2)
    actor = play["worker-1"]
    actor.failed, actor.unheard = None, False  # its container has yet to end, and its sidecar never heard of it
    after = successor(play)
    after.until_running(3, 30)
    assert after.member("worker-3")["rank_index"] == 1
    assert "worker-1" not in after.members()


def test_a_spare_takes_the_rank_index_with_the_memory_that_it_has() -> None:
    play = limited(2, spares=1)
    play.run(3)
    play.actions.clear()
    play.crash("worker-1", signal=9, out_of_memory=True)
    play.until_next(2)
    assert sorted(play.world) == ["worker-0", "worker-2"]
    play.run(5)
    run_out(play, "worker-2")
    play.run(5)
    assert play.status()["memory"] == {"1": 1400 * MIB}, "the spare had 700Mi too"


def test_a_whole_container_that_the_kernel_ended_is_replaced_alike() -> None:
    play = limited()
    play.fail("worker-1", 137, "the trainer's container ended (OOMKilled)", out_of_memory=True)
    play.until_next(3)
    assert made(play) == [("worker-3", 1, 1400)]
    assert "ended (OOMKilled); its replacement gets 1400Mi instead of 700Mi" in play.faults()[-1].reason


def test_a_container_that_the_platform_starts_again_after_it_is_replaced_too_and_its_pod_deleted() -> None:
    play = limited()
    actor = play["worker-1"]
    restarted = PodSeen(actor.id, actor.uid, Role("worker"), RankIndex(1), "running",
                        "RestartedTrainer: its container ended (OOMKilled) with exit code 137",
                        memory_limit=700 * MIB, out_of_memory=True)  # fmt: skip
    play.tell(restarted)
    play.until_next(3)
    assert made(play) == [("worker-3", 1, 1400)]
    assert play.deleted() == ["worker-1"]


RANK_KILLED, TRAINER_LOST, POD_FAILED, POD_RESTARTED, POD_RUNS_AGAIN = "rank", "trainer", "failed", "restarted", "again"


def happens(play: Play, what: str, before: Generation) -> None:
    """Lets happen one of the things that show that the kernel has ended worker-1's container as a whole."""
    actor = play["worker-1"]
    actor.running, actor.has_trainer = NO_GENERATION, False
    pod = PodSeen(
        actor.id, actor.uid, Role("worker"), RankIndex(1), "running", memory_limit=700 * MIB, out_of_memory=True
    )
    if what == RANK_KILLED:
        play.say(actor, Exited(before, (WorkerExit(0, 5, None, 9),), 0))
    elif what == TRAINER_LOST:
        play.say(actor, TrainerLost("the template (pid 7) ended, and its worker processes with it", before))
    elif what == POD_FAILED:
        play.fail("worker-1", 137, "the trainer's container ended (OOMKilled)", out_of_memory=True)
    elif what == POD_RESTARTED:
        reason = "RestartedTrainer: its container ended (OOMKilled) with exit code 137; that was the first time"
        play.tell(dataclasses.replace(pod, reason=reason))
    else:
        play.tell(pod)


@pytest.mark.parametrize(
    "order",
    [
        (TRAINER_LOST, POD_FAILED),
        (POD_FAILED, TRAINER_LOST),
        (RANK_KILLED, TRAINER_LOST, POD_FAILED),
        (TRAINER_LOST, POD_RESTARTED, POD_RUNS_AGAIN),
        (TRAINER_LOST, POD_RUNS_AGAIN),
        (POD_RUNS_AGAIN, POD_RUNS_AGAIN),
    ],
)
def test_the_memory_of_a_container_that_ends_as_a_whole_doubles_once_in_any_order_of_reports(
    order: tuple[str, ...],
) -> None:
    """memory.oom.group of cgroup v2 ends ranks and template at the same moment (docs/adr/0032)."""
    play = limited()
    before = play.generation
    for what in order:
        happens(play, what, before)
        play.run(0.05)
    play.until_next(3)
    assert made(play) == [("worker-3", 1, 1400)]
    assert len(play.announced("MemoryLimitRaised")) == 1
    assert "its replacement gets 1400Mi instead of 700Mi" in play.faults()[-1].reason
    assert play.restarts_used() == 0
    play.until(lambda: play.faults()[-1].seconds_lost is not None)


def test_a_member_that_cannot_get_more_memory_is_reported_once_for_each_end() -> None:
    pod = Actor(MemberId("train-0"), PodUid("u0"), RankIndex(0), memory_limit=700 * MIB)
    play = Play(job(1, is_adopted=True), actors={"train-0": pod})
    play.until_running(1)
    again = PodSeen(
        pod.id, pod.uid, Role("worker"), RankIndex(0), "running", memory_limit=700 * MIB, out_of_memory=True
    )
    for _ in range(3):
        play.tell(again)
    assert len(play.announced("OutOfMemory")) == 1


def test_without_a_limit_the_ranks_restart_in_place_and_the_reason_is_reported() -> None:
    play = Play(job(2))
    play.nodes = {"worker-0": "n0", "worker-1": "n1"}
    play.until_running(2)
    play.crash("worker-1", signal=9, out_of_memory=True)
    play.until_next(2)
    assert not made(play)[2:]
    (event,) = play.announced("OutOfMemory")
    assert "worker-1 has no memory limit" in event.reason
    assert play.restarts_used() == 1


def test_a_local_job_has_a_crash_like_any_other() -> None:
    play = Play(job(2))
    play.until_running(2)
    play.crash("worker-1", signal=9, out_of_memory=True)
    play.until_next(2)
    assert not play.announced("OutOfMemory")
    assert [f.kind for f in play.faults()] == ["WorkerExited"]


def test_the_pod_of_another_controller_stays_and_the_event_names_the_limit_to_raise() -> None:
    pod = Actor(MemberId("train-0"), PodUid("u0"), RankIndex(0), memory_limit=700 * MIB)
    play = Play(job(1, is_adopted=True), actors={"train-0": pod})
    play.until_running(1)
    play.run(2)
    play.actions.clear()
    play.crash("train-0", signal=9, out_of_memory=True)
    play.until_next(1)
    assert not play.sent(Finish)
    assert play.sent(Stop)
    (event,) = play.announced("OutOfMemory")
    assert event.reason == (
        "train-0 ran out of its 700Mi of memory. Its ranks restart in place. To give it more, raise "
        "resources.limits.memory in the pod template of the controller that creates its pods."
    )


def test_a_container_that_the_kubelet_restarts_after_it_is_reported_too() -> None:
    pod = Actor(MemberId("train-0"), PodUid("u0"), RankIndex(0), memory_limit=700 * MIB)
    play = Play(job(1, is_adopted=True), actors={"train-0": pod})
    play.until_running(1)
    play.tell(PodSeen(pod.id, pod.uid, Role("worker"), RankIndex(0), "running",
                      "RestartedTrainer: its container ended (OOMKilled) with exit code 137",
                      memory_limit=700 * MIB, out_of_memory=True))  # fmt: skip
    assert "raise resources.limits.memory" in play.announced("OutOfMemory")[0].reason


def test_the_status_shows_what_each_container_has_and_what_each_rank_index_needs() -> None:
    play = limited()
    run_out(play, "worker-1")
    play.run(2)
    assert play.saved is not None
    assert play.saved["memory"] == {"1": 1400 * MIB}
    limits = {m["id"]: m["memory_limit_mib"] for m in play.saved["members"]}  # type: ignore[attr-defined]
    assert limits == {"worker-0": 700, "worker-1": 700, "worker-2": 700, "worker-3": 1400}


def test_a_spare_for_a_silent_member_has_the_memory_that_the_member_needs() -> None:
    play = limited()
    run_out(play, "worker-1")
    play.run(2)
    play.freeze("worker-3")
    play.until_next(3)
    assert made(play)[-1] == ("worker-4", None, 1400)
