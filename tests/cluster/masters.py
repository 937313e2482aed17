"""The masters' own pods and processes, for tests that take them away or stop them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.cluster.cluster import SYSTEM, until
from tests.cluster.reading import Document, listed


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
