"""The signal that requests a save, sent to real processes with and without a handler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.hooks.agent import Trainer, wait_until
from tests.warm import Warm
from training_hooks.process import save_signal

HANDLES = """
import signal, sys, time
from pathlib import Path
asked = Path(sys.argv[1])
signal.signal(signal.SIGUSR1, lambda *_: asked.open("a").write("x"))
asked.touch()
while True:
    time.sleep(0.05)
"""
DEAF = "import time\nwhile True:\n    time.sleep(0.05)\n"
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(command, start_new_session=True))
        return started[-1]

    yield begin
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def handling(start: Start, asked: Path) -> int:
    process = start(sys.executable, "-c", HANDLES, str(asked))
    wait_until(asked.exists, "its handler")
    return process.pid


def times(asked: Path) -> int:
    return len(asked.read_text())


def test_every_rank_with_a_handler_gets_the_signal(start: Start, tmp_path: Path) -> None:
    ranks = {n: handling(start, tmp_path / str(n)) for n in range(2)}
    assert save_signal.send("SIGUSR1", ranks) == ""
    wait_until(lambda: [times(tmp_path / str(n)) for n in range(2)] == [1, 1], "both to be asked")


def test_if_one_rank_has_no_handler_no_rank_gets_the_signal(start: Start, tmp_path: Path) -> None:
    deaf = start(sys.executable, "-c", DEAF)
    well = handling(start, tmp_path / "well")
    assert save_signal.send("SIGUSR1", {0: well, 1: deaf.pid}) == "local rank 1 has no handler for SIGUSR1 (yet)"
    assert deaf.poll() is None
    assert save_signal.send("SIGUSR1", {0: well}) == ""
    wait_until(lambda: times(tmp_path / "well") > 0, "it to be asked")
    assert times(tmp_path / "well") == 1


def test_a_shell_above_the_script_lives(start: Start, tmp_path: Path) -> None:
    asked, script = tmp_path / "asked", tmp_path / "train.py"
    script.write_text(HANDLES)
    shell = start("sh", "-c", f"{sys.executable} {script} {asked}; exit 3")
    wait_until(asked.exists, "its handler")
    assert save_signal.send("SIGUSR1", {0: shell.pid}) == ""
    wait_until(lambda: times(asked) == 1, "the script to be asked")
    assert shell.poll() is None


def test_a_rank_that_has_ended_gets_no_signal() -> None:
    assert save_signal.send("SIGUSR1", {}) == "no rank runs on this member"


@pytest.mark.slow
def test_a_repeated_order_sends_the_signal_once_and_is_answered_each_time(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HANDLES.replace("sys.argv[1]", repr(str(tmp_path / "asked"))))
    trainer = Trainer(tmp_path, "train.py")
    try:
        trainer.announced()
        trainer.start()
        wait_until((tmp_path / "asked").exists, "its handler")
        order = {"generation": [1, trainer.number], "seconds": 300.0, "last": True, "signal": "SIGUSR1"}
        for number in (5, 5, 6):
            trainer.agent.say(do="save_state", order=number, **order)
            answer = trainer.agent.expect("state_saved")
            assert (answer["order"], answer.get("error"), answer.get("path")) == (number, "", None)
            wait_until(lambda: times(tmp_path / "asked") > 0, "the first, which a second one could join")
        wait_until(lambda: times(tmp_path / "asked") == 2, "two orders")
    finally:
        trainer.close()


SAVES_TWICE = """
import signal, time
from pathlib import Path
import torch

asked, saving = Path({asked!r}), Path({saving!r})
signal.signal(signal.SIGUSR1, lambda *_: asked.touch())


class Slow:
    \"\"\"Being pickled takes until the signal has come.\"\"\"

    def __reduce__(self):
        saving.touch()
        while not asked.exists():
            time.sleep(0.01)
        return (list, ())


torch.save(Slow(), {path!r})
torch.save([], {path!r})
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.xdist_group("warm")
def test_a_save_that_began_before_the_signal_is_not_reported_as_requested(warm: Warm, tmp_path: Path) -> None:
    asked, saving, path = (str(tmp_path / name) for name in ("asked", "saving", "model.pt"))
    Path(path).write_text("an older checkpoint")
    (tmp_path / "train.py").write_text(SAVES_TWICE.format(asked=asked, saving=saving, path=path))
    trainer = Trainer(tmp_path, "train.py", warm=warm)
    try:
        trainer.announced()
        trainer.start()
        wait_until(Path(saving).exists, "the first save to begin")
        order = {"generation": [1, trainer.number], "seconds": 300.0, "last": True, "signal": "SIGUSR1"}
        trainer.agent.say(do="save_state", order=7, **order)
        assert [trainer.agent.expect("saved")["asked"] for _ in range(2)] == [0, 7]
    finally:
        trainer.close()
