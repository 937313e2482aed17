"""The remedy for a member that is slow during training: always reported, replaced only if the user asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from outrider.wire.messages.membership import Leaving
from outrider.wire.messages.report import OwnTime, Report
from tests.unit.master.core.play import STEP_SECONDS, Play, running

STRIDE = 128
Gap = Callable[[str], float]


def report_window(play: Play, number: int, gap: Gap) -> None:
    """Every member of the generation reports one window."""
    for name in play.world:
        actor = play[name]
        made = actor.step_at(play.now)
        own = OwnTime(0, number * STRIDE, 8, "recorder and cpu", gap(name), 0.001, STEP_SECONDS, 7, waited=gap(name))
        play.say(actor, Report(actor.running, "running", made, STEP_SECONDS, own=(own,)))


def train(play: Play, windows: int, gap: Gap, first: int = 1) -> None:
    for number in range(first, first + windows):
        play.run(12.8)
        report_window(play, number, gap)


def slow(*names: str) -> Gap:
    return lambda name: 0.06 if name in names else 0.02


def test_a_straggler_is_reported_with_its_factor_and_cause() -> None:
    play = running(4)
    play["worker-2"].node = "n2"
    play.tell(play.pod(play["worker-2"]))
    train(play, 5, slow("worker-2"))
    (event,) = play.announced("Straggler")
    assert event.reason == (
        "worker-2 on node n2 is a straggler: rank 2 takes 3.00 times the others' own time a step (60 ms, not 20 ms); "
        "it waits for its DataLoader, 40 ms a step longer than the others."
    )
    assert (event.member, event.severity, dict(event.detail)["cause"]) == ("worker-2", "warning", "data")
    assert not play.announced("MemberDraining")


def test_the_status_names_a_straggler_for_as_long_as_it_is_slow() -> None:
    play = running(4)
    train(play, 5, slow("worker-2"))
    document = play.status()
    (row,) = document["stragglers"]
    assert (row["member"], row["rank"], row["factor"], row["cause"]) == ("worker-2", 2, 3.0, "data")
    assert document["straggler_watch"] == "compared: 4 members by recorder and cpu"
    train(play, 4, slow(), first=6)
    assert play.status()["stragglers"] == []
    (over,) = play.announced("StragglerRecovered")
    assert over.reason == "worker-2 is no longer a straggler: it takes 1.00 times the others' own time a step."


def test_a_straggler_stays_unless_the_user_asks_to_replace_it() -> None:
    play = running(4)
    train(play, 30, slow("worker-2"))
    assert len(play.announced("Straggler")) == 1
    assert play.generation.number == 1


def test_a_straggler_trains_until_its_replacement_is_ready_if_the_user_asks_for_one() -> None:
    play = running(4, exclude_stragglers=True)
    train(play, 5, slow("worker-2"))
    assert play.announced("MemberDraining")[0].member == "worker-2"
    play.until(lambda: play.generation.number == 2 and play.is_running(4))
    assert sorted(play.world) == ["worker-0", "worker-1", "worker-3", "worker-4"]
    assert play["worker-4"].id in play.members()
    assert not any(fault.kind.startswith("Straggler") for fault in play.faults())


def test_the_replacement_of_a_straggler_is_not_replaced_again() -> None:
    play = running(4, exclude_stragglers=True)
    train(play, 5, slow("worker-2"))
    play.until(lambda: play.generation.number == 2 and play.is_running(4))
    train(play, 6, slow("worker-4"), first=10)
    (event,) = play.announced("StragglerNotReplaced")
    assert event.reason == (
        "worker-4 is slow but is not replaced: the member before it at rank index 2 was slow too, so the machine is "
        "not the cause."
    )
    assert play.generation.number == 2


def test_a_straggler_stays_if_no_replacement_is_allowed() -> None:
    play = running(4, exclude_stragglers=True, max_relaunches=0)
    train(play, 6, slow("worker-2"))
    assert "no replacement is allowed" in play.announced("StragglerNotReplaced")[0].reason
    assert play.generation.number == 1


def test_an_adopted_pod_is_deleted_because_its_owner_creates_another() -> None:
    play = running(4, exclude_stragglers=True)
    play.adopt()
    train(play, 5, slow("worker-2"))
    assert play.deleted() == ["worker-2"]


def test_reports_of_an_older_generation_are_ignored() -> None:
    play = running(4)
    old = play.generation
    play.crash("worker-1")
    play.until_next(4)
    for number in range(1, 9):
        play.run(12.8)
        for name in play.world:
            own = OwnTime(0, number * STRIDE, 8, "recorder", slow("worker-2")(name), 0.0, STEP_SECONDS)
            play.say(play[name], Report(old, "running", own=(own,)))
    assert not play.announced("Straggler")


def test_a_new_generation_starts_a_new_comparison() -> None:
    play = running(4)
    train(play, 5, slow("worker-2"))
    play.crash("worker-1")
    play.until_next(4)
    assert play.status()["stragglers"] == []
    train(play, 5, slow("worker-2"))
    assert len(play.announced("Straggler")) == 2


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("none", "with a GPU the CPU time does not show slowness"),
        ("cpu", "compared: 2 members by cpu"),
        ("recorder", "compared: 2 members by recorder"),
    ],
)
def test_the_status_shows_how_members_are_compared_or_why_not(source: str, sentence: str) -> None:
    play = running(2)
    assert "no step times have arrived yet" in play.status()["straggler_watch"]
    for number in range(1, 4):
        play.run(12.8)
        for name in play.world:
            own = OwnTime(0, number * STRIDE, 8, source, 0.02, 0.02, STEP_SECONDS)
            play.say(play[name], Report(play[name].running, "running", own=(own,)))
    assert sentence in play.status()["straggler_watch"]


def test_a_single_member_is_not_compared() -> None:
    play = running(1)
    assert "nothing to compare it with" in play.status()["straggler_watch"]


def test_invalid_times_are_reported_in_the_status() -> None:
    play = running(3)
    for number in range(1, 9):
        play.run(12.8)
        for name in play.world:
            gap = float("nan") if name == "worker-0" else 0.02
            own = OwnTime(0, number * STRIDE, 8, "recorder", gap, 0.0, STEP_SECONDS)
            play.say(play[name], Report(play[name].running, "running", own=(own,)))
    watch = play.status()["straggler_watch"]
    assert watch == "compared: 2 members by recorder; not worker-0: its gap of nan s a step is not a valid time"
    assert not play.announced("Straggler")


def test_the_next_master_knows_which_stragglers_were_replaced() -> None:
    play = running(4, exclude_stragglers=True)
    train(play, 5, slow("worker-2"))
    play.until(lambda: play.generation.number == 2 and play.is_running(4))
    assert play.saved is not None
    again = Play(play.spec, term=2, saved=play.saved, actors=play.actors, now=play.now, master="m2")
    again.until_running(4)
    train(again, 6, slow("worker-4"), first=10)
    assert again.announced("StragglerNotReplaced")


def test_a_straggler_stays_if_no_controller_would_create_its_pod_again() -> None:
    play = running(4, exclude_stragglers=True)
    play.tell(replace(play.pod(play["worker-2"]), has_controller=False))
    train(play, 6, slow("worker-2"))
    assert "no controller would create its pod again" in play.announced("StragglerNotReplaced")[0].reason
    assert not play.deleted()


def test_a_straggler_that_leaves_already_is_reported_but_not_replaced_again() -> None:
    play = running(4, exclude_stragglers=True)
    play.creates_pods = False
    train(play, 1, slow("worker-2"))
    play.say(play["worker-2"], Leaving("SIGTERM", 600.0))
    train(play, 6, slow("worker-2"), first=2)
    assert play.announced("Straggler")
    assert len(play.announced("MemberDraining")) == 1
    assert not play.announced("StragglerNotReplaced")


def test_a_spare_is_not_compared() -> None:
    play = running(3, spares=1)
    spare = play["worker-3"]
    for number in range(1, 8):
        play.run(12.8)
        report_window(play, number, slow())
        own = OwnTime(0, number * STRIDE, 8, "recorder and cpu", 0.9, 0.001, STEP_SECONDS, 7, waited=0.9)
        play.say(spare, Report(play.generation, "ready", own=(own,)))
    assert not play.announced("Straggler")
    assert play.status()["straggler_watch"] == "compared: 3 members by recorder and cpu"
