"""The core's work for many members, new or lost, grows with their number, not with its square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest

from outrider.master.core.actions import CreatePod
from outrider.master.core.events import Began, Event, NodeSeen, PodSeen, PodsListed, SidecarSaid, Woke
from outrider.master.core.membership import failure_detector, pod_deletion
from outrider.master.core.placement import pod_status
from outrider.master.core.spec import MASTER
from outrider.master.core.state.job import State
from outrider.master.core.state.member import SILENT, Suspicion
from outrider.master.core.step import next_deadline, step
from outrider.wire.ids import NO_GENERATION, PodUid
from outrider.wire.messages.membership import Hello
from outrider.wire.messages.report import Report
from tests.unit.master.core.play import Play, job

FEW, MANY = 100, 800


def lines_of(work: Callable[[], object]) -> int:
    """Lines of Python that run, one in each turn of a loop or of a comprehension."""
    lines = 0

    def count(_frame: FrameType, event: str, _argument: object) -> Callable[..., object]:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def assert_linear(made: Callable[[int], Callable[[], object]]) -> None:
    few, many = (lines_of(made(count)) for count in (FEW, MANY))
    assert many <= 1.5 * few * MANY / FEW, (few, many)


def begun(members: int, **settings: object) -> State:
    spec = replace(job(members), **settings)  # type: ignore[arg-type]
    state = State()
    step(state, Began(1, spec, None, 1_700_000_000.0), 0.0)
    return state


def listed(state: State, *events: Event) -> list[CreatePod]:
    actions = step(state, PodsListed(()), 1.0)
    return [action for action in actions if isinstance(action, CreatePod)]


@pytest.mark.parametrize("has_master", [False, True])
def test_new_members_are_created_each_once_in_linear_time(has_master: bool) -> None:
    made = listed(begun(MANY, has_master=has_master, spares=3))
    assert [pod.rank_index for pod in made] == [*range(MANY), None, None, None]
    assert len({pod.member for pod in made}) == MANY + 3
    assert [pod.role == MASTER for pod in made] == [has_master, *[False] * (MANY + 2)]
    assert_linear(lambda members: lambda: listed(begun(members, has_master=has_master)))


def test_pods_of_an_earlier_master_are_taken_over_in_linear_time() -> None:
    def taken_over(members: int) -> Callable[[], object]:
        play = Play(job(members))
        play.until(lambda: all(actor.uid for actor in play.actors.values()) and len(play.actors) == members)
        pods = PodsListed(tuple(play.pod(actor) for actor in play.actors.values()))
        state = begun(members, is_adopted=True)
        return lambda: step(state, pods, 1.0)

    assert_linear(taken_over)


def test_spares_for_many_suspected_members_are_requested_in_linear_time() -> None:
    def in_doubt(members: int) -> State:
        state = begun(members)
        listed(state)
        for member in state.members.values():
            member.suspicion, member.greeted = Suspicion(), True
            state.membership.suspected.add(member.id)
        state.unstaffed = True
        return state

    made = listed(in_doubt(FEW))
    assert len(made) == FEW
    assert all("spare: worker-0 or worker-1 or" in pod.reason and "or 92 others may not" in pod.reason for pod in made)
    assert_linear(lambda members: lambda: listed(in_doubt(members)))


def greeted(members: int) -> tuple[State, list[PodSeen]]:
    """Two members on each node, all of which report at once."""
    state = begun(members)
    shown = [
        PodSeen(made.member, PodUid(f"uid-{made.member}"), made.role, made.rank_index, "running", node=f"node-{n // 2}")
        for n, made in enumerate(listed(state))
    ]
    for n, pod in enumerate(shown):
        step(state, pod, 2.0)
        hello = Hello(state.spec.name, pod.member, pod.uid, pod.role, pod.rank_index, "", probe_port=9)
        step(state, SidecarSaid(f"s{n}", hello), 2.0)
    return state, shown


def woken(state: State, now: float) -> State:
    """Handles at once everything that is due until then."""
    while (due := next_deadline(state)) is not None and due <= now:
        step(state, Woke(), now)
    return state


def silent(members: int) -> tuple[State, list[PodSeen]]:
    """Silences the newest third of the members, until just before the verdict."""
    state, shown = greeted(members)
    for n, _pod in enumerate(shown[: members - members // 3]):
        step(state, SidecarSaid(f"s{n}", Report(NO_GENERATION, "ready", 0, 0.0, 0.0, 0.0, 0, (), (), 0)), 4.5)
    return state, shown


def nodes_go(state: State, shown: list[PodSeen]) -> None:
    for node in dict.fromkeys(pod.node for pod in shown[len(shown) - len(shown) // 3 :]):
        step(state, NodeSeen(node, is_ready=False), 4.6)


def test_a_node_outage_of_many_members_is_judged_in_linear_time() -> None:
    def judged(members: int) -> Callable[[], object]:
        state, shown = silent(members)
        nodes_go(state, shown)
        return lambda: woken(state, 5.2)

    state, shown = silent(FEW)
    nodes_go(state, shown)
    assert sum(m.life == SILENT for m in woken(state, 5.2).members.values()) == FEW // 3
    assert_linear(judged)


def test_many_members_that_stay_silent_are_given_up_in_linear_time() -> None:
    def given_up(members: int) -> Callable[[], object]:
        state, shown = silent(members)
        nodes_go(state, shown)
        woken(state, 5.2)
        for pod in shown[: members - members // 3]:
            failure_detector.heard(state, state.members[pod.member])
        state.deadlines.set(("rebuild", ""), 60.0)
        return lambda: [pod_deletion.consider(state, each) for each in list(state.members) for _twice in range(2)]

    assert_linear(given_up)


def test_deadlines_of_many_members_that_never_came_cost_each_its_own() -> None:
    def late(members: int) -> Callable[[], object]:
        state = begun(members)
        listed(state)
        return lambda: [pod_status.patience_over(state, each) for each in list(state.members)]

    assert_linear(late)


def test_the_member_of_a_rank_index_is_known_without_a_walk_over_all() -> None:
    play = Play(job(4))
    play.until_running(4)
    play.fail("worker-2", 1)
    play.until(lambda: "worker-4" in play.members())
    assert play.holder_of(2) == "worker-4"
    assert play.state_of("worker-2") == "failed"
