"""What the recovery benchmark concludes from the lines that its script writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from measure.processes import Watch, descendants, environment_of
from measure.recovery_table import cell, good
from measure.scenarios import Repeat
from measure.steps import Step, Trace, first_world, loss_differences, time_beyond
from measure.verdict import faults_of


def make_steps(run: int, world: int, loaded: int, steps: int, time: float, losses: float = 0.5) -> list[list[Step]]:
    """The steps of each rank of one world; pids are run * 100 + rank."""
    return [
        [
            Step(time + n / 100 + rank / 1000, rank, world, run * 100 + rank, loaded + n, 0, loaded, losses / n, run)
            for n in range(1, steps + 1)
        ]
        for rank in range(world)
    ]


def traced(*worlds: list[list[Step]]) -> Trace:
    return Trace(Path("/nonexistent"), {steps[0].pid: steps for world in worlds for steps in world})


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    line = json.dumps({**dict.fromkeys(["rank", "pid", "step", "restart_count", "loaded", "run"], 1), "world": 2})
    line = line[:-1] + ', "time": 1.5, "loss": 0.5}\n'
    trace, path = Trace(tmp_path), tmp_path / "7.jsonl"
    path.write_text(line + line[:20])
    trace.read()
    assert len(trace.by_pid[1]) == 1
    with path.open("a") as file:
        file.write(line[20:])
    trace.read()
    trace.read()
    assert len(trace.by_pid[1]) == 2


def test_the_next_world_is_complete_only_when_every_rank_has_made_a_step() -> None:
    before, after = make_steps(1, 4, 0, 60, 0.0), make_steps(2, 4, 50, 3, 10.0)
    old = {steps[0].pid for steps in before}
    assert first_world(traced(before, after[:3]), old) is None
    world = first_world(traced(before, after), old)
    assert world is not None
    assert [step.pid for step in world] == [200, 201, 202, 203]
    assert all(step.step == 51 for step in world)


def test_a_smaller_world_on_the_way_is_not_the_one_that_was_asked_for() -> None:
    before, shrunk, grown = make_steps(1, 4, 0, 60, 0.0), make_steps(2, 3, 50, 9, 9.0), make_steps(3, 4, 50, 9, 10.0)
    old = {steps[0].pid for steps in before}
    assert first_world(traced(before, shrunk), old, 4) is None
    world = first_world(traced(before, shrunk, grown), old, 4)
    assert world is not None
    assert world[0].run == 3


def test_repeated_steps_are_not_beyond_the_old_world() -> None:
    before, after = make_steps(1, 2, 0, 60, 0.0), make_steps(2, 2, 50, 11, 10.0)
    trace = traced(before, after)
    assert time_beyond(traced(before, make_steps(2, 2, 50, 10, 10.0)), [200, 201], 60) is None
    assert time_beyond(trace, [200, 201], trace.highest([100, 101])) == after[1][10].time


def test_a_repeated_step_with_another_loss_is_noticed() -> None:
    before = make_steps(1, 2, 0, 60, 0.0)
    same = [[Step(10.0, r, 2, 200 + r, 51, 1, 50, before[r][50].loss, 2)] for r in range(2)]
    other = [[Step(10.0, r, 2, 200 + r, 51, 1, 50, 0.4, 2)] for r in range(2)]
    for world, wrong in ((same, 0), (other, 1)):
        trace, firsts = traced(before, world), [steps[0] for steps in world]
        assert len(loss_differences(trace, {100, 101}, firsts)) == 2
        assert len(faults_of(trace, {100, 101}, firsts, Watch(), set())) == wrong


def test_a_world_that_starts_from_nothing_or_skips_steps_is_not_a_recovery() -> None:
    before = make_steps(1, 2, 0, 60, 0.0)
    for loaded, word in ((0, "after a checkpoint"), (70, "skips steps")):
        world = make_steps(2, 2, loaded, 1, 10.0, losses=before[0][loaded].loss if loaded < 60 else 0.01)
        wrong = faults_of(traced(before, world), {100, 101}, [steps[0] for steps in world], Watch(), set())
        assert [sentence for sentence in wrong if word in sentence]


def test_an_old_process_that_lives_at_the_first_new_step_is_noticed() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as lives:
        watch = Watch()
        watch.add([lives.pid])
        assert watch.alive_at(0.0) == [lives.pid]
        lives.communicate(b"\n")
        while not watch.ended:
            watch.look(1)
        assert watch.alive_at(watch.ended[lives.pid] - 0.001) == [lives.pid]
        assert watch.alive_at(watch.ended[lives.pid] + 0.001) == []


def test_the_processes_of_a_tree_and_their_environment_are_found() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"TREE": "a=b"}
    ) as root:
        assert root.stdout is not None
        root.stdout.readline()
        tree = descendants(root.pid)
        assert len(tree) == 2
        assert [environment_of(pid)["TREE"] for pid in tree] == ["a=b", "a=b"]
        root.communicate(b"\n")


def test_a_recovery_with_something_wrong_does_not_count() -> None:
    repeats = [Repeat("outrider", "crash", recovery=0.2), Repeat("outrider", "crash", recovery=0.1, wrong=["lost"])]
    assert good(repeats) == [0.2]
    assert cell(repeats) == "0.20 s, max 0.20 s (1 of 2 went wrong)"
    assert cell([Repeat("torchrun", "shrink", wrong=["not within 60 s"])]) == "not within 60 s"
