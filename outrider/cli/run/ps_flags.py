"""Jobs with parameter servers: `outrider run --ps 2 --workers 3 --chief --evaluator train.py`.

Each member gets a port of this machine for the whole life of the job, so that one that replaces another is reached
where that one was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.cli.errors import UserError
from outrider.cli.run.size_flags import Members
from outrider.runtime.ports import NoFreePort, find_port

HOST = "127.0.0.1"
NOT_WITH_PS = {
    "nnodes": "a PS job says --workers MIN:MAX",
    "nproc_per_node": "each member of a PS job is one process",
    "spares": "no member stands by in a PS job",
    "network_check": "it compares members of one world",
    "exclude_straggler": "it compares members of one world",
    "elastic_data": "it is torch's",
    "keep_global_batch": "it is torch's",
    "require_resume": "it is torch's",
    "scaling": "a PS job has the size that its user gives it",
    "isolate": "members of a PS job share this machine's network",
    "migration_dir": "it is torch's",
    "checkpoint_memory": "it is torch's",
    "save_signal": "the chief alone saves, every few steps",
}
"""What means nothing there, and why; what would be ignored in silence would be found out hours later."""


@dataclass(frozen=True, slots=True)
class PsSize:
    """A job with parameter servers."""

    ps: int
    workers: Members
    chief: bool = False
    evaluator: bool = False

    @property
    def most(self) -> int:
        """Members that there may be at once."""
        return self.ps + self.workers.most + self.chief + self.evaluator

    def __str__(self) -> str:
        parts = [f"{self.ps} ps", *(["chief"] if self.chief else []), f"{self.workers} workers"]
        return ", ".join([*parts, *(["evaluator"] if self.evaluator else [])])


def size(flags: Mapping[str, Any]) -> PsSize | None:
    """What the flags ask for; None: an all-reduce job."""
    ps, workers = flags["ps"], flags["workers"]
    if ps is None:
        given = [f"--{name}" for name in ("workers", "chief", "evaluator") if flags[name]]
        if given:
            why = "of a job with parameter servers; say how many with --ps N (a job without has --nnodes)"
            raise UserError(f"{' and '.join(given)}: {why}")
        return None
    for name, why in NOT_WITH_PS.items():
        if flags[name]:
            raise UserError(f"--{name.replace('_', '-')} is not for a job with parameter servers: {why}")
    return PsSize(ps, workers or Members(1, 1), flags["chief"], flags["evaluator"])


def spec_fields(size: PsSize, environ: Mapping[str, str]) -> dict[str, Any]:
    """What the job's spec says of its members' addresses, and of a TF_CONFIG that the user has set."""
    addresses = _addresses(size.ps + size.workers.most + 1)
    return {
        "ps": tuple(addresses[: size.ps]),
        "workers": tuple(addresses[size.ps : -1]),
        "chief": addresses[-1] if size.chief else "",
        "has_evaluator": size.evaluator,
        "tf_config_from": "the environment of `outrider run`" if "TF_CONFIG" in environ else "",
    }


def _addresses(count: int) -> list[str]:
    """So many that differ, outside the range from which the kernel gives ports out: nobody else gets one by chance."""
    ports: set[int] = set()
    try:
        while len(ports) < count:
            ports.add(find_port())
    except NoFreePort as error:
        raise UserError(f"{count} ports are needed, one a member: {error}") from error
    return [f"{HOST}:{port}" for port in sorted(ports)]
