"""The fault program, beside a real process that stands for a container's first process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hooks.agent import is_alive, wait_until
from training_hooks.chaos import base
from training_hooks.process import tree

PROGRAM = Path(base.PROGRAM)
Line = dict[str, Any]
ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


class Trainer:
    """A process that may be the first of a container, and the fault program, called as by `outrider chaos`."""

    def __init__(self, folder: Path, group: Path | None = None, **variables: str) -> None:
        self.volume, self.group = folder / "volume", group
        self.volume.mkdir()
        marks = {"OUTRIDER_DIR": str(self.volume), "OUTRIDER_POD_UID": f"uid-{os.getpid()}-{folder.name}", **variables}
        self.environ = {"PATH": os.environ["PATH"], **marks}
        command = [sys.executable, "-c", "import signal\nwhile True: signal.pause()"]
        environ = {**self.environ, "OUTRIDER_HOOKS": "hooks"}
        self.process = subprocess.Popen(self.inside(*command), env=environ, start_new_session=True)
        # the shell that enters the group carries the same words: its own name is not first any more once it is inside
        ready = [sys.executable.encode(), b"-c"]
        wait_until(lambda: self.command_line().split(b"\0")[:2] == ready, "the trainer")

    def command_line(self) -> bytes:
        return Path(f"/proc/{self.process.pid}/cmdline").read_bytes()

    def inside(self, *command: str) -> list[str]:
        return ["/bin/sh", "-c", ENTER, str(self.group), *command] if self.group else list(command)

    def call(self, *words: str) -> Line:
        command = self.inside(sys.executable, "-I", "-S", str(PROGRAM), *words)
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, start_new_session=True)
        assert done.stderr == ""
        answer: Line = json.loads(done.stdout)
        assert done.returncode == ("error" in answer)
        return answer

    def running(self) -> list[str]:
        return [each["fault"] for each in self.call("list")["running"]]

    def says(self, name: str) -> Line:
        said: Line = base.read(str(self.volume), name)
        return said

    def marked(self) -> set[int]:
        """The processes of faults."""
        return {pid for pid, each in base.members(self.environ).items() if base.MARK in each}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not self.marked(), "the end of every fault")


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    one = Trainer(tmp_path)
    yield one
    one.close()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_load_runs_until_it_is_undone(trainer: Trainer) -> None:
    reported = trainer.call("start", "cpu-load=5")
    assert "busy for 5 % of the time" in reported["about"]
    assert trainer.running() == ["cpu-load=5"]
    busy = trainer.marked() - {reported["pid"]}
    assert len(busy) >= 4
    assert trainer.call("undo", "cpu-load") == {"undone": ["cpu-load=5"]}
    assert not any(is_alive(pid) for pid in busy)
    assert trainer.says("cpu-load")["ended"] == "undone"


def test_a_fault_ends_with_its_time(trainer: Trainer) -> None:
    trainer.call("start", "bad-node:0.3s")
    wait_until(lambda: trainer.says("bad-node")["ended"] == "over", "the end of its time")
    wait_until(lambda: trainer.running() == [], "the end of its process")


def test_a_fault_ends_with_the_first_process_of_its_container(trainer: Trainer) -> None:
    trainer.call("start", "cpu-load=5")
    trainer.process.kill()
    trainer.process.wait()
    wait_until(lambda: trainer.says("cpu-load")["ended"] == "gone", "the end of the fault")
    wait_until(lambda: not trainer.marked(), "the end of its processes")


def test_one_fault_of_a_name_runs_at_a_time(trainer: Trainer) -> None:
    trainer.call("start", "bad-node")
    assert trainer.call("start", "bad-node=slow") == {"error": "bad-node runs here already: undo it first"}
    trainer.call("undo")
    assert "error" not in trainer.call("start", "bad-node=slow")


def test_a_fault_that_was_killed_runs_no_more_and_leaves_no_load(trainer: Trainer) -> None:
    reported = trainer.call("start", "cpu-load=5")
    os.kill(reported["pid"], signal.SIGKILL)
    wait_until(lambda: not trainer.marked(), "the end of its processes")
    assert trainer.running() == []
    assert "error" not in trainer.call("start", "cpu-load=5")


def test_a_frozen_member_continues_after_the_undo(trainer: Trainer) -> None:
    assert trainer.call("start", "freeze-member")["about"] == "1 process is stopped"
    wait_until(lambda: state(trainer.process.pid) == "T", "the trainer to stop")
    trainer.call("undo")
    wait_until(lambda: state(trainer.process.pid) != "T", "the trainer to continue")


def test_the_last_rank_hangs_and_the_fault_ends_with_it(tmp_path: Path) -> None:
    ranks = (
        "import os, signal\nos.fork() or os.execve('/proc/self/exe', ['python', '-c', 'import signal\\nsignal.pause()']"
    )
    ranks += ", dict(os.environ, OUTRIDER_GENERATION='1.1'))\nsignal.pause()"
    trainer = Trainer(tmp_path)
    environ = {**trainer.environ, "OUTRIDER_HOOKS": "hooks"}
    launcher = subprocess.Popen([sys.executable, "-c", ranks], env=environ, start_new_session=True)
    try:
        wait_until(lambda: "error" not in trainer.call("start", "hang"), "a rank")
        pid = int(trainer.says("hang")["about"].split()[3])
        wait_until(lambda: state(pid) == "T", "the rank to stop")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: trainer.says("hang")["ended"] == "gone", "the end of the fault")
    finally:
        launcher.kill()
        launcher.wait()
        trainer.close()


@pytest.mark.xdist_group("cgroup")
def test_memory_is_filled_to_a_percentage_of_the_containers_limit(tmp_path: Path, cgroup: Path) -> None:
    trainer = Trainer(tmp_path, cgroup)
    try:
        reported = trainer.call("start", "fill-memory=75")
        assert "the container's memory of 192 MiB is 75 % full" in reported["about"]
        used = int((cgroup / "memory.usage_in_bytes").read_text())
        assert 130 << 20 <= used < 160 << 20
        trainer.call("undo")
        assert int((cgroup / "memory.usage_in_bytes").read_text()) < 100 << 20
    finally:
        trainer.close()


@pytest.mark.xdist_group("cgroup")
def test_the_trainer_is_killed_for_lack_of_memory_and_not_the_fault(tmp_path: Path, cgroup: Path) -> None:
    (cgroup / "memory.limit_in_bytes").write_text(str(64 << 20))
    trainer = Trainer(tmp_path, cgroup)
    eats = trainer.inside(sys.executable, "-c", "b = [bytes([1]) * (1 << 20) for _ in range(16)]")
    try:
        assert subprocess.run(eats, env=trainer.environ).returncode == 0
        trainer.call("start", "fill-memory=85")
        assert subprocess.run(eats, env=trainer.environ).returncode == -signal.SIGKILL
        assert trainer.running() == ["fill-memory=85"]
        trainer.call("undo")
        assert subprocess.run(eats, env=trainer.environ).returncode == 0
    finally:
        trainer.close()


@pytest.fixture(params=["memory", "cgroup2"])
def group(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A new one, of either version."""
    rows = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    places = [row[1] for row in rows if request.param in (row[2], *row[3].split(","))]
    made = Path(*(places or ["/nowhere"])[:1], f"outrider-test-{os.getpid()}")
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made here: {error}")
    yield made
    wait_until(lambda: not (made / "cgroup.procs").read_text(), "an empty group")
    made.rmdir()


