"""Whether a killed rank was killed for want of memory: the files of both cgroup versions, and a real memory cgroup."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.hooks.agent import Trainer
from training_hooks import memory

V1_FILE = "oom_kill_disable 0\nunder_oom 0\noom_kill %d\n"
V2_FILE = "low 0\nhigh 0\nmax 31\noom 9\noom_kill %d\noom_group_kill 5\n"


@pytest.mark.parametrize("text", [V1_FILE, V2_FILE])
def test_each_growth_of_the_counter_explains_one_kill(tmp_path: Path, text: str) -> None:
    path = tmp_path / "counter"
    path.write_text(text % 3)
    watched = memory.OutOfMemory(str(path))
    assert not watched.explains_a_kill(), "what happened before is nobody's"
    path.write_text(text % 5)
    assert [watched.explains_a_kill() for _ in range(3)] == [True, True, False]
    path.write_text(text % 6)
    watched.forget()
    assert not watched.explains_a_kill()


@pytest.mark.parametrize("text", ["", "oom_kill many\n", "oom 3\n"])
def test_a_file_without_a_counter_explains_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "counter"
    path.write_text(text)
    assert memory.read_counter(str(path)) is None
    assert not memory.OutOfMemory(str(path)).explains_a_kill()
    assert not memory.OutOfMemory("").explains_a_kill()


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("9:cpu,cpuacct:/a\n8:memory:/kubepods/pod1/c1\n", "/sys/fs/cgroup/memory/kubepods/pod1/c1/memory.oom_control"),
        ("0::/kubepods.slice/c1\n", "/sys/fs/cgroup/kubepods.slice/c1/memory.events"),
        ("0::/\n", "/sys/fs/cgroup/memory.events"),
        ("3:memory:/\n0::/\n", "/sys/fs/cgroup/memory/memory.oom_control"),
        ("0::/a:b\n", "/sys/fs/cgroup/a:b/memory.events"),
    ],
)
def test_the_counter_is_looked_for_in_the_own_group_first(text: str, first: str) -> None:
    paths = memory.candidates(text)
    assert paths[0] == first
    assert paths[-2:] == [memory.V1[1], memory.V2[1]]


@pytest.mark.slow
def test_a_rank_killed_for_want_of_memory_is_told_from_one_that_was_just_killed(tmp_path: Path, cgroup: Path) -> None:
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
