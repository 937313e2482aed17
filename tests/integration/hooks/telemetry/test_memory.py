"""Whether a rank was killed for lack of memory: files of both cgroup versions, and a real memory cgroup."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.integration.hooks.agent import Trainer
from training_hooks.telemetry import oom

V1_FILE = "oom_kill_disable 0\nunder_oom 0\noom_kill %d\n"
V2_FILE = "low 0\nhigh 0\nmax 31\noom 9\noom_kill %d\noom_group_kill 5\n"


def kill(watched: oom.OutOfMemory) -> bool:
    return bool(watched.explains(None, signal.SIGKILL, time.monotonic()))


def raise_(watched: oom.OutOfMemory, kind: str, message: str, ago: float = 0.0) -> bool:
    return bool(watched.explains(1, None, time.monotonic() - ago, {"type": kind, "message": message}))


@pytest.mark.parametrize("text", [V1_FILE, V2_FILE])
def test_each_growth_of_the_counter_explains_one_kill(tmp_path: Path, text: str) -> None:
    path = tmp_path / "counter"
    path.write_text(text % 3)
    watched = oom.OutOfMemory(str(path))
    assert not kill(watched), "earlier growths are not assigned"
    path.write_text(text % 5)
    assert [kill(watched) for _ in range(3)] == [True, True, False]
    path.write_text(text % 6)
    watched.forget()
    assert not kill(watched)


@pytest.mark.parametrize("text", ["", "oom_kill many\n", "oom 3\n"])
def test_a_file_without_a_counter_explains_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "counter"
    path.write_text(text)
    assert oom.read_counter(str(path)) is None
    assert not kill(oom.OutOfMemory(str(path)))
    assert not kill(oom.OutOfMemory(""))


@pytest.mark.parametrize(
    ("kind", "message", "lost"),
    [
        ("RuntimeError", "DataLoader worker (pid 1234) is killed by signal: Killed. ", True),
        ("RuntimeError", "DataLoader worker (pid(s) 12, 13) exited unexpectedly", True),
        ("RuntimeError", "DataLoader worker (pid 1234) is killed by signal: Segmentation fault. ", False),
        ("subprocess.CalledProcessError", "Command '['a']' died with <Signals.SIGKILL: 9>.", True),
        ("torch.multiprocessing.spawn.ProcessExitedException", "process 0 terminated with signal SIGKILL", True),
        ("concurrent.futures.process.BrokenProcessPool", "A process in the process pool was terminated abruptly", True),
        ("RuntimeError", "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:9137", False),
        ("ValueError", "size 137 is 9 too many", False),
    ],
)
def test_an_exception_that_reports_a_killed_process_claims_a_growth(
    tmp_path: Path, kind: str, message: str, lost: bool
) -> None:
    path = tmp_path / "counter"
    path.write_text(V1_FILE % 0)
    watched = oom.OutOfMemory(str(path))
    assert not raise_(watched, kind, message), "no process was out of memory"
    path.write_text(V1_FILE % 1)
    assert raise_(watched, kind, message) is lost
    assert kill(watched) is not lost


def test_a_growth_that_came_long_before_or_after_an_exception_is_not_claimed_by_it(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    path.write_text(V1_FILE % 0)
    watched = oom.OutOfMemory(str(path))
    path.write_text(V1_FILE % 1)
    watched.look()
    watched.growths[0][0:2] = [time.monotonic() - 10.0, time.monotonic() - 9.0]
    message = "DataLoader worker (pid 1) is killed by signal: Killed. "
    assert not raise_(watched, "RuntimeError", message, ago=20.0)
    assert not raise_(watched, "RuntimeError", message)
    assert not kill(watched)
    assert raise_(watched, "RuntimeError", message, ago=8.0), "it took 8 s to end"


def test_of_two_that_end_at_once_the_killed_one_is_reported_first() -> None:
    assert oom.killed_first({7: 1 << 8, 9: 9, 8: 0}) == [(9, 9), (7, 1 << 8), (8, 0)]


@pytest.mark.slow
@pytest.mark.xdist_group("cgroup")
def test_a_rank_killed_for_lack_of_memory_differs_from_one_killed_otherwise(tmp_path: Path, cgroup: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, signal\n"
        "while os.environ['RANK'] != '1' or os.environ['EAT'] != '1':\n    signal.pause()\n"
        "eaten = [b'x' * (1 << 20) for _ in range(4096)]\n"
    )
    enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    trainer = Trainer(tmp_path, "-c", enter, str(cgroup), sys.executable, "train.py", python="/bin/sh")
    try:
        trainer.announced()
        pids = trainer.start(2, EAT="1")
        exited = trainer.agent.expect("exited")
        assert (exited["pid"], exited["signal"], exited["out_of_memory"]) == (pids[1], 9, True)
        trainer.stop()
        pids = trainer.start(2, EAT="0")
        os.kill(pids[1], 9)
        exited = trainer.agent.expect("exited")
        assert (exited["signal"], exited["out_of_memory"]) == (9, False)
        assert trainer.finish(137) == 137
    finally:
        trainer.close()


LOADING = """
import torch
class Hungry(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return len([b"x" * (1 << 20) for _ in range(8192)])
for batch in torch.utils.data.DataLoader(Hungry(), num_workers=2):
    pass
"""


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.xdist_group("cgroup")
def test_a_rank_whose_data_loader_worker_is_killed_for_lack_of_memory_reports_it(tmp_path: Path, cgroup: Path) -> None:
    for name in ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes"):
        if (cgroup / name).exists():
            (cgroup / name).write_text(str(1 << 30))
    (tmp_path / "train.py").write_text(LOADING)
    enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    trainer = Trainer(tmp_path, "-c", enter, str(cgroup), sys.executable, "train.py", python="/bin/sh")
    try:
        trainer.announced()
        trainer.start(1)
        exited = trainer.agent.expect("exited")
        assert (exited["code"], exited["signal"], exited["out_of_memory"]) == (1, None, True)
        assert exited["error"]["message"].startswith("DataLoader worker")
        assert trainer.finish(137) == 137
    finally:
        trainer.close()
