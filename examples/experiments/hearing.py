"""Observes one job while it runs: its pods, its ElasticJob, its Events, and the output of its trainers.

The data comes from watches of the API server and from followed logs. It is stored with the time at which it arrived
(Events, pods) or was printed (the kubelet's timestamps). `until` waits for a condition on it.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from kubernetes import client, watch
from urllib3.exceptions import HTTPError

Document = dict[str, Any]
Found = TypeVar("Found")
JOB = "digits"
TRAINER = "trainer"
STEP = re.compile(r"epoch \d+ step (\d+) loss")
RESUMED = re.compile(r"resumed at epoch \d+ step (\d+) on (\d+) processes")

ALONE = "runs without Outrider"
"""The message of a pod whose sidecar did not start within OUTRIDER_PATIENCE, so that it trains unsupervised."""


class NotSeen(Exception):
    """Something expected did not happen in time."""


@dataclass(frozen=True)
class Line:
    """A line of a trainer, with the time at which it was printed."""

    at: float
    pod: str
    text: str


@dataclass(frozen=True)
class World:
    """The training between two restarts: the number of processes, the step of the loaded checkpoint, and the steps."""

    began: float
    processes: int
    loaded: int
    steps: list[tuple[float, int]] = field(default_factory=list)


class Hearing:
    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.pods: dict[str, Document] = {}
        self.job: Document = {}
        self.events: list[tuple[float, Document]] = []
        self.lines: list[Line] = []
        self.first_seen: dict[str, float] = {}
        self._changed = threading.Condition()
        self._followed: set[tuple[str, int]] = set()
        self._ended = False
        core, custom = client.CoreV1Api(), client.CustomObjectsApi()
        self._core = core
        self._start(self._watch, core.list_namespaced_pod, (namespace,), self._pod)
        self._start(self._watch, core.list_namespaced_event, (namespace,), self._event)
        jobs = ("outrider.dev", "v1alpha1", namespace, "elasticjobs")
        self._start(self._watch, custom.list_namespaced_custom_object, jobs, self._elasticjob)

    def end(self) -> None:
        self._ended = True

    def until(self, claim: Callable[[], Found | None], what: str, seconds: float) -> Found:
        """Wait until the claim returns a true value, and return it."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not (found := claim()):
                self._stop_where_hopeless()
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    raise NotSeen(f"not seen within {seconds:g} s: {what}")
            return found

    def _stop_where_hopeless(self) -> None:
        phase = (self.job.get("status") or {}).get("phase")
        if phase in ("Failed", "Stopped"):
            raise NotSeen(f"the job is {phase}: {self.job['status'].get('message')}")
        alone = next((line for line in self.lines if ALONE in line.text), None)
        if alone is not None:
            raise NotSeen(f"{alone.pod}: {alone.text}")
        for _at, event in self.events:
            lacks_image = event["reason"] == "PodBlocked" and "Image" in event["message"]
            if lacks_image or event["reason"] == "CreateRejected":  # other errors may pass when the kubelet retries
                raise NotSeen(event["message"])

    # -- what is claimed ------------------------------------------------------------------------------------------
    def phase(self) -> str:
        return str((self.job.get("status") or {}).get("phase", ""))

    def reasons(self, kind: str, *words: str) -> list[tuple[float, str]]:
        """The times and messages of the Events with this reason and all of these words."""
        return [(at, event["message"]) for at, event in self.events
                if event["reason"] == kind and all(word in event["message"] for word in words)]  # fmt: skip

    def worlds(self) -> list[World]:
        """The generations according to the script's output, which has no size and no start of the first one."""
        worlds: list[World] = []
        for line in sorted(self.lines, key=lambda line: line.at):
            if resumed := RESUMED.search(line.text):
                worlds.append(World(line.at, int(resumed[2]), int(resumed[1])))
            elif step := STEP.search(line.text):
                if not worlds:
                    worlds.append(World(line.at, 0, 0))
                worlds[-1].steps.append((line.at, int(step[1])))
        return worlds

    def highest(self, before: float = float("inf")) -> int:
        return max((n for world in self.worlds() for at, n in world.steps if at < before), default=0)

    def new_steps(self, world: World) -> list[tuple[float, int]]:
        """The steps that no earlier generation has made."""
        high = self.highest(before=world.began)
        return [(at, step) for at, step in world.steps if step > high]

    # -- how it is heard ------------------------------------------------------------------------------------------
    def _start(self, what: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=what, args=arguments, daemon=True).start()

    def _watch(self, listed: Callable[..., Any], where: tuple[str, ...], take: Callable[[str, Document], None]) -> None:
        """Watch objects; a broken watch starts again with a full list."""
        while not self._ended:
            with contextlib.suppress(client.ApiException, HTTPError):
                for change in watch.Watch().stream(listed, *where, timeout_seconds=300):
                    document = change["raw_object"]
                    with self._changed:
                        take(change["type"], document)
                        self._changed.notify_all()
                    if self._ended:
                        return

    def _elasticjob(self, _kind: str, document: Document) -> None:
        if document["metadata"]["name"] == JOB:
            self.job = document

    def _event(self, kind: str, document: Document) -> None:
        if kind == "ADDED" and (document.get("source") or {}).get("component") == "outrider":
            known = {event["metadata"]["name"] for _at, event in self.events}
            if document["metadata"]["name"] not in known:
                self.events.append((time.time(), document))

    def _pod(self, kind: str, pod: Document) -> None:
        name = pod["metadata"]["name"]
        if kind == "DELETED":
            self.pods.pop(name, None)
            return
        self.pods[name] = pod
        self.first_seen.setdefault(name, time.time())
        for container in pod["status"].get("containerStatuses") or ():
            run = (name, container["restartCount"])
            if container["name"] == TRAINER and not container["state"].get("waiting") and run not in self._followed:
                self._followed.add(run)
                self._start(self._follow, name)

    def _follow(self, pod: str) -> None:
        with contextlib.suppress(client.ApiException, HTTPError):
            for text in self._log(pod):
                stamp, _, printed = text.partition(" ")
                with self._changed:
                    self.lines.append(Line(datetime.fromisoformat(stamp).timestamp(), pod, printed))
                    self._changed.notify_all()

    def _log(self, pod: str) -> Iterator[str]:
        response = self._core.read_namespaced_pod_log(
            pod, self.namespace, container=TRAINER, follow=True, timestamps=True, _preload_content=False
        )
        rest = b""
        for piece in response.stream():
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
