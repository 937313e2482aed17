"""torchrun as the peer: n agents of one process each, as on n nodes, in the variant that recovers best.

TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 is that variant (measured: with the default, a crash is not recovered from in
120 s, because the agents share one store in which keys of the failed round stay). An agent starts its worker in a
session of its own, so a lost node is every descendant of its agent.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from measure.processes import descendants, send_all


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class TorchrunJob:
    """One job of torchrun. `started` is when the commands were given."""

    nodes: int
    script: list[str]
    log: Path
    minimum: int | None = None
    """The least number of nodes with which it continues; None: all nodes."""
    spares: int = 0
    """Agents more than the world has room for: torchrun keeps them waiting."""
    started: float = 0.0
    _port: int = field(default_factory=free_port)
    _agents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        self.started = time.time()
        self._agents = [self._start_agent() for _ in range(self.nodes + self.spares)]

    def is_prepared(self) -> bool:
        """torchrun does not say whether an agent waits; its process and a rendezvous' time have to do."""
        return len(self._agents) == self.nodes or time.time() > self.started + 20

    def _start_agent(self) -> subprocess.Popen[bytes]:
        nnodes = str(self.nodes) if self.minimum is None else f"{self.minimum}:{self.nodes}"
        command = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nnodes}", "--nproc-per-node=1"]
        command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self._port}", f"--rdzv-id=bench-{self._port}"]
        command += ["--local-addr=127.0.0.1", "--max-restarts=10", *self.script]
        environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def tree_of(self, worker: int) -> list[int]:
        """The whole tree of the node that a worker process belongs to."""
        for agent in self._agents:
            if worker in (tree := descendants(agent.pid)):
                return tree
        raise LookupError(f"no agent has the worker {worker}")

    def is_first(self, worker: int) -> bool:
        """Whether its node hosts the rendezvous, without which the job cannot continue."""
        return worker in descendants(self._agents[0].pid)

    def lose(self, worker: int) -> float:
        """Kill the node that the worker is on; says when."""
        tree = self.tree_of(worker)
        moment = time.time()
        send_all(tree, signal.SIGKILL)
        return moment

    def freeze(self, worker: int) -> float:
        tree = self.tree_of(worker)
        moment = time.time()
        send_all(tree, signal.SIGSTOP)
        return moment

    def replace(self) -> None:
        """What an operator would do at once: start another node."""
        self._agents.append(self._start_agent())

    def is_alive(self) -> bool:
        return all(agent.poll() is None for agent in self._agents[:1])

    def stop(self) -> None:
        for agent in self._agents:
            tree = descendants(agent.pid)
            send_all(tree, signal.SIGKILL)
            agent.wait(timeout=30)
