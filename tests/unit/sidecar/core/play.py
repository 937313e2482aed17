"""Plays events into a sidecar's core and writes down what it does, in the text format of the journal."""

from __future__ import annotations

from typing import Any, TypeVar

from outrider.sidecar.core.actions import Action, Send
from outrider.sidecar.core.events import Began, Event, HookConnected, MasterConnected, MasterSaid, PortFound, Woke
from outrider.sidecar.core.invariants import check
from outrider.sidecar.core.state import State
from outrider.sidecar.core.step import describe, next_deadline, step
from outrider.wire.ids import NO_GENERATION, Generation, JobName, MemberId, OrderId, PodUid, RankIndex, Role
from outrider.wire.messages.directions import FromMaster, FromSidecar
from outrider.wire.messages.generation import Start, Stop, WorkerExit
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.membership import Welcome

FIRST, SECOND, THIRD = Generation(1, 1), Generation(1, 2), Generation(1, 3)
A = TypeVar("A")

BEGAN = Began(
    JobName("job"), MemberId("worker-0"), PodUid("uid"), Role("worker"), RankIndex(0), "secret", "10.0.0.1", 9000, 2
)
RESTARTED = Began(
    *(JobName("job"), MemberId("worker-0"), PodUid("uid"), Role("worker"), RankIndex(0), "secret", "10.0.0.1", 9000, 2),
    restarted=True,
)


def template(
    pid: int = 50,
    connection: str = "c1",
    running: Generation = NO_GENERATION,
    workers: tuple[tuple[int, int], ...] = (),
    what: str = "template",
    can_start: bool = True,
) -> HookConnected:
    return HookConnected(connection, what, pid, "T0", "all imports are done", 2, None, running, workers, can_start)


def start(
    order: int, generation: Generation, high_step: int = 0, neighbours: tuple[Neighbour, ...] = (), members: int = 2
) -> MasterSaid:
    world = {"group_rank": 0, "group_world_size": members, "first_rank": 0, "nproc": 2, "world_size": 4}
    role = {"role": Role("worker"), "role_first_rank": 0, "role_world_size": 4, "rank_index": RankIndex(0)}
    count = generation.number - 1
    return MasterSaid(
        Start(
            OrderId(order),
            generation,
            count,
            "10.0.0.1",
            2000,
            **world,
            **role,
            high_step=high_step,
            neighbours=neighbours,
        )  # type: ignore[arg-type]
    )


def stop(order: int, generation: Generation) -> MasterSaid:
    return MasterSaid(Stop(OrderId(order), generation, reason="a worker process failed"))


def killed(local_rank: int, pid: int) -> WorkerExit:
    return WorkerExit(local_rank, pid, None, signal=9)


def ended_well(local_rank: int, pid: int) -> WorkerExit:
    return WorkerExit(local_rank, pid, 0)


class Play:
    """One sidecar; time moves by 10 ms with each event."""

    def __init__(self) -> None:
        self.state = State()
        self.now = 0.0
        self.story: list[tuple[float, str, Any]] = []
        """When; which way: `>` into the core, `<` out of it, `=` how its state changed; what."""

    def tell(self, *events: Event) -> list[Action]:
        """Tells events; the actions of the last one."""
        actions: list[Action] = []
        for event in events:
            self.now = round(self.now + 0.01, 3)
            before = describe(self.state)
            actions = step(self.state, event, self.now)
            check(self.state)
            self.story.append((self.now, ">", event))
            if describe(self.state) != before:
                self.story.append((self.now, "=", f"{before} -> {describe(self.state)}"))
            self.story += [(self.now, "<", action) for action in actions]
        return actions

    def said(self, *messages: FromMaster) -> list[Action]:
        return self.tell(*(MasterSaid(message) for message in messages))

    # -- what a test may ask: the state is read here alone
    @property
    def phase(self) -> str:
        return describe(self.state).split()[0]

    @property
    def generation(self) -> Generation:
        """The newest generation that it was ordered to start."""
        return self.state.generation

    @property
    def is_linked(self) -> bool:
        """It has a connection to a master."""
        return "alone" not in describe(self.state).split()

    def deadline(self) -> float | None:
        return next_deadline(self.state)

    def without_pages(self) -> None:
        """The pages of its ranks are read no more: they are another story."""
        assert self.state.work is not None
        self.state.work.poll_at = None

    def without_reports(self) -> None:
        self.state.link.report_at = None

    def pass_time(self, seconds: float) -> list[Action]:
        """Wakes the core at each moment that it asks for; everything it did."""
        until, actions = round(self.now + seconds, 3), []
        while (deadline := self.deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            actions += self.tell(Woke())
        self.now = max(self.now, until)
        return actions

    def ready(self, began: Began = BEGAN) -> list[Action]:
        """A member whose template is there and whose master knows it."""
        return self.tell(began, template(), MasterConnected(), MasterSaid(Welcome(1)), PortFound(2000))


def messages(actions: list[Action]) -> list[FromSidecar]:
    return [action.message for action in actions if isinstance(action, Send)]


def only(actions: list[Action], kind: type[A]) -> A:
    """The one action or message of this kind."""
    found = [each for each in (*actions, *messages(actions)) if isinstance(each, kind)]
    assert len(found) == 1, f"{len(found)} of {kind.__name__} in {actions}"
    return found[0]


def none(actions: list[Action], kind: type[object]) -> bool:
    return not any(isinstance(each, kind) for each in (*actions, *messages(actions)))
