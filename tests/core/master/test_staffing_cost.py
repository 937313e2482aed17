"""What the core does for many new members grows with their number, not with its square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest

from master.core.actions import CreatePod
from master.core.events import Began, Event, PodsListed
from master.core.member import Doubt
from master.core.reducer import step
from master.core.spec import MASTER
from master.core.state import State
from master.core.status import member_state
from tests.core.master.play import Play, job
from wire.ids import MemberId

FEW, MANY = 100, 800


def calls_of(work: Callable[[], object]) -> int:
    """Calls of Python functions, each turn of a generator among them."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def assert_linear(made: Callable[[int], Callable[[], object]]) -> None:
    few, many = (calls_of(made(count)) for count in (FEW, MANY))
    assert many <= 1.5 * few * MANY / FEW, (few, many)


def begun(members: int, **asked: object) -> State:
    spec = replace(job(members), **asked)  # type: ignore[arg-type]
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
        pods = PodsListed(tuple(play._pod(actor) for actor in play.actors.values()))
        state = begun(members, is_adopted=True)
        return lambda: step(state, pods, 1.0)

    assert_linear(taken_over)


def test_spares_for_many_who_are_in_doubt_are_asked_for_in_linear_time() -> None:
    def in_doubt(members: int) -> State:
        state = begun(members)
        listed(state)
        for member in state.members.values():
            member.doubt, member.greeted = Doubt(), True
            state.doubted.add(member.id)
        state.unstaffed = True
        return state

    made = listed(in_doubt(FEW))
    assert len(made) == FEW
    assert all("in case worker-0 or worker-1 or" in pod.reason and "or 92 others does" in pod.reason for pod in made)
    assert_linear(lambda members: lambda: listed(in_doubt(members)))


def test_it_is_known_whose_place_is_taken_without_asking_everyone() -> None:
    play = Play(job(4))
    play.until_running(4)
    play.fail("worker-2", 1)
    play.until(lambda: MemberId("worker-4") in play.state.members)
    assert play.state.holders == {m.rank_index: m.id for m in play.state.members.values()}
    assert member_state(play.state, play.state.past[MemberId("worker-2")]) == "failed"
