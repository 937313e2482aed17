"""Commands, environments and descriptors with which the processes of a local job are started.

Members get the same variables as pods (docs/contracts.md §1), on top of the user's own environment.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.master.core.placement.gpus import VISIBLE, Share
from outrider.master.core.spec import SIDECAR_PATIENCE, JobSpec
from outrider.master.local.member import MemberPlan
from outrider.master.local.sandbox.cgroups import Limits
from outrider.master.local.sandbox.isolation import Sandbox
from outrider.master.service import spec_json
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role

USER_VARIABLES = ("OUTRIDER_SCRIPT", "OUTRIDER_ATOMIC_SAVE", "OUTRIDER_DEBUG", "OUTRIDER_LOG")
SERVICE = ("-P", "-E", "-m")
"""Python's flags for our services: no modules are imported from the current folder or the user's PYTHONPATH."""

OnOutput = Callable[[MemberId, str, bytes], None]


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Configuration of one run of a local job."""

    folder: Path
    """The job's folder (docs/contracts.md §6), created if it does not exist."""
    spec: JobSpec
    command: tuple[str, ...]
    """The user's command, as it would be started without Outrider."""
    environment: Mapping[str, str]
    """The user's environment, to which the members' variables are added."""
    working_folder: Path
    hooks: Path
    """Folder with `sitecustomize.py` that is put on the trainer's path."""
    launcher: Path
    """Path of `outrider-launch`, which is put before the command."""
    nproc: int | None = None
    """Worker processes per member; None: the trainer's own launcher reports the number."""
    trainer_variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Further variables of the trainer: OUTRIDER_PREFIX, OUTRIDER_LOG_DIR, OUTRIDER_PER_RANK, OMP_NUM_THREADS."""
    on_output: OnOutput | None = None
    """Called with member, `stdout` or `stderr`, and a line; None: trainers inherit the command's output."""
    armed: Mapping[MemberId, str] = dataclasses.field(default_factory=dict)
    """Faults of members from their start (`outrider run --chaos`); a replacement has another id, so no fault."""
    limits: Limits | None = None
    """Limits of each member, which then gets its own network, pids and cgroup; None: members run on the host."""
    stdin: int = subprocess.DEVNULL
    """Standard input of the trainers: a descriptor that OUTRIDER_STDIN gives to one rank."""
    gpus: tuple[Share, ...] = ()
    """GPUs by rank index (`outrider.master.core.placement.gpus`); empty: members have the command's GPUs."""
    python: str = sys.executable


@dataclass(frozen=True, slots=True)
class Plans:
    """Plans of the processes of one run of a job."""

    config: NodeConfig
    job_uid: str
    master_key: str
    """The master's public key."""
    lifeline: int
    """Read end of the lifeline's pipe."""

    def service(self, name: str) -> tuple[str, ...]:
        """The command that starts the `master` or `sidecar`."""
        return (self.config.python, *SERVICE, f"outrider.{name}")

    def master_environment(self, endpoint: str) -> dict[str, str]:
        folder = self.config.folder
        return {
            **without_ours(self.config.environment),
            "OUTRIDER_PLATFORM": "local",
            "OUTRIDER_JOB": self.config.spec.name,
            "OUTRIDER_JOB_UID": self.job_uid,
            "OUTRIDER_JOB_DIR": str(folder),
            "OUTRIDER_SPEC": spec_json.document_of(self.config.spec),
            "OUTRIDER_BIND": endpoint,
            "OUTRIDER_MASTER_KEY_FILE": str(folder / "master.key"),
            "OUTRIDER_TOKEN_FILE": str(folder / "token"),
            "OUTRIDER_NODE_SOCKET": str(folder / "node.sock"),
            "OUTRIDER_LIFELINE_FD": str(self.lifeline),
        }

    def member(
        self, member: MemberId, uid: PodUid, role: Role, rank_index: RankIndex | None, endpoint: str
    ) -> MemberPlan:
        """The plan of a member that runs on the host."""
        config = self.config
        folder = config.folder / "members" / member
        marks = {
            "OUTRIDER_DIR": str(folder),
            "OUTRIDER_POD_UID": uid,
            "OUTRIDER_JOB_UID": self.job_uid,
            **({} if config.nproc is None else {"OUTRIDER_NPROC": str(config.nproc)}),
            **({"OUTRIDER_GPUS": ";".join(map(",".join, config.gpus))} if config.gpus else {}),
        }
        base = {**without_ours(config.environment), **marks}
        return MemberPlan(
            member=member,
            uid=uid,
            role=role,
            rank_index=rank_index,
            folder=folder,
            sidecar_command=self.service("sidecar"),
            sidecar_environment={**base, **self._sidecar_variables(member, role, rank_index, endpoint)},
            trainer_command=(str(config.launcher), *config.command),
            trainer_environment={**base, **self._trainer_variables(member), **self._gpus_of(rank_index)},
            trainer_folder=config.working_folder,
            lifeline=self.lifeline,
            on_output=config.on_output,
            stdin=config.stdin,
            sandbox=None,
        )

    def _trainer_variables(self, member: MemberId) -> dict[str, str]:
        config = self.config
        chaos = {"OUTRIDER_CHAOS": config.armed[member]} if member in config.armed else {}
        patience = {"OUTRIDER_PATIENCE": str(SIDECAR_PATIENCE)}
        logs = config.trainer_variables.get("OUTRIDER_LOG_DIR")
        own = {"OUTRIDER_LOG_DIR": f"{logs}/{member}"} if logs and config.spec.is_ps else {}  # each has a rank 0
        return {"OUTRIDER_HOOKS": str(config.hooks), **patience, **config.trainer_variables, **own, **chaos}

    def _gpus_of(self, rank_index: RankIndex | None) -> dict[str, str]:
        """The GPUs of code that runs before the first generation (node check, imports), if the rank index is known.

        Worker processes get theirs from the sidecar, as the member may have another rank index by then.
        """
        shares = self.config.gpus
        return {VISIBLE: ",".join(shares[rank_index])} if rank_index is not None and rank_index < len(shares) else {}

    def _sidecar_variables(
        self, member: MemberId, role: Role, rank_index: RankIndex | None, endpoint: str
    ) -> dict[str, str]:
        return {
            "OUTRIDER_PLATFORM": "local",
            "OUTRIDER_JOB": self.config.spec.name,
            "OUTRIDER_MEMBER": member,
            "OUTRIDER_ROLE": role,
            "OUTRIDER_RANK_INDEX": "" if rank_index is None else str(rank_index),
            "OUTRIDER_MASTER": endpoint,
            "OUTRIDER_MASTER_KEY": self.master_key,
            "OUTRIDER_TOKEN_FILE": str(self.config.folder / "token"),
            "OUTRIDER_ADDRESS": "127.0.0.1",
            "OUTRIDER_LIFELINE_FD": str(self.lifeline),
        }


def housed(plan: MemberPlan, sandbox: Sandbox) -> MemberPlan:
    """The plan of the same member in its own sandbox."""
    environment = {**plan.sidecar_environment, "OUTRIDER_ADDRESS": sandbox.address}
    return dataclasses.replace(plan, sandbox=sandbox, sidecar_environment=environment)


def without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without an outer job's variables, which a job inside a job must not inherit; users' own stay."""
    return {
        name: value for name, value in environment.items() if not name.startswith("OUTRIDER_") or name in USER_VARIABLES
    }
