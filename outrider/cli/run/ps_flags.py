"""Jobs with parameter servers: `outrider run --ps 2 --workers 3 --chief --evaluator train.py`.

Each member gets a port of this machine for the whole life of the job, so that its replacement is reached at the same
address.
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
    "nnodes": "use --workers MIN:MAX",
    "nproc_per_node": "each member of a PS job is one process",
    "spares": "a PS job has no spare members",
    "network_check": "it compares the members of one generation",
    "exclude_straggler": "it compares the members of one generation",
    "elastic_data": "it works with PyTorch only",
    "keep_global_batch": "it works with PyTorch only",
    "require_resume": "it works with PyTorch only",
    "scaling": "a PS job has a fixed size",
    "isolate": "members of a PS job share this machine's network",
    "migration_dir": "it works with PyTorch only",
    "checkpoint_memory": "it works with PyTorch only",
    "save_signal": "only the chief saves, every few steps",
}
"""Flags without a meaning for a PS job, and why. They are refused: a user would notice an ignored flag hours later."""


@dataclass(frozen=True, slots=True)
class PsSize:
    """The size of a job with parameter servers."""

    ps: int
    workers: Members
    chief: bool = False
    evaluator: bool = False

    @property
    def most(self) -> int:
        """The most members that there can be at once."""
        return self.ps + self.workers.most + self.chief + self.evaluator

    def __str__(self) -> str:
        parts = [f"{self.ps} ps", *(["chief"] if self.chief else []), f"{self.workers} workers"]
        return ", ".join([*parts, *(["evaluator"] if self.evaluator else [])])


def size(flags: Mapping[str, Any]) -> PsSize | None:
    """The size that the flags give; None: an all-reduce job."""
    ps, workers = flags["ps"], flags["workers"]
    if ps is None:
        given = [f"--{name}" for name in ("workers", "chief", "evaluator") if flags[name]]
        if given:
            why = "only for a job with parameter servers; give --ps N too (other jobs use --nnodes)"
            raise UserError(f"{' and '.join(given)}: {why}")
        return None
    for name, why in NOT_WITH_PS.items():
        if flags[name]:
            raise UserError(f"--{name.replace('_', '-')}: must not be used with --ps: {why}")
    return PsSize(ps, workers or Members(1, 1), flags["chief"], flags["evaluator"])


def spec_fields(size: PsSize, environ: Mapping[str, str]) -> dict[str, Any]:
    """The JobSpec's fields for the members' addresses, and for a TF_CONFIG that the user has set."""
    addresses = _addresses(size.ps + size.workers.most + 1)
    return {
        "ps": tuple(addresses[: size.ps]),
        "workers": tuple(addresses[size.ps : -1]),
        "chief": addresses[-1] if size.chief else "",
        "has_evaluator": size.evaluator,
        "tf_config_from": "the environment of `outrider run`" if "TF_CONFIG" in environ else "",
    }


def _addresses(count: int) -> list[str]:
    """`count` different addresses, with ports outside the kernel's ephemeral range, so that no other process is given
    one by chance."""
    ports: set[int] = set()
    try:
        while len(ports) < count:
            ports.add(find_port())
    except NoFreePort as error:
        raise UserError(f"the job needs {count} free ports, one per member: {error}") from error
    return [f"{HOST}:{port}" for port in sorted(ports)]
