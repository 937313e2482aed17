"""`outrider` as its user calls it, by his own rights: faults on purpose, questions to ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cluster.cluster import DEADLINE, Pods

OUTRIDER = str(Path(sys.executable).parent / "outrider")


def outrider(job: Pods, *words: str) -> subprocess.CompletedProcess[str]:
    command = [OUTRIDER, *words, "-n", job.namespace]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)


def chaos(job: Pods, pod: str, *words: str) -> subprocess.CompletedProcess[str]:
    return outrider(job, "chaos", *words, "--pod", pod)


def said(job: Pods, pod: str, *words: str) -> str:
    """Of a fault that succeeds."""
    done = chaos(job, pod, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def allow(job: Pods, pod: str) -> None:
    job.kubectl("annotate", "--overwrite", "pod", pod, "outrider.dev/chaos=allowed")


def holders(job: Pods) -> list[str]:
    """The pods that hold faults, those that are going included."""
    return [name for name in job.kubectl("get", "pods", "-o", "name").split() if "pod/outrider-" in name]
