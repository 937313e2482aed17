"""New pods avoid a node on which members fail repeatedly, and no other node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.master.core.actions import CreatePod
from outrider.master.core.events import PodGone, PodSeen
from outrider.master.core.faults import node_exclusion
from outrider.master.core.state.generation import Fault
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import NO_GENERATION, MemberId, PodUid, Role
from outrider.wire.messages.generation import WorkerExit
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Play, job

HOUR = 3600.0


def seen_on(*nodes: str, faults: list[tuple[str, float]], now: float = 10 * HOUR) -> tuple[str, ...]:
    """The nodes that are avoided after faults at these times."""
    state = State(now=now)
    for number, node in enumerate(nodes):
        member = MemberId(f"worker-{number}")
        state.members[member] = Member(member, Role("worker"), None, 0.0, node=node)
    for node, at in sorted(faults, key=lambda fault: fault[1]):
        state.faults.noted.append(Fault(at, "MemberFailed", None, "", NO_GENERATION, node=node))
    return node_exclusion.avoided(state)


def test_two_incidents_on_one_node_exclude_it_and_one_does_not() -> None:
    assert seen_on("a", "b", faults=[("a", HOUR)]) == ()
    assert seen_on("a", "b", faults=[("a", HOUR), ("a", 2 * HOUR)]) == ("a",)


def test_a_machine_that_takes_several_members_with_it_has_had_one_incident() -> None:
    assert seen_on("a", "b", faults=[("a", HOUR), ("a", HOUR + 1), ("a", HOUR + 2)]) == ()


def test_faults_on_every_node_exclude_none() -> None:
    everywhere = [(node, hour * HOUR) for hour in (1, 2, 3) for node in "abcd"]
    assert seen_on(*"abcd", faults=everywhere) == ()
    assert seen_on(*"abcd", faults=[*everywhere, *(("a", (3 + n) * HOUR) for n in range(1, 7))]) == ("a",)


def test_several_bad_nodes_of_many_are_found() -> None:
    found = seen_on(*"abcdefgh", faults=[("a", HOUR), ("a", 2 * HOUR), ("b", HOUR), ("b", 3 * HOUR), ("c", HOUR)])
    assert found == ("a", "b")


def test_faults_of_yesterday_are_forgotten() -> None:
    assert seen_on("a", "b", faults=[("a", 0.0), ("a", 2 * HOUR)], now=25 * HOUR) == ()


def test_a_job_with_one_node_keeps_it() -> None:
    assert seen_on("a", faults=[("a", HOUR), ("a", 2 * HOUR)]) == ()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_at_most_half_of_the_nodes_are_avoided(incidents: list[int]) -> None:
    nodes = [f"n{number}" for number in range(len(incidents))]
    faults = [(node, hour * HOUR) for node, hours in zip(nodes, incidents, strict=True) for hour in range(hours)]
    assert 2 * len(seen_on(*nodes, faults=faults)) <= len(nodes)


@pytest.mark.parametrize(
    ("end", "counts"),
    [
        (WorkerExit(0, 1, None, 11), True),
        (WorkerExit(0, 1, None, 9, out_of_memory=True), False),
        (WorkerExit(0, 1, 139), True),
        (WorkerExit(0, 1, 1), False),
        (WorkerExit(0, 1, 1, error_type="ValueError", error_message="bad label 17"), False),
        (WorkerExit(0, 1, 1, error_type="AcceleratorError", error_message="CUDA error: uncorrectable ECC error"), True),
        (WorkerExit(0, 1, 1, error_type="AcceleratorError", error_message="CUDA error: device-side assert"), False),
        (WorkerExit(0, 1, 1, error_type="OSError", error_message="[Errno 5] Input/output error: '/data/a'"), True),
        (WorkerExit(0, 1, 1, error_type="OutOfMemoryError", error_message="CUDA out of memory."), False),
    ],
)
def test_a_rank_counts_against_its_node_if_a_machine_can_have_ended_it(end: WorkerExit, counts: bool) -> None:
    member = Member(MemberId("worker-0"), Role("worker"), None, 0.0, node="a")
    assert node_exclusion.node_at_fault("WorkerExited", member, end) == ("a" if counts else "")


@pytest.mark.parametrize(
    ("kind", "code", "reason", "out_of_memory", "counts"),
    [
        ("TrainerLost", None, "", False, True),
        ("MemberSilent", None, "", False, True),
        ("MemberFailed", None, "UnexpectedAdmissionError: no healthy devices", False, True),
        ("MemberFailed", None, "OutOfcpu: Pod Node didn't have enough resource", False, True),
        ("MemberFailed", None, "DeadlineExceeded: Pod was active longer than specified", False, False),
        ("MemberFailed", None, "", False, False),
        ("MemberFailed", 139, "the trainer's container ended", False, True),
        ("MemberFailed", 1, "the trainer's container ended", False, False),
        ("MemberFailed", 137, "the trainer's container ended (OOMKilled)", True, False),
        ("MemberLost", None, "", False, False),
        ("WorkersGone", None, "", False, False),
        ("StartFailed", None, "", False, False),
    ],
)
def test_a_member_counts_against_its_node_if_a_machine_can_have_failed_it(
    kind: str, code: int | None, reason: str, out_of_memory: bool, counts: bool
) -> None:
    member = Member(MemberId("worker-0"), Role("worker"), None, 0.0, node="a")
    member.exit_code, member.pod_reason, member.out_of_memory = code, reason, out_of_memory
    assert node_exclusion.node_at_fault(kind, member) == ("a" if counts else "")


def on_two_nodes() -> Play:
    """Members 0 and 2 on node a, all others on node b."""
    play = Play(job(3, relaunch_limit=9))
    play.nodes = {"worker-0": "a", "worker-2": "a"} | {f"worker-{n}": "b" for n in (1, 3, 4, 5, 6)}
    play.until_running(3)
    play.run(2)
    return play


def made(play: Play) -> list[CreatePod]:
    return [a for a in play.actions if isinstance(a, CreatePod)]


def fail_twice_on_b(play: Play) -> None:
    for member in ("worker-1", "worker-3"):
        play.run(100)
        play.fail(member)
        play.until_next(3)


def test_the_replacement_after_the_second_fault_avoids_the_node_and_no_member_is_removed() -> None:
    play = on_two_nodes()
    fail_twice_on_b(play)
    assert [(a.member, a.avoid) for a in made(play)[3:]] == [("worker-3", ()), ("worker-4", ("b",))]
    (event,) = play.announced("NodeExcluded")
    assert event.reason.startswith("New pods avoid node b: 2 incidents there in ")
    assert event.reason.endswith(
        "the last: The pod of worker-3 failed with exit code 137: the trainer's container ended."
    )
    assert not play.deleted()


def test_a_new_master_avoids_the_node_too_and_reports_that_only_once() -> None:
    play = on_two_nodes()
    fail_twice_on_b(play)
    play.run(2)
    assert play.saved is not None
    assert play.saved["excluded_nodes"] == ["b"]
    after = successor(play)
    after.run(100)
    after.lose("worker-0")
    after.until_next(3)
    assert made(after)[-1].avoid == ("b",)
    assert not after.announced("NodeExcluded")


def test_the_user_of_another_controllers_pods_learns_to_cordon_the_node() -> None:
    play = on_two_nodes()
    play.adopt()
    for _ in range(2):
        play.run(100)
        play.crash("worker-1", signal=11)
        play.until_next(3)
    (event,) = play.announced("NodeExcluded")
    assert event.reason.startswith(
        "Pods of another controller still go to the bad node b (cordon it to prevent that): 2 inc"
    )


def test_a_pod_that_runs_out_of_its_own_memory_counts_against_no_node() -> None:
    play = on_two_nodes()
    for member in ("worker-1", "worker-3"):
        play.run(100)
        play.fail(member, out_of_memory=True)
        play.until_next(3)
    assert not play.announced("NodeExcluded")


def test_if_there_is_no_room_without_the_bad_node_it_counts_as_good_again() -> None:
    play = on_two_nodes()
    play.run(100)
    play.fail("worker-1")
    play.until_next(3)
    play.run(100)
    play.creates_pods = False
    play.fail("worker-3")
    pod = PodSeen(MemberId("worker-4"), PodUid("x"), Role("worker"), None, "pending", "0/2 nodes", unschedulable=True)
    play.tell(pod)
    play.run(50)
    assert play.deleted() == []
    play.creates_pods = True
    play.run(20)
    assert play.deleted() == ["worker-4"]
    assert play.announced("NodeExclusionLifted")
    play.tell(PodGone(pod.member, pod.uid, "deleted"))
    play.until_running(3)
    assert (made(play)[-1].member, made(play)[-1].avoid) == ("worker-5", ())
