"""Golden transcripts: whole stories, events (>) in and actions (<) out, read in review (`tests/unit/transcript.py`).

Each file opens with the sentence that says what it proves. `pytest --rewrite` writes them anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from outrider.master.core.actions import Action
from outrider.master.core.events import Event, NodeSeen, PodSeen, ScaleRequested, SidecarSaid, Woke
from outrider.wire.ids import Role
from outrider.wire.messages.membership import Leaving
from outrider.wire.messages.report import Report
from tests.unit.master.core.play import Play, job, running
from tests.unit.master.core.ps_play import training
from tests.unit.master.core.ranks import elsewhere
from tests.unit.transcript import QUIET, Telling

FOLDER = Path(__file__).parent / "transcripts"


def _fresh(play: Play) -> Play:
    """What led up to the story is not part of it."""
    play.begins_at = len(play.story)
    return play


def first_world() -> Play:
    play = Play(job(2))
    play.until_running(2)
    return play


def crash() -> Play:
    play = _fresh(running(3))
    play.save("worker-0")
    play.run(0.5)
    play.crash("worker-1")
    play.until(lambda: bool(play.announced("Recovered")))
    return play


def hang() -> Play:
    play = running(2)
    play.hang("worker-1", elsewhere(13))
    play.run(50)
    _fresh(play)
    play.until_next(2)
    return play


def out_of_memory() -> Play:
    play = Play(job(2, keep_failed_pods=0))
    play.memory_limit = 700 << 20
    play.until_running(2)
    play.run(2)
    _fresh(play)
    play.crash("worker-1", signal=9, out_of_memory=True)
    play.until_next(2)
    return play


def effect_before_cause() -> Play:
    play = _fresh(running(3, 3, max_restarts=0))
    play.crash("worker-0", code=1, signal=None, error="RuntimeError", message="Connection closed by peer")
    play.run(0.02)
    play.lose("worker-2", "its machine is gone")
    play.until_next(3)
    return play


def frozen_with_spare() -> Play:
    play = running(3, spares=1)
    play.run(3)
    _fresh(play)
    play.freeze("worker-1")
    play.until_next(3)
    play.thaw("worker-1")
    play.run(3)
    return play


def left_alone() -> Play:
    play = _fresh(running(3))
    play["worker-2"].unheard = True
    play.run(5)
    play["worker-2"].unheard = False
    play.run(2)
    return play


def shrink_and_grow() -> Play:
    play = _fresh(running(3, 2))
    play.lose("worker-0")
    play.run(6)
    play.save("worker-1")
    play.until_next(3)
    return play


def spare_promoted() -> Play:
    play = running(2, spares=1)
    play.run(3)
    _fresh(play)
    play.lose("worker-0")
    play.until_next(2)
    return play


def scaled_down() -> Play:
    play = _fresh(running(3, 1))
    play.tell(ScaleRequested(2))
    play.save("worker-0")
    play.until_next(2)
    play.run(1)
    return play


def drained() -> Play:
    play = _fresh(running(2))
    play.say(play["worker-1"], Leaving("SIGTERM", 30.0))
    play.until_next(2)
    play.run(1)
    return play


def stuck_on_a_frozen_node() -> Play:
    play = running(2)
    actor = play["worker-1"]
    seen = PodSeen(actor.id, actor.uid, Role("worker"), actor.rank_index, "running", node="node-2")
    play.tell(seen)
    _fresh(play)
    play.stuck = {"worker-1"}
    play.tell(NodeSeen("node-2", False, "Kubelet stopped posting node status"))
    play.run(1)
    ends_at = play.now + play.unix_offset + 10
    why = "it was deleted with 10 s of grace"
    play.tell(replace(seen, phase="terminating", reason=why, grace=10.0, ends_at=ends_at))
    play.until_next(2)
    play.until(lambda: actor.gone, 30)
    play.tell(NodeSeen("node-2", True))
    return play


def crash_loop() -> Play:
    play = Play(job(2))
    play.until_running()
    _fresh(play)
    for number in range(3):
        play.crash("worker-1", code=1, signal=None, error="KeyError", message=f"'layer{number}'", step=0)
        play.run(0.08)
    play.run(0.1)
    return play


def import_error() -> Play:
    play = Play(job(2))
    play.until_running()
    _fresh(play)
    for member in ("worker-0", "worker-1"):
        play.crash(member, code=1, signal=None, error="ModuleNotFoundError", message="No module named 'nope'", step=0,
                   at_import=True)  # fmt: skip
    play.run(0.1)
    return play


def bad_node() -> Play:
    play = Play(job(3, node_check=True))
    play.bad = {"worker-1": "mute"}
    play.until_running(3)
    return play


def straggler_joins() -> Play:
    play = Play(job(3, 2, node_check=True))
    play.bad = {"worker-3": "slow"}
    play.until_running(3)
    play.run(2)
    _fresh(play)
    play.lose("worker-1")
    play.until(lambda: "worker-3" in play.ready(), 30)
    return play


def new_master() -> Play:
    before = running(2)
    after = Play(before.spec, term=2, saved=before.saved, actors=before.actors, now=before.now + 1, master="m2")
    after.run(0.3)
    after.crash("worker-1")
    after.until_next(2)
    return after


def success() -> Play:
    play = _fresh(running(2))
    play.done("worker-0")
    play.done("worker-1")
    play.until(lambda: play.ended() is not None)
    return play


def ps_lost() -> Play:
    play = training(1, 1)
    _fresh(play)
    play.lose("ps-0", "its machine is gone")
    for member in ("chief-0", "worker-0"):
        play[member].hung_at = play.now
    play.run(1)
    play.crash(
        "chief-0",
        code=1,
        signal=None,
        error="tensorflow.python.framework.errors_impl.UnavailableError",
        message="Socket closed",
    )
    play.until_running()
    play.until(lambda: any("All workers" in each.reason for each in play.announced("Recovered")))
    play.done("chief-0")
    play.until(lambda: play.ended() is not None)
    return play


Told = tuple[str, Callable[[], Play], tuple[str, ...]]
"""What it proves, the story, and the types that it is about: their fields are told in full."""
STORIES: dict[str, Told] = {
    "first_world": (
        "The first generation is started only when it is saved, in the step that learns so.",
        first_world,
        ("Began", "PodSeen", "CreatePod", "Hello", "Ready", "Start", "Neighbour", "Started", "GenerationStarted"),
    ),
    "crash": (
        "A crash stops everyone in its own step, and the next generation forms without a timer.",
        crash,
        ("WorkerExit", "Stopped"),
    ),
    "hang": (
        "Where no rank makes a step all are asked, the one that others wait for is named, and all begin again.",
        hang,
        (),
    ),
    "out_of_memory": (
        "A container that was too small is ended, and its place gets twice the memory.",
        out_of_memory,
        ("CreatePod", "DeletePod", "PodGone"),
    ),
    "effect_before_cause": (
        "A broken connection seen before the loss that caused it costs no restart.",
        effect_before_cause,
        (),
    ),
    "frozen_with_spare": (
        "A frozen member is left out after witnesses agree, and thaws into a spare.",
        frozen_with_spare,
        ("Probe",),
    ),
    "left_alone": ("A member that only the master does not hear is left alone.", left_alone, ()),
    "shrink_and_grow": (
        "Survivors go on at once and take the replacement in at the next checkpoint.",
        shrink_and_grow,
        ("Start.group_rank", "Start.group_world_size", "Start.first_rank", "Start.world_size"),
    ),
    "spare_promoted": (
        "A spare takes a lost member's rank index, and another spare is made.",
        spare_promoted,
        (),
    ),
    "scaled_down": (
        "A job gets smaller at a checkpoint, and who is not needed is dismissed without a fault.",
        scaled_down,
        (),
    ),
    "drained": ("A member that has to leave trains on until its replacement is ready.", drained, ()),
    "stuck_on_a_frozen_node": (
        "A pod that cannot go is replaced while it trains, and removed by force past its grace.",
        stuck_on_a_frozen_node,
        ("PodSeen", "DeletePod"),
    ),
    "crash_loop": (
        "The same error three generations running without a step ends the job with that error.",
        crash_loop,
        ("WorkerExit", "JobFailed"),
    ),
    "import_error": (
        "All ranks failing at import the same way end the job at once.",
        import_error,
        ("WorkerExit", "JobFailed"),
    ),
    "bad_node": (
        "A machine that reaches nobody is found in two rounds, its replacement is measured first.",
        bad_node,
        ("Check", "CheckPeer"),
    ),
    "straggler_joins": (
        "A newcomer is measured with a member that trains on, and told to be slow.",
        straggler_joins,
        ("Check", "Checked"),
    ),
    "new_master": (
        "A new master adopts what runs; the next generation has its term and the next number.",
        new_master,
        ("Began", "Hello", "Start.restart_count"),
    ),
    "ps_lost": (
        "A lost ps interrupts the others and nothing else: one ended for it, one was stuck.",
        ps_lost,
        ("CreatePod", "PodSeen", "Start.role", "Start.tf_config", "Start.worker_id", "Start.worker_num"),
    ),
    "success": (
        "The job ends when every rank has ended with 0 and every member has been told.",
        success,
        ("WorkerExit", "JobSucceeded"),
    ),
}


@cache
def told(name: str) -> tuple[list[str], set[tuple[str, str]]]:
    """Its lines, and what they show of QUIET."""
    _, story, shows = STORIES[name]
    play = story()
    telling = Telling(shows)
    before, entries = ([each for each in part if not _is_routine(each[2])]
                       for part in (play.story[: play.begins_at], play.story[play.begins_at :]))  # fmt: skip
    return telling.lines([*before, *entries], len(before)), telling.shown


def _is_routine(what: Event | Action) -> bool:
    """A report, or that time has passed."""
    return isinstance(what, Woke) or (isinstance(what, SidecarSaid) and isinstance(what.message, Report))


@pytest.mark.parametrize("name", STORIES)
def test_the_story_is_told_as_it_was(name: str, request: pytest.FixtureRequest) -> None:
    text = "\n".join([f"# {STORIES[name][0]}", *told(name)[0], ""])
    path = FOLDER / f"{name}.txt"
    if request.config.getoption("--rewrite"):
        path.write_text(text)
    assert path.exists(), "there is no such transcript yet; write it with pytest --rewrite and read it"
    assert text == path.read_text()


def test_every_transcript_has_its_story() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(STORIES)


def test_what_most_stories_leave_out_is_told_by_one() -> None:
    from tests.unit.sidecar.core import test_transcripts as sidecars

    shown = set().union(*(told(name)[1] for name in STORIES), *(sidecars.told(each)[1] for each in sidecars.STORIES))
    assert {(kind, field) for kind, fields in QUIET.items() for field in fields} - shown == set()
