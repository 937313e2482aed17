"""Drains: what a job's PodDisruptionBudget says, and evictions as `kubectl drain` asks for them."""

from __future__ import annotations

import json
import subprocess

from tests.cluster.cluster import DEADLINE, Document, Pods, until
from tests.cluster.reading import listed, policy


def evicted(job: Pods, pod: str) -> str:
    """Empty where the API server takes the eviction, else why it does not."""
    eviction = {"apiVersion": policy(), "kind": "Eviction", "metadata": {"name": pod}}
    command = ["kubectl", "create", "--raw", f"/api/v1/namespaces/{job.namespace}/pods/{pod}/eviction", "-f", "-"]
    done = subprocess.run(command, input=json.dumps(eviction), capture_output=True, text=True, timeout=DEADLINE)
    return "" if done.returncode == 0 else done.stderr


def budget(job: Pods) -> Document:
    """The one of the job's name; empty while there is none."""
    found = listed("poddisruptionbudgets", job.namespace)
    return next((each for each in found if each["metadata"]["name"] == job.name), {})


def allows(job: Pods, number: int) -> Document:
    """The budget, once it lets so many pods go."""

    def found() -> Document | None:
        now = budget(job)
        return now if now.get("status", {}).get("disruptionsAllowed") == number else None

    return until(found, lambda: f"{number} disruptions to be allowed: {budget(job)} {job.story()}")