@pytest.mark.xdist_group("cgroup")
def test_a_fault_started_from_outside_is_charged_to_the_trainers_cgroup(tmp_path: Path, group: Path) -> None:
    trainer = Trainer(tmp_path, group)
    trainer.group = None
    try:
        trainer.call("start", "cpu-load=5")
        assert trainer.marked() | {trainer.process.pid} == set(map(int, (group / "cgroup.procs").read_text().split()))
    finally:
        trainer.close()


AS_NOBODY = """import os, sys
from training_hooks.chaos import base  # before the user is `nobody`, who may not read every checkout
os.setuid(65534)
print(base.charged_with(sys.argv[1]))
"""


@pytest.mark.parametrize("which", ["another", "its own"])
@pytest.mark.xdist_group("cgroup")
def test_a_fault_that_may_not_enter_the_trainers_cgroup_reports_it(tmp_path: Path, group: Path, which: str) -> None:
    trainer = Trainer(tmp_path, group if which == "another" else None)
    command = [sys.executable, "-c", AS_NOBODY, str(trainer.process.pid)]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=PROGRAM.parents[2]
        ).stdout.strip()
    finally:
        trainer.close()
    outside = ", outside of the trainer's cgroup, so its limits do not apply (Permission denied)"
    assert said == (outside if which == "another" else "")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("flood", "Unsupported value: 'flood': supported values: bad-node, cpu-load"),
        ("cpu-load", "'' is not a percentage; it must be a whole number from 1 to 100"),
        ("cpu-load=0", "'0' is not a percentage"),
        ("cpu-load=9:soon", "Invalid value: 'soon': must be a duration in seconds, such as 60s"),
        ("hang", "no worker process runs here now"),
        ("fill-memory=99", "the machine's memory has no limit: at most 90 % of it is filled"),
    ],
)
def test_an_impossible_fault_is_refused_with_the_reason(trainer: Trainer, fault: str, said: str) -> None:
    assert said in trainer.call("start", fault)["error"]
    assert trainer.running() == []


