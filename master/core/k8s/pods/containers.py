"""The ends of a pod's containers by their statuses, and whether the kubelet restarts them.

The kubelet shows one restart alternately as `terminated` and as `waiting` for the back-off. This module returns the
same sentence for both, so nothing seems to change while nothing does.
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
"""Names of the injected containers."""
LOOPS_AFTER = 3
"""Restarts of the trainer's container, each after less than `SHORT_RUN`, after which its pod counts as failed; the same
number as on the local platform (docs/contracts.md §5)."""
SHORT_RUN = 60.0
"""Seconds below which a run of a container is short."""
KILLED = (137, 143)
"""Exit codes of SIGKILL and SIGTERM: another process ended the container, such as a liveness probe."""
PULLS = ("ErrImagePull", "ImagePullBackOff")
ENDS = ("CrashLoopBackOff", "RunContainerError", "PostStartHookError")
"""Reasons for waiting after an end; each attempt is an end of its own."""
HARMLESS = ("", "ContainerCreating", "PodInitializing")
_NO_SHELL = re.compile(r"exec \"?/\S*/outrider-launch\"?: no such file or directory")
"""The error of execve for a script whose interpreter is missing; if the script itself is missing, it names `stat`."""
NO_SHELL = (
    "the image has no /bin/sh, which outrider-launch needs: use an image with a shell, or remove the label "
    "outrider.dev/inject"
)


@dataclass(frozen=True, slots=True)
class End:
    """The last end of a container."""

    code: int
    cause: str
    """The kubelet's reason: Completed, Error, OOMKilled, StartError …"""
    message: str
    seconds: float
    """Duration of the run in seconds; 0 if it never started."""

    @property
    def sentence(self) -> str:
        """The end without its exit code. OOMKilled is about a container's whole life, not its end (docs/adr/0001)."""
        known = "ended" if self.cause in ("", "Completed", "Error") else f"ended ({self.cause})"
        why = NO_SHELL if self.code and _NO_SHELL.search(self.message) else self.message
        return f"{known}: {why}" if why else known

    @property
    def with_code(self) -> str:
        """The end with its exit code."""
        return self.sentence.replace("ended", f"ended with exit code {self.code}", 1)


def master_key(pod: Document) -> str:
    """The CURVE key of the master that the pod's sidecar trusts; empty if the pod does not have it."""
    keys = (entry.get("value") for sidecar in _sidecars(pod) for entry in sidecar.get("env") or ()
            if entry.get("name") == MASTER_KEY)  # fmt: skip
    return str(next(keys, None) or "")


def has_sidecar(pod: Document) -> bool:
    return bool(_sidecars(pod))


def _sidecars(pod: Document) -> list[Document]:
    """The pod's sidecar container, ordinary or native; empty if it has none."""
    spec = pod.get("spec") or {}
    there = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return [container for container in there if container.get("name") == SIDECAR_CONTAINER]


def status_of(pod: Document, name: str) -> Document:
    """The status of a container or init container (a native sidecar is one); empty if there is none yet."""
    return next((status for status in statuses(pod) if status.get("name") == name), {})


def is_init(pod: Document, name: str) -> bool:
    """Whether the container is an init container (a native sidecar is one too)."""
    init = (pod.get("status") or {}).get("initContainerStatuses") or ()
    return any(status.get("name") == name for status in init)


def statuses(pod: Document) -> Iterator[Document]:
    """The statuses of all containers, init containers first, in the order of the pod."""
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def is_restarted(pod: Document, name: str, code: int) -> bool:
    """Whether the kubelet restarts the container after an end with this exit code.

    A container's own restartPolicy takes precedence over the pod's, and the first matching entry of its
    restartPolicyRules (Kubernetes 1.34) over both.
    """
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    own: Document = next((c for c in containers if c.get("name") == name), {})
    policy = own.get("restartPolicy") or spec.get("restartPolicy") or "Always"
    if any(_fits(mapping(rule), code) for rule in entries(own.get("restartPolicyRules"))):
        return True
    return bool(policy == "Always" or (policy == "OnFailure" and code != 0))


