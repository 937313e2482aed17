"""What a pod's container statuses say: what has ended, and whether it is started again.

The kubelet shows one and the same restart in turns as `terminated` and as `waiting` for the back-off. What is told here
is the same sentence for both, so that nothing seems to change while nothing does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from outrider.master.core import quantities
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import (
    HOOKS_CONTAINER,
    MASTER_KEY,
    SIDECAR_CONTAINER,
    Document,
)
from outrider.master.core.text import brief

OURS = (HOOKS_CONTAINER, SIDECAR_CONTAINER)
LOOPS_AFTER = 3
"""Restarts of the trainer's container, each after less than `SHORT_RUN`, after which its pod counts as failed: as many
as on the local platform (docs/contracts.md §5)."""
SHORT_RUN = 60.0
KILLED = (137, 143)
"""SIGKILL and SIGTERM: somebody else ended it, as a liveness probe does to begin the next generation."""
PULLS = ("ErrImagePull", "ImagePullBackOff")
ENDS = ("CrashLoopBackOff", "RunContainerError", "PostStartHookError")
"""It is started again, and each attempt is an end of its own."""
HARMLESS = ("", "ContainerCreating", "PodInitializing")
_NO_SHELL = re.compile(r"exec \"?/\S*/outrider-launch\"?: no such file or directory")
"""What execve says of a script whose interpreter is not there; where the script itself is missing, it is `stat`."""
NO_SHELL = (
    "the image has no /bin/sh, which outrider-launch needs: take an image with a shell, or leave the label "
    "outrider.dev/inject off"
)


@dataclass(frozen=True, slots=True)
class End:
    """How a container ended last."""

    code: int
    cause: str
    """The kubelet's word: Completed, Error, OOMKilled, StartError …"""
    message: str
    seconds: float
    """How long it ran; 0 where it never started."""

    @property
    def sentence(self) -> str:
        """Without the code. OOMKilled is true of a container's whole life, not of its end (docs/adr/0001)."""
        known = "ended" if self.cause in ("", "Completed", "Error") else f"ended ({self.cause})"
        why = NO_SHELL if self.code and _NO_SHELL.search(self.message) else self.message
        return f"{known}: {why}" if why else known

    @property
    def with_code(self) -> str:
        return self.sentence.replace("ended", f"ended with exit code {self.code}", 1)


def master_key(pod: Document) -> str:
    """The CURVE key of the master that its sidecar was told to trust; empty where the pod itself does not say."""
    said = (entry.get("value") for sidecar in _sidecars(pod) for entry in sidecar.get("env") or ()
            if entry.get("name") == MASTER_KEY)  # fmt: skip
    return str(next(said, None) or "")


def has_sidecar(pod: Document) -> bool:
    return bool(_sidecars(pod))


def _sidecars(pod: Document) -> list[Document]:
    """Its sidecar, an ordinary or a native one."""
    spec = pod.get("spec") or {}
    there = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return [container for container in there if container.get("name") == SIDECAR_CONTAINER]


def status_of(pod: Document, name: str) -> Document:
    """A container's status, an init container's too (a native sidecar is one); empty where there is none yet."""
    return next((status for status in statuses(pod) if status.get("name") == name), {})


def is_init(pod: Document, name: str) -> bool:
    """One of those that end before the others start, or a native sidecar."""
    init = (pod.get("status") or {}).get("initContainerStatuses") or ()
    return any(status.get("name") == name for status in init)


