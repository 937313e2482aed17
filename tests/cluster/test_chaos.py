"""`outrider chaos --pod`, as its user calls it: one job of two pods, each asked whether it may be broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cluster.cluster import ClusterJob, until
from tests.cluster.conftest import Make

OUTRIDER = str(Path(sys.executable).parent / "outrider")


def chaos(job: ClusterJob, pod: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [OUTRIDER, "chaos", *words, "--pod", pod, "-n", job.namespace]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def said(job: ClusterJob, pod: str, *words: str) -> str:
    done = chaos(job, pod, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_pod_that_says_so_is_broken_by_its_users_own_rights(make: Make) -> None:
    job = make()
    restart, _ = job.training(4)
    pod, before = job.pod("worker-1"), job.uids()

    refused = chaos(job, pod, "kill-process")
    assert refused.returncode == 2
    assert f"pod {job.namespace}/{pod} does not say that it may be broken" in refused.stderr
    job.kubectl(*refused.stderr.partition("kubectl ")[2].split())

    assert f"sent SIGKILL to the worker process of pod {job.namespace}/{pod}" in said(job, pod, "kill-process")
    restart, _ = job.training(4, after=restart)
    job.event("WorkerExited", "on worker-1 was killed by SIGKILL")
    assert "sent SIGKILL to the sidecar" in said(job, pod, "kill-sidecar")
    assert "busy for 5 % of the time" in said(job, pod, "cpu-load", "5")
    assert said(job, pod, "undo") == f"pod {job.namespace}/{pod}: cpu-load=5 is undone\n"
    assert "sent SIGSTOP to the " in said(job, pod, "freeze-member")
    assert "sent SIGCONT to the " in said(job, pod, "thaw-member")
    job.training(4)
    assert job.uids() == before, "everything so far was borne in place"

    assert "is deleted" in said(job, pod, "kill-member")
    until(lambda: pod not in job.pods(), job.story)
    assert chaos(job, "nobody", "hang").stderr == (
        f"outrider: there is no pod 'nobody' in the namespace {job.namespace}; -n names another\n"
    )
