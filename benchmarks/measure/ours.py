"""Outrider in the same measurement: `outrider run` with the same script, and faults by signals from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure.processes import descendants, environment_of, send_all, with_environment

MARK = "OUTRIDER_POD_UID"
"""Every process of a member inherits it."""


def outrider(*arguments: str) -> list[str]:
    """The command line of the outrider that is installed beside this Python."""
    return [str(Path(sys.executable).parent / "outrider"), *arguments]


@dataclass(slots=True)
class OutriderJob:
    """One job of `outrider run`. `started` is when the command was given."""

    nodes: int
    script: list[str]
    log: Path
    minimum: int | None = None
    spares: int = 0
    flags: list[str] = field(default_factory=list)
    job: str = "bench"
    started: float = 0.0
    _run: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.log.parent / "home"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "OUTRIDER_HOME": str(self.home), "OMP_NUM_THREADS": "1"}

    def start(self) -> None:
        nnodes = str(self.nodes) if self.minimum is None else f"{self.minimum}:{self.nodes}"
        command = outrider(
            "run", "--job", self.job, "--nnodes", nnodes, "--spares", str(self.spares), *self.flags, *self.script
        )
        self.started = time.time()
        with self.log.open("ab") as log:
            self._run = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment
            )

    def status(self) -> dict[str, Any]:
        answer = subprocess.run(
            outrider("status", self.job, "--json"), env=self.environment, capture_output=True, timeout=30, check=True
        )
        document: dict[str, Any] = json.loads(answer.stdout)
        return document

    def wait_for_pids(self, limit: float = 60.0) -> dict[str, int]:
        """The pids of the first member's sidecar and of the master, once its workers run."""
        deadline = time.time() + limit
        while time.time() < deadline and self.is_alive():
            with contextlib.suppress(subprocess.CalledProcessError):
                member = self.status()["members"][0]
                if member["state"] == "running" and member["pids"]["workers"]:
                    return {"sidecar": member["pids"]["sidecar"], "master": self._master()}
            time.sleep(0.2)
        raise TimeoutError(f"no member was running within {limit:.0f} s; the log: {self.log}")

    def _master(self) -> int:
        """The master is the process that has the job's folder in its environment and in no member."""
        folder = str(self.home / "jobs" / self.job)
        return next(pid for pid in with_environment("OUTRIDER_JOB_DIR", folder) if MARK not in environment_of(pid))

    def is_prepared(self) -> bool:
        """A spare that was asked for waits."""
        return not self.spares or any(member["state"] == "spare" for member in self.status()["members"])

    def is_first(self, worker: int) -> bool:
        """No member is special."""
        return False

    def replace(self) -> None:
        """Nothing to do: that is Outrider's part."""

    def tree_of(self, worker: int) -> list[int]:
        """Every process of the member that a worker process belongs to: they all carry its mark."""
        return with_environment(MARK, environment_of(worker)[MARK])

    def lose(self, worker: int) -> float:
        """Kill the member; says when."""
        return self._signal_member(worker, signal.SIGKILL)

    def freeze(self, worker: int) -> float:
        return self._signal_member(worker, signal.SIGSTOP)

    def _signal_member(self, worker: int, number: signal.Signals) -> float:
        """Signal all processes of a member, again for those forked meanwhile, until there are none left."""
        mark, reached = environment_of(worker)[MARK], set[int]()
        moment = 0.0
        while fresh := set(with_environment(MARK, mark)) - reached:
            moment = moment or time.time()
            send_all(fresh, number)
            reached |= fresh
        return moment

    def is_alive(self) -> bool:
        return self._run is not None and self._run.poll() is None

    def stop(self) -> None:
        """End the job; what is left of it (frozen members) is found by the marker in its environment."""
        assert self._run is not None
        if self.is_alive():
            self._run.send_signal(signal.SIGINT)
        try:
            self._run.wait(timeout=30)
        except subprocess.TimeoutExpired:
            send_all(descendants(self._run.pid), signal.SIGKILL)
            self._run.wait()
        finally:
            send_all(with_environment("OUTRIDER_HOME", str(self.home)), signal.SIGKILL)
