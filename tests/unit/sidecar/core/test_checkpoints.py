"""In-memory checkpoints: reports to the master, protected steps, and when writing stops."""

from __future__ import annotations

from dataclasses import replace

from outrider.sidecar.core.actions import Action, Announce, FetchCopies, KeepCopies, StartWorkers, StopFetching
from outrider.sidecar.core.events import (
    ActionFailed,
    CopiesFetched,
    HookSaid,
    MasterConnected,
    MasterDisconnected,
    PortFound,
    WorkersStarted,
    WorkersStopped,
)
from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.checkpoints import Copy, Fetch, Fetched, Kept, Remembered, Saved, Wanted
from outrider.wire.messages.generation import Ready, Start
from outrider.wire.messages.membership import Welcome
from tests.unit.sidecar.core.play import FIRST, SECOND, Play, messages, none, only, start, stop

SAID = Remembered(FIRST, 0, 40, 1000)
WANTED = Wanted(0, 0, MemberId("worker-1"), "10.0.0.2", 9, "key")
ORDER = Fetch(OrderId(8), SECOND, 40, FIRST, (WANTED,), seconds=20)


def trains() -> Play:
    play = Play()
    play.ready()
    play.tell(start(1, FIRST), WorkersStarted(FIRST, (7, 8)))
    return play


def answers(actions: list[Action]) -> list[Fetched]:
    return [message for message in messages(actions) if isinstance(message, Fetched)]


def test_a_complete_checkpoint_is_reported_at_once_and_to_each_new_master() -> None:
    play = trains()
    assert only(play.tell(HookSaid(SAID)), Remembered) == SAID
    newer = replace(SAID, step=60)
    play.tell(HookSaid(newer), MasterDisconnected(), MasterConnected())
    assert only(play.said(Welcome(2)), Remembered) == newer


def test_a_save_of_an_older_generation_is_not_reported() -> None:
    assert none(trains().tell(HookSaid(replace(SAID, generation=SECOND))), Remembered)


def test_a_kept_step_never_goes_back_within_a_generation() -> None:
    play = trains()
    assert only(play.said(Kept(FIRST, 40)), KeepCopies).step == 40
    assert none(play.said(Kept(FIRST, 20)), KeepCopies)
    assert none(play.said(Kept(FIRST, 40)), KeepCopies)
    assert only(play.said(Kept(SECOND, 20)), KeepCopies).step == 20


def test_ready_says_what_is_in_memory() -> None:
    play = trains()
    play.tell(stop(2, FIRST), WorkersStopped(FIRST))
    copies = (Copy(0, 40, generation=FIRST),)
    assert only(play.tell(PortFound(2001, copies)), Ready).copies == copies


def test_a_copy_is_fetched_once_and_answered_as_often_as_it_is_ordered() -> None:
    play = Play()
    play.ready()
    assert only(play.said(ORDER), FetchCopies).order == ORDER
    assert none(play.said(ORDER), FetchCopies)
    came = Fetched(ORDER.order, SECOND, 40, 0.5)
    copies = (Copy(0, 40, generation=FIRST),)
    actions = play.tell(CopiesFetched(came, copies))
    assert [type(message) for message in messages(actions)] == [Ready, Fetched]
    assert only(actions, Ready).copies == copies
    assert answers(play.said(ORDER)) == [came]


def test_a_failed_fetch_is_reported_with_its_reason() -> None:
    play = Play()
    play.ready()
    action = only(play.said(ORDER), FetchCopies)
    actions = play.tell(ActionFailed(action, "OSError: no route to host"))
    assert answers(actions)[0].error == "OSError: no route to host"
    assert only(actions, Announce).severity == "warning"


def test_nothing_is_written_into_own_slots_while_worker_processes_use_them() -> None:
    play = trains()
    actions = play.said(ORDER)
    assert none(actions, FetchCopies)
    assert answers(actions)[0].error == "worker processes of generation 1.1 use this memory"
    held = replace(ORDER, order=OrderId(9), wanted=(replace(WANTED, held=True),))
    assert only(play.said(held), FetchCopies).order == held


def test_a_start_ends_what_is_being_fetched_first() -> None:
    play = Play()
    play.ready()
    play.said(ORDER)
    kinds = [type(action) for action in play.tell(start(9, SECOND))]
    assert kinds.index(StopFetching) < kinds.index(StartWorkers)
    assert not answers(play.tell(CopiesFetched(Fetched(ORDER.order, SECOND, 40, 0.5))))


def test_a_newer_order_takes_the_place_of_an_older_one() -> None:
    play = Play()
    play.ready()
    play.said(ORDER)
    actions = play.said(replace(ORDER, order=OrderId(9)))
    assert [type(action) for action in actions] == [StopFetching, FetchCopies]


MARKED = replace(ORDER, generation=FIRST, made_in=FIRST, marked=True)


def test_a_save_of_the_marked_path_is_taken_over_while_worker_processes_only_read() -> None:
    play = trains()
    assert only(play.said(MARKED), FetchCopies).order == MARKED
    assert none(play.said(replace(MARKED, order=OrderId(9), generation=SECOND)), FetchCopies)


def test_what_the_world_begins_from_is_kept_before_its_ranks_start() -> None:
    play = Play()
    play.ready()
    ordered = start(1, FIRST).message
    assert isinstance(ordered, Start)
    actions = play.said(replace(ordered, begins_from=7, begins_in=FIRST))
    kinds = [type(each) for each in actions if isinstance(each, KeepCopies | StartWorkers)]
    assert kinds == [KeepCopies, StartWorkers]
    assert only(actions, KeepCopies).step == 7
    assert none(play.said(Kept(FIRST, 6)), KeepCopies)


def test_the_newest_saves_are_reported_to_each_master() -> None:
    """One that has not heard of a save counts the steps behind its load from an older one."""
    play = trains()
    play.tell(*(HookSaid(Saved(FIRST, f"/data/{n}.pt", n, prints=(f"9-{n}",))) for n in range(1, 20)))
    play.tell(HookSaid(Saved(FIRST, "/data/10.pt", 30)), MasterDisconnected(), MasterConnected())
    again = [message for message in messages(play.said(Welcome(2))) if isinstance(message, Saved)]
    assert [message.step for message in again] == [*range(4, 10), *range(11, 20), 30]
    assert again[0] == Saved(FIRST, "/data/4.pt", 4, prints=("9-4",), again=True)
