"""The network of a pod is cut, so that it reaches neither the master nor any other pod, while its node is well.

A cluster cannot be asked for that. OUTRIDER_LAB names a command that can: `$OUTRIDER_LAB cut NAMESPACE/POD` drops all
traffic of the pod, and `$OUTRIDER_LAB heal NAMESPACE/POD` lets it through again.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.cluster import ClusterJob, until
from tests.cluster.conftest import Make
from tests.local.training import members

LAB = os.environ.get("OUTRIDER_LAB", "")
SILENT_AFTER = "5s"

pytestmark = pytest.mark.skipif(not LAB, reason="OUTRIDER_LAB names no command that cuts the network of a pod")


def lab(what: str, pod: str) -> None:
    done = subprocess.run([*shlex.split(LAB), what, pod], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{LAB} {what} {pod}: {done.stderr}"


@pytest.fixture
def cut() -> Iterator[Callable[[ClusterJob, str], Callable[[], None]]]:
    """Cuts a pod off; what comes back heals it, as the end of the test does."""
    there: list[str] = []

    def off(job: ClusterJob, pod: str) -> Callable[[], None]:
        name = f"{job.namespace}/{pod}"
        lab("cut", name)
        there.append(name)
        return lambda: (there.remove(name), lab("heal", name))[1]

    yield off
    for name in there:
        lab("heal", name)


def ranks(job: ClusterJob, pod: str) -> list[str]:
    """The worker processes in a pod. The kubelet is on the node, so this needs no network of the pod's."""
    return re.findall(r"^rank \d+$", job.execute(pod, "cat /proc/[0-9]*/comm 2>/dev/null || true"), re.MULTILINE)


def isolated(job: ClusterJob, pod: str) -> bool:
    return '"Isolated"' in job.kubectl("logs", pod, "-c", "outrider-sidecar")


def test_a_pod_that_is_cut_off_stops_its_ranks_and_is_replaced_while_the_others_train_on(
    make: Make, cut: Callable[[ClusterJob, str], Callable[[], None]]
) -> None:
    job = make(replicas=3, least=2, recovery={"silentAfter": SILENT_AFTER, "replaceAfter": "40s"})
    restart, _ = job.training(6)
    victim = job.pod("worker-1")
    assert len(ranks(job, victim)) == 2
    cut(job, victim)
    _, new = job.training(None, after=restart)
    assert victim not in members(new)
    until(lambda: not ranks(job, victim), lambda: f"the ranks of {victim} to go: {job.story()}")
    assert isolated(job, victim)
    job.event("MemberGivenUp", "worker-1")
    until(lambda: victim not in job.pods(), job.story)
    _, whole = job.training(6)
    assert victim not in members(whole)


def test_a_pod_that_is_cut_off_and_healed_in_time_comes_back_and_says_why_it_stopped(
    make: Make, cut: Callable[[ClusterJob, str], Callable[[], None]]
) -> None:
    job = make(replicas=3, least=2, recovery={"silentAfter": SILENT_AFTER, "replaceAfter": "300s"})
    restart, _ = job.training(6)
    victim = job.pod("worker-2")
    before = job.uids()[victim]
    heal = cut(job, victim)
    job.training(None, after=restart)
    until(lambda: not ranks(job, victim), lambda: f"the ranks of {victim} to go: {job.story()}")
    heal()
    job.event("MemberIsolated", "worker-2 says: neither the master nor", "this member is cut off")
    job.event("MemberBack", "worker-2")
    assert job.uids()[victim] == before
    job.training(6)
    assert not [e for e in job.status().get("faults", ()) if e["kind"] in ("WorkerExited", "WorkersGone")]


def test_a_pod_that_is_cut_off_for_a_moment_trains_on(
    make: Make, cut: Callable[[ClusterJob, str], Callable[[], None]]
) -> None:
    job = make(replicas=2, recovery={"silentAfter": "20s", "replaceAfter": "300s"})
    restart, world = job.training(4)
    cut(job, job.pod("worker-1"))()
    same, _ = job.training(4, more=len(world[0]) + 20)
    assert same == restart