def _fits(rule: Document, code: int) -> bool:
    """Whether the rule restarts the container; Restart is the only action on a container in Kubernetes 1.36."""
    codes = mapping(rule.get("exitCodes"))
    is_named = code in entries(codes.get("values"))
    operator = codes.get("operator")
    return rule.get("action") == "Restart" and (
        (operator == "In" and is_named) or (operator == "NotIn" and not is_named)
    )


def end_for_good(pod: Document, name: str) -> str:
    """The end of a container that the kubelet does not restart; empty otherwise."""
    end = end_of(status_of(pod, name))
    return "" if end is None or is_restarted(pod, name, end.code) else end.with_code


def end_of(status: Document) -> End | None:
    """The last end of a container that does not run; None if it runs or has not started yet."""
    state = status.get("state") or {}
    if "running" in state:
        return None
    found = state.get("terminated") or (status.get("lastState") or {}).get("terminated")
    if not found:
        return None
    return End(int(found.get("exitCode") or 0), found.get("reason") or "", brief(found.get("message")), _ran(found))


def ends(status: Document) -> int:
    """Number of ends of a container that does not run now."""
    return int(status.get("restartCount") or 0) + 1


def _ran(found: Document) -> float:
    """Duration of a run in seconds; the kubelet dates the start of a container that could not start to 1970."""
    try:
        started, finished = (datetime.fromisoformat(found[field]) for field in ("startedAt", "finishedAt"))
        seconds = (finished - started).total_seconds()
    except (KeyError, TypeError, ValueError):
        return 0.0
    return seconds if started.year > 1970 else 0.0


def loops(status: Document) -> bool:
    """Whether the container is in a crash loop: it ends by itself soon after each start."""
    end = end_of(status)
    if end is None or end.code == 0 or int(status.get("restartCount") or 0) < LOOPS_AFTER:
        return False
    return end.seconds < SHORT_RUN and (end.code not in KILLED or end.cause == "OOMKilled")


def is_out_of_memory(status: Document) -> bool:
    """Whether the kernel killed the container for lack of memory the last time, even if it runs again.

    A kubelet that restarts a container at once may never show it as ended.
    """
    ended = (status.get("state") or {}).get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
    return ended.get("reason") == "OOMKilled" and ended.get("exitCode") != 0


def memory_limit(pod: Document, name: str) -> int:
    """Memory limit of a container in bytes, including defaults of its namespace; 0 if there is none.

    A container without a limit of its own has that of the pod (`spec.resources`, Kubernetes 1.34).
    """
    spec = pod.get("spec") or {}
    found: Document = next((c for c in spec.get("containers") or () if c.get("name") == name), {})
    return most_of(found) or most_of(spec)


def most_of(holder: Document) -> int:
    """Memory limit in the resources of a container or a pod's spec in bytes; 0 if there is none."""
    limits = mapping(mapping(holder.get("resources")).get("limits"))
    return max(quantities.parsed(limits.get("memory")) or 0, 0)


def cannot_start(status: Document) -> str:
    """Why a container waits, if the reason does not pass by itself; empty otherwise.

    `ErrImagePull` and its back-off alternate: the text for both begins alike, and the former adds the cause.
    """
    waiting = (status.get("state") or {}).get("waiting") or {}
    why, message = waiting.get("reason") or "", brief(waiting.get("message"))
    if why in HARMLESS or why in ENDS:
        return ""
    if why in PULLS:
        cause = "" if message.startswith("Back-off pulling image") and "ErrImagePull" not in message else message
        what = f"ImagePullBackOff: the image {status.get('image') or ''} of {status.get('name')} cannot be pulled"
        return f"{what}: {cause}" if cause else what
    return f"{why} in {status.get('name')}" + (f": {message}" if message else "")
