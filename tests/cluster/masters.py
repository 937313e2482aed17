"""The masters' own pods and processes, for tests that take them away or stop them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import SYSTEM, until
from tests.cluster.reading import Document, listed

REPLICAS = "outrider.dev/part=master"


def leaders() -> list[Document]:
    """One that is being deleted is about to hand over."""
    found = listed("pods", SYSTEM, labels="outrider.dev/leader=true")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def leader() -> Document:
    return until(leaders, "a leader")[0]


def processes_of(pod: Document) -> list[int]:
    """On a machine that is a node: those whose cgroup is the pod's, but for the one that only holds its namespaces."""
    uid, found = pod["metadata"]["uid"], []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            is_its = uid in (folder / "cgroup").read_text().replace("_", "-")
            if is_its and "python" in (folder / "cmdline").read_text():
                found.append(int(folder.name))
    return found


@contextlib.contextmanager
def frozen(pod: Document) -> Iterator[None]:
    """Its processes are stopped meanwhile; where that took long, its kubelet may have ended them."""
    pids = processes_of(pod)
    if not pids:
        pytest.skip("the nodes of this cluster are other machines, whose processes cannot be stopped from here")
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


Count = tuple[str, int, str]
"""The pod's uid, how often its container was started again, and how it ended last."""


def counts() -> dict[str, Count]:
    """By the name of each replica's pod; those that go are not counted."""
    return {pod["metadata"]["name"]: _count(pod) for pod in listed("pods", SYSTEM, labels=REPLICAS)
            if "deletionTimestamp" not in pod["metadata"]}  # fmt: skip


def _count(pod: Document) -> Count:
    containers = pod["status"].get("containerStatuses") or []
    ends = [each.get("lastState", {}).get("terminated") or {} for each in containers]
    words = ", ".join(f"{end['reason']} with {end['exitCode']} at {end['finishedAt']}" for end in ends if end)
    return pod["metadata"]["uid"], sum(each["restartCount"] for each in containers), words


def restarted(before: dict[str, Count], after: dict[str, Count]) -> dict[str, str]:
    """Of these pods those whose container was started again, and how it had ended."""
    return {
        name: f"{after[name][1] - times} × {ended}"
        for name, (uid, times, _) in before.items()
        if name in after and after[name][0] == uid and after[name][1] > times and (ended := after[name][2] or "?")
    }
