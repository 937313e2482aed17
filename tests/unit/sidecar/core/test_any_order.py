"""Whatever comes in whatever order, the core neither raises nor breaks a law."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from outrider.sidecar.core.events import (
    AskedHere,
    Collected,
    CommandEnded,
    Event,
    HookConnected,
    HookDisconnected,
    LifelineLost,
    MasterConnected,
    MasterDisconnected,
    MasterSaid,
    NeighbourLeft,
    NeighbourProbed,
    PagesRead,
    PortFound,
    SigtermReceived,
    Stalled,
    TerminationAsked,
    TrainerEnded,
    UsageSampled,
    WorkerExited,
    WorkersNotStarted,
    WorkersStarted,
    WorkersStopped,
)
from outrider.sidecar.core.invariants import BrokenInvariant, check
from outrider.sidecar.core.state import State
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, OrderId
from outrider.wire.messages.diagnostics import Ask
from outrider.wire.messages.generation import WorkerExit
from outrider.wire.messages.links import Neighbour, Pong
from outrider.wire.messages.membership import Finish, Refused, Welcome
from outrider.wire.messages.report import RankProgress
from tests.unit.sidecar.core.play import BEGAN, RESTARTED, Play, start, stop, template

NEIGHBOUR = Neighbour(MemberId("worker-1"), "10.0.0.2", 9000)
generations = some.builds(Generation, some.integers(1, 2), some.integers(1, 3))
orders = some.integers(1, 9)
pids = some.sampled_from([50, 60, 70])
connections = some.sampled_from(["c1", "c2", "c3"])
exits = some.builds(WorkerExit, some.integers(0, 1), some.sampled_from([101, 102]), some.sampled_from([0, 1, None]))
workers = some.sampled_from([(), ((0, 101),), ((0, 101), (1, 102))])
what = some.sampled_from(["template", "launcher"])


def hook(pid: int, connection: str, running: Generation, alive: object, kind: str, can: bool) -> HookConnected:
    named = alive if running > NO_GENERATION else ()
    return template(pid, connection, running, named, kind, can)  # type: ignore[arg-type]


events: some.SearchStrategy[Event] = some.one_of(
    some.builds(start, orders, generations, some.integers(0, 5)),
    some.builds(stop, orders, generations),
    some.builds(hook, pids, connections, generations | some.just(NO_GENERATION), workers, what, some.booleans()),
    some.builds(HookDisconnected, connections, some.booleans()),
    some.builds(TrainerEnded, pids),
    some.builds(WorkersStarted, generations, some.just((101, 102))),
    some.builds(WorkersNotStarted, generations, some.just("no")),
    some.builds(WorkersStopped, generations),
    some.builds(WorkerExited, generations, exits),
    some.builds(PagesRead, generations, some.just((RankProgress(0, 3, 0.1, "step"), RankProgress(1, 4, 0.1, "step")))),
    some.builds(PortFound, some.integers(1000, 1003)),
    some.builds(MasterSaid, some.builds(Welcome, some.integers(1, 2))),
    some.builds(MasterSaid, some.sampled_from([Finish(OrderId(1), 0, "x"), Ask(OrderId(2), "stacks")])),
    some.builds(MasterSaid, some.sampled_from([Refused("no", 1.0), Refused("never", -1.0)])),
    some.sampled_from([MasterConnected(), MasterDisconnected(), UsageSampled(1.0, 2.0), CommandEnded(1, "x")]),
    some.sampled_from([TerminationAsked("x", 20.0), SigtermReceived(20.0), LifelineLost(), Stalled(5.0)]),
    some.builds(MasterSaid, some.builds(Welcome, some.integers(1, 2), neighbours=some.just((NEIGHBOUR,)))),
    some.builds(start, orders, generations, some.just(0), some.just((NEIGHBOUR,))),
    some.builds(AskedHere, some.integers(-3, -1), some.just("stacks")),
    some.builds(Collected, some.integers(-3, 3), some.just("{}")),
    some.builds(NeighbourProbed, some.just(NEIGHBOUR), some.booleans()),
    some.sampled_from([NeighbourLeft(NEIGHBOUR.address, NEIGHBOUR.port), MasterSaid(Pong(1))]),
)


@settings(max_examples=400, deadline=None)
@given(some.booleans(), some.lists(events | some.floats(0.0, 100.0), max_size=40))
def test_no_order_of_events_breaks_a_law_or_leaves_a_deadline_behind(
    restarted: bool, story: list[Event | float]
) -> None:
    play = Play()
    play.tell(RESTARTED if restarted else BEGAN, MasterConnected(), MasterSaid(Welcome(1)))
    for each in story:
        if isinstance(each, float):
            play.pass_time(min(each, 5.0))
            deadline = play.deadline()
            assert deadline is None or deadline > play.now - 1e-6
        else:
            play.tell(each)


def test_a_law_that_does_not_hold_is_named() -> None:
    with pytest.raises(BrokenInvariant, match="a port is offered only while the member is ready"):
        check(State(port=2000))
