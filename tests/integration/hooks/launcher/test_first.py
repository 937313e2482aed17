"""What the kubelet executes into a container whose command is the image's own: its variables bring the hooks in, and it
runs as without us. The containers are real pid namespaces; two of them share one, in cgroups of their own, as in a pod.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.hooks.agent import TestAgent, wait_until
from training_hooks import HOOKS_PATH

pytestmark = pytest.mark.slow
PROBE = "import torch.distributed as dist; print('healthy', flush=True)"
TRAINER = "import torch.distributed as dist; print('trains', flush=True)"


class Pod:
    """A pid namespace, and commands that are put into it from outside, as a runtime does."""

    def __init__(self, folder: Path, *first: str) -> None:
        self.folder = folder
        for name in ("torch", "torch/distributed"):  # these imports make a script a trainer; it need not train
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text("")
        (folder / "health.py").write_text(PROBE)
        (folder / "train.py").write_text(TRAINER)
        self.agent = TestAgent(folder / "volume")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("OUTRIDER", "PYTEST"))}
        mine = {"OUTRIDER_DIR": str(folder / "volume"), "OUTRIDER_HOOKS": HOOKS_PATH, "PYTHONPATH": HOOKS_PATH}
        self.environment = {**plain, **mine, "OUTRIDER_PATIENCE": "86400"}
        self.started: list[subprocess.Popen[str]] = []
        self.first = self.begin(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *first])

    def begin(self, command: list[str], cgroup: Path | None = None) -> subprocess.Popen[str]:
        enter = ["/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(cgroup)] if cgroup else []
        process = subprocess.Popen(
            [*enter, *command], cwd=self.folder, env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.started.append(process)
        return process

    def inside(self) -> int:
        """The pid of the first process outside of the namespace."""
        children = Path(f"/proc/{self.first.pid}/task/{self.first.pid}/children")
        wait_until(lambda: children.read_text().split(), "the first process")
        return int(children.read_text().split()[0])

    def executed(self, *command: str, cgroup: Path | None = None) -> subprocess.Popen[str]:
        pid = self.inside()
        spaces = [f"--pid=/proc/{pid}/ns/pid", f"--mount=/proc/{pid}/ns/mnt", f"--wd={self.folder}"]
        return self.begin(["nsenter", *spaces, *command], cgroup)

    def close(self) -> None:
        for process in reversed(self.started):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self.agent.close()


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[type[Pod]]:
    """A pod is made by `pod(*first)`."""
    if subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode:
        pytest.skip("no pid namespace can be made here")
    made: list[Pod] = []

    def begin(*first: str) -> Pod:
        made.append(Pod(tmp_path, *first))
        return made[-1]

    yield begin  # type: ignore[misc]
    for each in made:
        each.close()


def test_a_probe_runs_as_without_outrider_while_the_command_has_not_started(pod: type[Pod]) -> None:
    container = pod("sleep", "1000")  # type: ignore[call-arg, arg-type]
    for command in (["health.py"], ["-c", "print('healthy')"], ["-m", "health"]):
        said, _ = container.executed(sys.executable, *command).communicate(timeout=300)
        assert said == "healthy\n"
    inner = container.executed("sh", "-c", f"{sys.executable} health.py; true")
    assert inner.communicate(timeout=300)[0] == "healthy\n"


def test_the_containers_command_is_the_template_and_a_probe_beside_it_is_not(pod: type[Pod]) -> None:
    container = pod(sys.executable, "train.py")  # type: ignore[call-arg, arg-type]
    assert container.agent.accept()["what"] == "template"
    assert container.executed(sys.executable, "health.py").communicate(timeout=300)[0] == "healthy\n"


def test_a_script_that_the_containers_shell_starts_is_the_template(pod: type[Pod]) -> None:
    container = pod("sh", "-c", f"{sys.executable} train.py; true")  # type: ignore[call-arg, arg-type]
    assert container.agent.accept()["what"] == "template"


@pytest.mark.xdist_group("cgroup")
def test_in_a_pid_namespace_of_two_containers_each_has_a_first_process(cgroup: Path, pod: type[Pod]) -> None:
    """The first is the pod's pause process; trainer and executed commands have no parent in the namespace."""
    shared = pod("sleep", "1000")  # type: ignore[call-arg, arg-type]
    trainer = shared.executed(sys.executable, "train.py", cgroup=cgroup)
    assert shared.agent.accept()["what"] == "template"
    probe = shared.executed(sys.executable, "health.py", cgroup=cgroup)
    assert probe.communicate(timeout=300)[0] == "healthy\n"
    assert trainer.poll() is None