def test_a_refused_fault_is_listed(trainer: Trainer) -> None:
    trainer.call("start", "hang")
    assert trainer.call("list")["refused"][0]["why"] == "no worker process runs here now"


def test_without_a_trainer_no_fault_is_made(trainer: Trainer) -> None:
    trainer.process.kill()
    trainer.process.wait()
    assert "no trainer runs here" in trainer.call("start", "cpu-load=5")["error"]


@pytest.mark.parametrize("words", [(), ("start",), ("dance",), ("undo", "one", "two")])
def test_an_invalid_call_is_answered_with_the_usage(trainer: Trainer, words: tuple[str, ...]) -> None:
    assert "usage: start FAULT" in trainer.call(*words)["error"]


# -- armed ------------------------------------------------------------------------------------------------------------
def armed(trainer: Trainer, chaos: str) -> None:
    """Arms faults as the first process of a container does."""
    base.arm({**trainer.environ, base.ARMED: chaos})


def test_an_armed_fault_starts_once_and_not_again_after_an_undo(trainer: Trainer) -> None:
    armed(trainer, "bad-node,cpu-load=5")
    wait_until(lambda: sorted(trainer.running()) == ["bad-node", "cpu-load=5"], "both faults")
    began = trainer.says("cpu-load")["pid"]
    armed(trainer, "bad-node,cpu-load=5")
    assert trainer.says("cpu-load")["pid"] == began
    trainer.call("undo", "cpu-load")
    armed(trainer, "bad-node,cpu-load=5")
    assert trainer.running() == ["bad-node"]


def test_an_armed_fault_starts_again_with_a_new_first_process(trainer: Trainer) -> None:
    armed(trainer, "bad-node")
    wait_until(lambda: trainer.running() == ["bad-node"], "the fault")
    before = trainer.says("bad-node")["pid"]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: trainer.running() == [], "its end")
    armed(trainer, "bad-node")
    wait_until(lambda: trainer.says("bad-node").get("pid") != before, "the fault again")


def test_a_process_that_arms_has_no_child_left(trainer: Trainer) -> None:
    """Except the fault itself, if this process is the subreaper of orphans, as in warm tests."""
    before = set(tree.children(os.getpid()))
    armed(trainer, "bad-node")
    wait_until(lambda: trainer.says("bad-node").get("pid"), "the fault")
    assert set(tree.children(os.getpid())) - before <= {trainer.says("bad-node")["pid"]}


def test_the_probe_finds_a_bad_node_before_the_fault_has_begun(trainer: Trainer) -> None:
    environ = {base.ARMED: "cpu-load=5,bad-node=slow"}
    assert base.of_member(str(trainer.volume), environ, "bad-node") == "bad-node=slow"
    trainer.call("start", "bad-node")
    assert base.of_member(str(trainer.volume), environ, "bad-node") == "bad-node"
    trainer.call("undo")
    assert base.of_member(str(trainer.volume), environ, "bad-node") == ""


def test_a_signal_reaches_only_the_named_part_of_a_container(trainer: Trainer) -> None:
    assert trainer.call("signal", "sidecar", "KILL") == {"error": "no sidecar runs here now"}
    assert trainer.call("signal", "process", "KILL") == {"error": "no worker process runs here now"}
    assert "usage: start FAULT" in trainer.call("signal", "kernel", "KILL")["error"]

    assert trainer.call("signal", "all", "STOP") == {"pids": [trainer.process.pid]}
    wait_until(lambda: state(trainer.process.pid) == "T", "the stop")
    assert trainer.call("signal", "all", "CONT") == {"pids": [trainer.process.pid]}
    wait_until(lambda: state(trainer.process.pid) != "T", "the going on")

    rank = beside(trainer, OUTRIDER_GENERATION="1.1")
    sidecar = beside(trainer, "-m", "outrider.sidecar")
    assert trainer.call("signal", "process", "TERM") == {"pids": [rank.pid]}
    assert rank.wait(300) == -signal.SIGTERM
    assert trainer.call("signal", "sidecar", "KILL") == {"pids": [sidecar.pid]}
    assert sidecar.wait(300) == -signal.SIGKILL
    assert trainer.call("signal", "launcher", "KILL") == {"pids": [trainer.process.pid]}
    assert trainer.process.wait(300) == -signal.SIGKILL


def beside(trainer: Trainer, *words: str, **variables: str) -> subprocess.Popen[bytes]:
    """Another, waiting process of the member."""
    command = [sys.executable, "-c", "import signal\nwhile True: signal.pause()", *words]
    process = subprocess.Popen(command, env={**trainer.environ, **variables})
    wait_until(lambda: base.environment(process.pid).get("PATH"), "its environment")
    return process
