"""Runs one job in its own namespace: submits it, injects faults, shows it as to its user, and deletes it at the end."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from hearing import JOB, Hearing, NotSeen, World
from kubernetes import client

HERE = Path(__file__).resolve().parent
PODS = "kubectl get pods -L outrider.dev/rank-index"
RANK_INDEX = "outrider.dev/rank-index"
TRAINED = 60
"""The step after which a fault comes: by then the script has saved twice, so that its checkpoints are recognized."""
LIMIT, COMMAND_LIMIT = 300.0, 60.0
"""The most seconds of each wait, and of each command."""
Found = TypeVar("Found")


def run(*command: str) -> str:
    """The output of a command."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotSeen(f"{shlex.join(command)}: {error}") from None
    if done.returncode:
        raise NotSeen(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Experiment:
    def __init__(self, scenario: str, keep: bool = False) -> None:
        self.scenario, self.keep = scenario, keep
        self.zero = time.time()
        """The time from which seconds are counted: the submission of the job, and later the fault."""

    def __enter__(self) -> Experiment:
        namespace = client.V1Namespace(metadata=client.V1ObjectMeta(generate_name=f"experiment-{self.scenario}-"))
        self.namespace: str = client.CoreV1Api().create_namespace(namespace).metadata.name
        self.hearing = Hearing(self.namespace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if isinstance(error, NotSeen):
            self.report(str(error))
            self.look_around()
        self.hearing.end()
        if self.keep:
            print(f"\nkept: namespace {self.namespace}")
        else:
            client.CoreV1Api().delete_namespace(self.namespace)

    # -- what a user does -----------------------------------------------------------------------------------------
    def kubectl(self, *arguments: str) -> str:
        return run("kubectl", "-n", self.namespace, *arguments)

    def submit(self) -> None:
        print(f"namespace {self.namespace}\n$ kubectl apply -k examples/experiments/{self.scenario}")
        self.zero = time.time()
        self.kubectl("apply", "-k", str(HERE / self.scenario))

    def another(self, file: str, pod: str) -> str:
        """Start another job on the cluster; returns the name of its pod."""
        print(f"namespace {self.namespace}\n$ kubectl apply -f examples/experiments/{file}")
        self.kubectl("apply", "-f", str(HERE / file))
        self.until(lambda: (self.hearing.pods.get(pod) or {}).get("status", {}).get("phase") == "Running",
                   f"{pod} to run")  # fmt: skip
        return pod

    def fault(self, *command: str, shown: str = "") -> float:
        """Inject a fault by a command; seconds are counted from just before it."""
        print(f"\n$ {shown or shlex.join(command)}", flush=True)
        self.zero = time.time()
        run(*command)
        return self.zero

    def pod(self, member: int) -> str:
        return f"{JOB}-worker-{member}"

    # -- what is waited for ---------------------------------------------------------------------------------------
    def until(self, claim: Callable[[], Found | None], what: str, seconds: float = LIMIT) -> Found:
        return self.hearing.until(claim, what, seconds)

    def trains(self, members: int = 4) -> None:
        """Wait until the job has trained long enough for a fault."""
        self.event("GenerationRunning", f"with {members} members")
        self.until(lambda: self.hearing.highest() >= TRAINED and len(self.running()) == members,
                   f"step {TRAINED} of {members} pods")  # fmt: skip
        self.report(f"step {self.hearing.highest()} in {members} pods")

    def continues(self, processes: int, after: float) -> World:
        """The generation of this size that began after this time and has made new steps."""

        def found() -> World | None:
            fitting = (w for w in self.hearing.worlds() if w.began > after and w.processes == processes)
            return next((w for w in fitting if self.hearing.new_steps(w)), None)

        return self.until(found, f"new steps of {processes} processes")

    def event(self, kind: str, *words: str) -> tuple[float, str]:
        """The time and the message of an Event."""
        return self.until(lambda: self.hearing.reasons(kind, *words), f"the Event {kind} {' '.join(words)}")[0]

    def succeeds(self) -> None:
        self.until(lambda: self.hearing.phase() == "Succeeded", "the job to succeed", 2 * LIMIT)
        self.until(lambda: not self.running(), "the pods to end")

    def running(self) -> set[str]:
        return {name for name, pod in self.hearing.pods.items()
                if pod["status"].get("phase") == "Running" and RANK_INDEX in pod["metadata"].get("labels", {})
                and "deletionTimestamp" not in pod["metadata"]}  # fmt: skip

    # -- what is shown --------------------------------------------------------------------------------------------
    def after(self, at: float) -> str:
        return f"{at - self.zero:.1f} s"

    def report(self, what: str) -> None:
        print(f"[{self.after(time.time())}] {what}", flush=True)

    def show(self, command: str, shown: Callable[[str], bool] = bool) -> str:
        """Run a command of the user in this namespace, and print the selected lines."""
        _kubectl, *arguments = shlex.split(command)
        lines = [line.rstrip() for line in self.kubectl(*arguments).splitlines() if shown(line)]
        print("\n".join(("", f"$ {command}", *lines)), flush=True)
        return "\n".join(lines)

    def show_events(self) -> None:
        print("\n$ kubectl get events --watch")
        for at, event in self.hearing.events:
            print(f"[{self.after(at)}] {event['reason']}: {event['message']}")

    def look_around(self) -> None:
        """Print the events and pods, after something expected did not happen."""
        self.show_events()
        for command in (f"kubectl get elasticjob {JOB} -o wide", "kubectl get pods -o wide"):
            try:
                self.show(command)
            except NotSeen as error:
                print(error)
