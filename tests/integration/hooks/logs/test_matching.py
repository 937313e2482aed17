"""A real reader and a real matcher search the ranks' output for patterns beside the trainer."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hooks.agent import PATIENCE, Trainer, wait_until
from tests.integration.hooks.container import LAUNCH
from tests.integration.hooks.logs.test_output import ROOT, STAGE
from training_hooks.logs.matcher import LONGEST_LINE, MOST_CPU, Clock, Lines, Pattern
from training_hooks.process.worker_channel import Channel

CATASTROPHIC = r"(a+)+$"
STUCK = "a" * 60 + "b"
GO = """
def wait(name):
    while not os.path.exists(name): time.sleep(0.01)
"""


class Stage:
    """A process that owns an outlet, and the messages of its matcher."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.reported = folder, Channel(str(folder), "up")
        self.running: subprocess.Popen[bytes] | None = None

    def play(self, *patterns: str, script: str, **variables: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", f"{STAGE}{GO}outlet.follow({patterns!r})\n{script}", str(ROOT)]
        environ = {"PATH": "/usr/bin:/bin", "OUTRIDER_DIR": str(self.folder), **variables}
        self.running = subprocess.Popen(
            command, env=environ, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        return self.running

    def output(self, *patterns: str, script: str, **variables: str) -> bytes:
        """The whole output."""
        out, err = self.play(*patterns, script=script, **variables).communicate(timeout=PATIENCE)
        assert self.running is not None
        assert self.running.returncode == 0, err
        return out

    def hear(self) -> dict[str, Any]:
        ready, _, _ = select.select([self.reported], [], [], PATIENCE)
        assert ready, "the matcher has reported nothing"
        heard = self.reported.hear()
        assert heard is not None
        return dict(heard)

    def heard(self) -> list[dict[str, Any]]:
        return list(iter(self.reported.hear, None))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    if made.running is not None and made.running.poll() is None:
        made.running.kill()
        made.running.communicate()
    made.reported.close()


def rank(code: str, number: int = 0) -> str:
    return f"os.waitpid(rank({number}, {code!r}, (3, 5)), 0)\noutlet.finish(60)\n"


def test_a_matching_line_is_reported_with_rank_and_groups_and_every_byte_passes_on(stage: Stage) -> None:
    text = b"one\nstep 12 loss 0.5\r\nodd \xff\xfe bytes\n\n[ECC] uncorrectable"
    out = stage.output(r"step (?P<step>\d+) loss (?P<loss>[\d.]+)( (?P<more>\w+))?", "uncorrectable",
                       script=rank(f"os.write(1, {text!r})", 7))  # fmt: skip
    assert out == text
    first, last = (each | {"at": 0, "serial": 0} for each in (stage.hear(), stage.hear()))
    common = {"generation": [3, 5], "rank": 7, "count": 1, "at": 0, "serial": 0}
    assert first == common | {
        "matched": r"step (?P<step>\d+) loss (?P<loss>[\d.]+)( (?P<more>\w+))?",
        "line": "step 12 loss 0.5",
        "groups": {"step": "12", "loss": "0.5"},
    }
    assert last == common | {"matched": "uncorrectable", "line": "[ECC] uncorrectable", "groups": {}}


def test_standard_error_is_searched_too_and_pieces_are_joined_to_lines(stage: Stage) -> None:
    code = "[(os.write(2, each), time.sleep(0.05)) for each in (b'CUDA er', b'ror: bad', b' luck', b'\\n')]"
    stage.output("^CUDA error: bad luck$", script=rank(code))
    assert stage.hear()["line"] == "CUDA error: bad luck"


def test_matches_in_quick_succession_are_counted_and_reported_together(stage: Stage) -> None:
    out = stage.output("boom", script=rank("os.write(1, b'boom\\n'); os.write(1, b'boom 2\\n' * 500)"))
    assert out.count(b"\n") == 501
    heard = stage.heard()
    assert sum(each["count"] for each in heard) == 501
    assert len(heard) < 50, "a report a second, not one for each match"
    serials = [each["serial"] for each in heard]
    assert serials == sorted(set(serials))


def test_a_catastrophic_pattern_is_dropped_by_name_and_the_others_continue(stage: Stage) -> None:
    code = f"os.write(1, b'fine\\n{STUCK}\\nfine\\n'); wait('dropped'); os.write(1, b'{STUCK}\\nfine\\n')"
    running = stage.play(CATASTROPHIC, "fine", script=rank(code))
    dropped = stage.hear()
    assert dropped == {
        "dropped": CATASTROPHIC,
        "generation": [3, 5],
        "reason": "it took more than 50 ms of CPU for one line",
        "line": STUCK,
    }
    (stage.folder / "dropped").touch()
    out, _ = running.communicate(timeout=PATIENCE)
    assert out == f"fine\n{STUCK}\nfine\n{STUCK}\nfine\n".encode()
    heard = stage.heard()
    assert {each.get("matched") for each in heard} == {"fine"}
    assert sum(each["count"] for each in heard) == 3


def test_a_pattern_that_this_python_cannot_compile_is_reported_at_once(stage: Stage) -> None:
    stage.output("(", "ok", script=rank("os.write(1, b'ok\\n')"))
    assert stage.hear()["reason"].startswith("the trainer's Python cannot read it: missing )")
    assert stage.hear()["matched"] == "ok"


def test_a_frozen_matcher_blocks_no_output(stage: Stage) -> None:
    """Three megabytes pass on; the matcher does not see the pieces that it was not offered."""
    stop = """
def matcher():
    text = open('/proc/%d/task/%d/children' % (outlet.pid, outlet.pid)).read()
    return int(text) if text else 0
pid = rank(0, "os.write(1, b'first\\\\n'); wait('stopped'); os.write(1, (b'x' * 99 + b'\\\\n') * 30000 + b'last\\\\n')")
while not matcher(): time.sleep(0.01)
wait('heard')
stopped = matcher()
os.kill(stopped, signal.SIGSTOP)
open('stopped', 'w').close()
assert os.waitpid(pid, 0)[1] == 0
wait('read')
os.kill(stopped, signal.SIGCONT)
outlet.finish(60)
"""
    running = stage.play("first", "last", script=stop)
    assert stage.hear()["matched"] == "first"
    (stage.folder / "heard").touch()
    assert running.stdout is not None
    out = b""
    while not out.endswith(b"last\n"):
        out += running.stdout.read1(1 << 16) or pytest.fail(f"it ended with {out[-100:]!r}")
    assert len(out) == len(b"first\n") + 100 * 30000 + len(b"last\n")
    (stage.folder / "read").touch()
    running.communicate(timeout=PATIENCE)
    assert running.returncode == 0


def test_a_killed_matcher_is_restarted(stage: Stage) -> None:
    kill = """
def matcher():
    text = open('/proc/%d/task/%d/children' % (outlet.pid, outlet.pid)).read()
    return int(text) if text else 0
code = "os.write(1, b'one\\\\n'); wait('killed'); os.write(1, b'lost\\\\n'); wait('gone'); os.write(1, b'two\\\\n')"
pid = rank(0, code)
wait('heard')
first = matcher()
os.kill(first, signal.SIGKILL)
while matcher(): time.sleep(0.01)
open('killed', 'w').close()
while os.path.getsize('seen') < 8: time.sleep(0.01)
open('gone', 'w').close()
assert os.waitpid(pid, 0)[1] == 0
outlet.finish(60)
"""
    (stage.folder / "seen").touch()
    running = stage.play("one|two", script=kill)
    assert stage.hear()["line"] == "one"
    (stage.folder / "heard").touch()
    assert running.stdout is not None
    out = running.stdout.read(len(b"one\nlost"))
    (stage.folder / "seen").write_bytes(out)
    assert stage.hear()["line"] == "two"
    running.communicate(timeout=PATIENCE)
    assert running.returncode == 0


def test_the_ranks_of_template_and_launcher_are_searched_if_the_order_has_patterns(tmp_path: Path) -> None:
    """A template forks with all signals blocked, and the matcher must still be interruptible."""
    script = tmp_path / "train.py"
    script.write_text(f"print('{STUCK}', flush=True)\nprint('step 7', flush=True)\n")
    launched = ["/bin/sh", str(LAUNCH), "/bin/sh", "-c", f"printf '{STUCK}\\nstep 7\\n'"]
    for command, rung in (([sys.executable, "train.py"], "T0"), (launched, "T1")):
        trainer = Trainer(tmp_path, *command[1:], python=command[0], mark=rung == "T0")
        try:
            assert trainer.announced()["rung"] == rung
            ranks = [{"local_rank": 0, "env": {"RANK": "4"}}]
            patterns = [CATASTROPHIC, r"step (?P<step>\d+)"]
            trainer.agent.say(do="start", generation=[1, 2], ranks=ranks, env={}, patterns=patterns)
            assert trainer.agent.expect("pattern_dropped")["pattern"] == CATASTROPHIC
            matched = trainer.agent.expect("matched")
            assert (matched["generation"], matched["rank"], matched["groups"]) == ([1, 2], 4, {"step": "7"})
        finally:
            trainer.close()


def test_a_match_waits_for_a_sidecar(tmp_path: Path) -> None:
    script = "import os, time\nwhile not os.path.exists('alone'): time.sleep(0.01)\nprint('ECC', flush=True)\n"
    (tmp_path / "train.py").write_text(script + "open('written', 'w').close()\ntime.sleep(600)\n")
    trainer = Trainer(tmp_path, "train.py")
    try:
        trainer.announced()
        ranks = [{"local_rank": 0, "env": {"RANK": "0"}}]
        trainer.agent.say(do="start", generation=[1, 1], ranks=ranks, env={}, patterns=["ECC"])
        trainer.agent.expect("started")
        trainer.agent.hang_up()
        (tmp_path / "alone").touch()
        wait_until((tmp_path / "written").exists, "the line")
        assert trainer.agent.accept()["running"] == [1, 1]
        assert trainer.agent.expect("matched")["line"] == "ECC"
    finally:
        trainer.close()


def test_a_line_is_cut_before_it_is_searched_and_the_next_one_is_whole() -> None:
    lines = Lines()
    assert lines.add(b"x" * 5000) == []
    assert lines.add(b"y" * 5000 + b"end\nnext\nhalf") == ["x" * LONGEST_LINE, "next"]
    assert lines.rest() == ["half"]


def test_colours_are_removed_and_each_progress_bar_update_ends_a_line() -> None:
    lines = Lines()
    assert lines.add(b"\x1b[1;32mloss\x1b[0m \x1b[38;5;9m0.25\x1b[m\n") == ["loss 0.25"]
    assert lines.add(b"\r 1/9 [12.5it/s]\r 2/9 [12.0it") == ["", " 1/9 [12.5it/s]"]
    assert lines.rest() == [" 2/9 [12.0it"]


def test_the_rest_of_a_torn_line_is_not_taken_for_a_line() -> None:
    lines = Lines()
    assert lines.add(b"whole\nbegin") == ["whole"]
    assert lines.add(b"of another\nwhole\nbe", is_torn=True) == ["whole"]
    assert lines.add(b"gin\n") == ["begin"]
    assert lines.add(b"no end", is_torn=True) == []
    assert lines.add(b" yet\nwhole\n") == ["whole"]


def test_a_limit_exceeded_during_garbage_collection_applies_after_it() -> None:
    class Collected:
        def __del__(self) -> None:
            until = time.process_time() + 3 * MOST_CPU
            while time.process_time() < until:
                pass

    class Batch(list[str]):
        def __iter__(self) -> Iterator[str]:
            Collected()
            return super().__iter__()

    pattern = Pattern(r"(x+x+)+y", Clock())
    assert pattern.matches(Batch(["x" * 60])) == []
    assert pattern.problem == f"it took more than {1000 * MOST_CPU:.0f} ms of CPU for one line"


def test_a_batch_that_takes_long_as_a_whole_does_not_drop_a_pattern() -> None:
    pattern = Pattern(r"(x+x+)+y", Clock())
    lines = ["x" * 14] * 300 + ["xxy"]
    assert [at for at, _ in pattern.matches(lines)] == [300]
    assert not pattern.problem
