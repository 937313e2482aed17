"""What only metrics show: steps, faults, checkpoints and Events, counted by kinds of which there are few."""

from __future__ import annotations

import math

import pytest

from outrider.master.core.state.counters import BOUNDS, MOST_KINDS, MOST_NODES, OTHER, Counters, Histogram
from outrider.master.core.state.generation import Fault
from outrider.wire.ids import NO_GENERATION
from tests.unit.master.core.play import STEP_SECONDS, Play, running


def fault(kind: str, node: str = "", lost: float | None = 1.0) -> Fault:
    return Fault(0.0, kind, None, "", NO_GENERATION, lost, node)


def test_new_steps_are_observed_but_the_first_of_a_generation() -> None:
    play = running(4)
    before = play.status()["step"]
    seen = sum(play.counters().steps.counts)
    assert 0 < seen < before
    play.crash("worker-2")
    play.run(5.0)
    newest = play.status()["step"]
    assert newest > before
    observed = sum(play.counters().steps.counts)
    assert seen < observed < seen + newest - before, "no repeated step, and none that spans the fault"
    assert play.counters().steps.total == pytest.approx(observed * STEP_SECONDS, rel=0.2)


def test_a_fault_is_observed_by_its_root_cause_once_training_continues() -> None:
    play = running(4)
    play.crash("worker-2")
    play.run(0.05)
    assert play.counters().faults == {}
    play.run(5.0)
    assert {kind: sum(each.counts) for kind, each in play.counters().faults.items()} == {"WorkerExited": 1}
    stages = play.counters().stages["WorkerExited"]
    assert {sum(each.counts) for each in stages.values()} == {1}
    assert {"detect", "stop", "agree", "new_step"} < stages.keys()
    (told,) = play.faults()
    assert play.counters().faults["WorkerExited"].total == pytest.approx(told.seconds_lost, abs=1e-3)


def test_events_are_counted_by_kind() -> None:
    play = running(4)
    play.crash("worker-2")
    play.run(5.0)
    assert play.counters().events["WorkerExited"] == 1
    assert play.counters().events["JobStarted"] == 1


def test_saves_and_loads_are_observed_as_the_first_rank_of_a_member_reports_them() -> None:
    play = running(2)
    play["worker-0"].spends = {"checkpoint": 0.3}
    play.run(3.0)
    play["worker-0"].spends = {"checkpoint": 0.7, "loading": 0.2}
    play.run(3.0)
    assert {operation: (sum(each.counts), each.total) for operation, each in play.counters().checkpoints.items()} == {
        "save": (2, pytest.approx(0.7)),
        "load": (1, pytest.approx(0.2)),
    }


def test_copies_of_checkpoints_are_observed() -> None:
    play = running(3)
    play.remember_marked(1, counted=20)
    play.run(3.0)
    assert sum(play.counters().checkpoints["replicate"].counts) == 2


def test_the_age_of_a_checkpoint_continues_under_the_next_master() -> None:
    play = running(2)
    play.save("worker-0")
    saved_at = play.now
    play.run(15.0)
    assert play.counters().saved_at == saved_at
    next_one = Play(play.spec, term=2, saved=play.saved, actors=play.actors, now=play.now, master="m2")
    next_one.run(2.0)
    assert next_one.counters().saved_at == pytest.approx(saved_at, abs=0.01)


def test_the_last_fault_of_a_failed_job_counts_against_its_node() -> None:
    play = running(2, max_restarts=0)
    play["worker-1"].node = "n7"
    play.is_on("worker-1", "n7")
    play.crash("worker-1", signal=11)
    play.run(5.0)
    assert play.status()["phase"] == "failed"
    assert play.counters().incidents == {"n7": {"WorkerExited": 1}}


def test_kinds_and_nodes_are_bounded() -> None:
    found = Counters()
    for number in range(MOST_NODES + 50):
        found.note_fault(fault(f"Kind{number}", f"node-{number}"))
    assert len(found.faults) == MOST_KINDS + 1
    assert sum(found.faults[OTHER].counts) == MOST_NODES + 50 - MOST_KINDS
    assert len(found.incidents) == MOST_NODES + 1
    assert sum(sum(kinds.values()) for kinds in found.incidents.values()) == MOST_NODES + 50
    found.note_fault(fault("Kind0", "node-0"))
    assert found.incidents["node-0"] == {"Kind0": 2}


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1.0])
def test_an_impossible_duration_is_not_counted(seconds: float) -> None:
    found = Histogram()
    found.observe(seconds, BOUNDS)
    assert (found.counts, found.total) == ([], 0.0)


def test_buckets_of_another_release_begin_anew() -> None:
    found = Histogram([1, 2], 3.0)
    found.observe(0.2, BOUNDS)
    assert sum(found.counts) == 1
    assert found.total == 0.2
