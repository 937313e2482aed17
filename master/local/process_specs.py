"""What the processes of a local job are started with: commands, environments, descriptors.

Members are told what pods are told, under the same names (docs/contracts.md §1), on top of the user's own environment.
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
"""Neither the current folder nor the user's PYTHONPATH is where our services look for modules."""

OnOutput = Callable[[MemberId, str, bytes], None]


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """One run of a local job."""

    folder: Path
    """The job's folder (docs/contracts.md §6); made where it is missing."""
    spec: JobSpec
    command: tuple[str, ...]
    """The user's, as it would be started without us."""
    environment: Mapping[str, str]
    """The user's; what members need is put over it."""
    working_folder: Path
    hooks: Path
    """The folder that is put on the trainer's path: it holds `sitecustomize.py`."""
    launcher: Path
    """`outrider-launch`, which is put before the command."""
    nproc: int | None = None
    """None: the trainer's own launcher says it."""
    trainer_variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """More for the trainer: OUTRIDER_PREFIX, OUTRIDER_LOG_DIR, OUTRIDER_PER_RANK, OMP_NUM_THREADS."""
    on_output: OnOutput | None = None
    """Called with member, `stdout` or `stderr`, and a line; None: trainers write where the command does."""
    armed: Mapping[MemberId, str] = dataclasses.field(default_factory=dict)
    """What is wrong with a member from its start (`outrider run --chaos`); one that replaces it has another id."""
    limits: Limits | None = None
    stdin: int = subprocess.DEVNULL
    """Of the trainers: a descriptor that OUTRIDER_STDIN gives to one rank."""
    """Of each member, which then has network, pids and cgroup of its own; None: members live beside us."""
    gpus: tuple[Share, ...] = ()
    """By rank index (`outrider.master.core.placement.gpus`); empty: members have the GPUs that the command has."""
    python: str = sys.executable


@dataclass(frozen=True, slots=True)
class Plans:
    """Of one run of a job."""

    config: NodeConfig
    job_uid: str
    master_key: str
    """The public one."""
    lifeline: int
    """The end that is read."""

    def service(self, name: str) -> tuple[str, ...]:
        """The command of `master` or `sidecar`."""
        return (self.config.python, *SERVICE, f"outrider.{name}")

    def master_environment(self, endpoint: str) -> dict[str, str]:
        folder = self.config.folder
        return {
            **_without_ours(self.config.environment),
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
        """Beside us."""
        config = self.config
        folder = config.folder / "members" / member
        marks = {
            "OUTRIDER_DIR": str(folder),
            "OUTRIDER_POD_UID": uid,
            "OUTRIDER_JOB_UID": self.job_uid,
            **({} if config.nproc is None else {"OUTRIDER_NPROC": str(config.nproc)}),
            **({"OUTRIDER_GPUS": ";".join(map(",".join, config.gpus))} if config.gpus else {}),
        }
        base = {**_without_ours(config.environment), **marks}
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
        """What is measured or imported before the first generation has them too, where a rank index is known so early.
        Worker processes get their own from the sidecar: a member may have another rank index by then."""
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
    """The same member in a sandbox of its own."""
    environment = {**plan.sidecar_environment, "OUTRIDER_ADDRESS": sandbox.address}
    return dataclasses.replace(plan, sandbox=sandbox, sidecar_environment=environment)


def _without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """A job inside a job must not take the outer one's marks for its own; what users set themselves stays."""
    return {
        name: value for name, value in environment.items() if not name.startswith("OUTRIDER_") or name in USER_VARIABLES
    }
