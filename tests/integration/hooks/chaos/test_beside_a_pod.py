"""A fault made from beside a pod, in the network of its processes, until it is stopped or the pod has ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.hooks.agent import wait_until
from training_hooks.chaos import base, network

pytestmark = pytest.mark.xdist_group("netns")


def may_look() -> bool:
    """Skips without the rights. Each test checks it again: a node's agent, whose namespaces are used, may end."""
    return os.geteuid() == 0 and os.access(f"/proc/{network.machines_process()}/ns/mnt", os.R_OK)


@pytest.fixture
def allowed() -> None:
    if not may_look():
        pytest.skip("only root may enter other networks, and not everywhere those of the machine's own processes")


POD = """
import os, signal, time
os.fork() or os.execve('/proc/self/exe', ['python', '-c', 'import signal; signal.pause()'], MARKS)
signal.pause()
"""
"""The first process has no marks, like the one that holds a pod's namespaces; the trainer is its child."""


class Pod:
    def __init__(self, folder: Path) -> None:
        self.uid, self.folder = f"uid-{os.getpid()}-{folder.name}", folder
        marks = {"OUTRIDER_POD_UID": self.uid, "OUTRIDER_HOOKS": "hooks"}
        script = POD.replace("MARKS", repr(marks))
        self.process = subprocess.Popen(["unshare", "--net", "--pid", "--fork", sys.executable, "-c", script])
        wait_until(lambda: base.processes(marks), "the trainer")
        self.trainer = min(base.processes(marks))

    def broken(self, fault: str) -> subprocess.Popen[str]:
        environ = {**os.environ, "OUTRIDER_POD_UID": self.uid, "OUTRIDER_DIR": str(self.folder)}
        command = [sys.executable, "-I", "-S", base.PROGRAM, "beside", fault]
        return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)

    def rules(self) -> str:
        command = ("nsenter", f"--net=/proc/{self.trainer}/ns/net", "iptables", "-S")
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def end(self) -> None:
        for pid in (self.trainer, *map(int, children(self.process.pid))):
            base.send(pid, 9)
        self.process.wait()


def children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []


@pytest.fixture
def pod(allowed: None, tmp_path: Path) -> Iterator[Pod]:
    one = Pod(tmp_path)
    yield one
    one.end()


def first_line(process: subprocess.Popen[str]) -> dict[str, str]:
    """The whole output: the process closes it afterwards."""
    assert process.stdout is not None
    with process.stdout as said:
        line: dict[str, str] = json.loads(said.read())
    return line


def test_the_pods_network_is_cut_until_the_fault_is_stopped(pod: Pod) -> None:
    with pod.broken("cut-network") as fault:
        assert first_line(fault)["about"] == "every packet from and to it is dropped"
        assert pod.rules().count("DROP") == 2
        fault.terminate()
    assert fault.returncode == 0
    assert "DROP" not in pod.rules()


def test_the_fault_ends_with_the_pod_and_not_with_the_trainer(pod: Pod) -> None:
    with pod.broken("cut-network") as fault:
        first_line(fault)
        (first,) = children(pod.process.pid)
        assert base.environment(fault.pid)[base.BESIDE] == first
        os.kill(int(first), 9)
    assert base.read(str(pod.folder), "cut-network")["ended"] == base.GONE


def test_without_the_pods_processes_nothing_is_broken(allowed: None, tmp_path: Path) -> None:
    environ = {**os.environ, "OUTRIDER_POD_UID": "uid-of-nobody", "OUTRIDER_DIR": str(tmp_path)}
    command = [sys.executable, "-I", "-S", base.PROGRAM, "beside", "cut-network"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"error": "no process of the pod can be seen on its node"}


def test_without_access_to_the_machines_network_nothing_is_broken(tmp_path: Path) -> None:
    if os.geteuid() != 0 or may_look():
        pytest.skip("on this machine every user may look, or no other network can be created")
    pod = Pod(tmp_path)
    try:
        with pod.broken("cut-network") as fault:
            assert "cannot determine whether this is the machine's own network" in first_line(fault)["error"]
    finally:
        pod.end()