def statuses(pod: Document) -> Iterator[Document]:
    """The init containers' first, in the order of the pod."""
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def is_restarted(pod: Document, name: str, code: int) -> bool:
    """Will the kubelet start it again after such an end? A container's own restartPolicy is above the pod's, and the
    first of its restartPolicyRules (1.34) that fits is above both."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    own: Document = next((c for c in containers if c.get("name") == name), {})
    policy = own.get("restartPolicy") or spec.get("restartPolicy") or "Always"
    if any(_fits(mapping(rule), code) for rule in entries(own.get("restartPolicyRules"))):
        return True
    return bool(policy == "Always" or (policy == "OnFailure" and code != 0))


def _fits(rule: Document, code: int) -> bool:
    """Restart is the only action of Kubernetes 1.36 that concerns the container alone."""
    codes = mapping(rule.get("exitCodes"))
    is_named = code in entries(codes.get("values"))
    operator = codes.get("operator")
    return rule.get("action") == "Restart" and (
        (operator == "In" and is_named) or (operator == "NotIn" and not is_named)
    )


def end_for_good(pod: Document, name: str) -> str:
    """How it ended, where the kubelet does not start it again; empty otherwise."""
    end = end_of(status_of(pod, name))
    return "" if end is None or is_restarted(pod, name, end.code) else end.with_code


def end_of(status: Document) -> End | None:
    """How it ended, where it does not run now: None for one that runs or has not been started yet."""
    state = status.get("state") or {}
    if "running" in state:
        return None
    found = state.get("terminated") or (status.get("lastState") or {}).get("terminated")
    if not found:
        return None
    return End(int(found.get("exitCode") or 0), found.get("reason") or "", brief(found.get("message")), _ran(found))


def ends(status: Document) -> int:
    """How often it has ended so far, where it does not run now."""
    return int(status.get("restartCount") or 0) + 1


def _ran(found: Document) -> float:
    """Of a container that could not be started the kubelet says that it began in 1970."""
    try:
        started, finished = (datetime.fromisoformat(found[field]) for field in ("startedAt", "finishedAt"))
        seconds = (finished - started).total_seconds()
    except (KeyError, TypeError, ValueError):
        return 0.0
    return seconds if started.year > 1970 else 0.0


def loops(status: Document) -> bool:
    """It ends again and again by itself, soon after each start."""
    end = end_of(status)
    if end is None or end.code == 0 or int(status.get("restartCount") or 0) < LOOPS_AFTER:
        return False
    return end.seconds < SHORT_RUN and (end.code not in KILLED or end.cause == "OOMKilled")


def is_out_of_memory(status: Document) -> bool:
    """The kernel ended it for want of memory the last time, whether or not it runs again: a kubelet that starts it at
    once may never show the moment in between."""
    ended = (status.get("state") or {}).get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
    return ended.get("reason") == "OOMKilled" and ended.get("exitCode") != 0


def memory_limit(pod: Document, name: str) -> int:
    """Bytes that a container may use, as the API server has it (defaults of its namespace too); 0: no limit. Without
    one of its own it may use what the whole pod may (`spec.resources`, Kubernetes 1.34)."""
    spec = pod.get("spec") or {}
    found: Document = next((c for c in spec.get("containers") or () if c.get("name") == name), {})
    return most_of(found) or most_of(spec)


def most_of(holder: Document) -> int:
    """Bytes that the resources of a container, or of a pod's spec, allow; 0: they say none."""
    limits = mapping(mapping(holder.get("resources")).get("limits"))
    return max(quantities.parsed(limits.get("memory")) or 0, 0)


def cannot_start(status: Document) -> str:
    """Why it waits, where that does not pass by itself; empty otherwise. `ErrImagePull` and its back-off take
    turns: both begin alike, and the former goes on with what went wrong."""
    waiting = (status.get("state") or {}).get("waiting") or {}
    why, message = waiting.get("reason") or "", brief(waiting.get("message"))
    if why in HARMLESS or why in ENDS:
        return ""
    if why in PULLS:
        said = "" if message.startswith("Back-off pulling image") and "ErrImagePull" not in message else message
        what = f"ImagePullBackOff: the image {status.get('image') or ''} of {status.get('name')} cannot be pulled"
        return f"{what}: {said}" if said else what
    return f"{why} in {status.get('name')}" + (f": {message}" if message else "")
