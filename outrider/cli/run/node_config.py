"""Makes the configuration of the local host from a request: the JobSpec and the trainers' environment."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import training_hooks
from outrider.cli import job_dirs
from outrider.cli.run import ps_flags
from outrider.cli.run.request import Request
from outrider.master.core.k8s.values import atomic_save, chaos, checkpoint_memory
from outrider.master.core.spec import WORKER, JobSpec
from outrider.master.local.process_specs import NodeConfig, OnOutput
from outrider.wire.ids import JobName, MemberId


def node_config(request: Request, folder: Path, on_output: OnOutput) -> NodeConfig:
    return NodeConfig(
        folder=folder,
        spec=_spec(request),
        command=request.command,
        environment=dict(os.environ),
        working_folder=job_dirs.here(),
        hooks=Path(training_hooks.HOOKS_PATH),
        launcher=Path(training_hooks.PACKAGE) / "outrider-launch",
        nproc=request.nproc,
        trainer_variables=_variables(request, folder),
        on_output=on_output,
        armed=_armed(request),
        limits=request.limits,
        stdin=subprocess.DEVNULL if request.stdin is None else 0,
        gpus=request.gpus,
    )


def _armed(request: Request) -> dict[MemberId, str]:
    """The faults to arm, by the first member of each rank index that has any."""
    of_each = ((number, chaos.of_member(request.chaos, number)) for number in range(request.members.most))
    return {MemberId(f"{WORKER}-{number}"): faults for number, faults in of_each if faults}


def _spec(request: Request) -> JobSpec:
    members, has_stdin = request.members, request.stdin is not None
    fields: dict[str, Any] = {
        "nproc": request.nproc or 1,
        "max_restarts_asked": request.max_restarts is not None,
        "is_isolated": request.limits is not None,
        "has_stdin": has_stdin,
        **request.spec_fields(),
        **({"hang_detection": False} if has_stdin else {}),
        **(ps_flags.spec_fields(request.tasks, os.environ) if request.tasks is not None else {}),
    }
    initial = members.fewest if request.scaling else members.most
    spec = JobSpec(JobName(request.name), members.fewest, members.most, initial, **fields)
    return replace(spec, replace_after=max(spec.replace_after, 2 * spec.silent_after))  # so a left-out one may return


def _variables(request: Request, folder: Path) -> dict[str, str]:
    variables = {"OUTRIDER_PREFIX": "1"} if request.tasks is None else {}  # lines of a PS job begin with the member
    if request.log_dir is not None:
        request.log_dir.mkdir(parents=True, exist_ok=True)
        variables["OUTRIDER_LOG_DIR"] = str(request.log_dir)
    else:
        variables |= {"OUTRIDER_LOG_DIR": str(folder / "logs"), "OUTRIDER_LOG_KEEP": "1"}
    if request.migration_dir is not None:
        variables["OUTRIDER_MIGRATION_DIR"] = str(request.migration_dir / request.name)
    if request.checkpoint_memory:
        variables[checkpoint_memory.VARIABLE] = str(request.checkpoint_memory)
    if request.checkpoint_path:
        variables[checkpoint_memory.PATH_VARIABLE] = request.checkpoint_path
    if request.atomic_save is not None:
        variables[atomic_save.VARIABLE] = atomic_save.of_words(request.atomic_save) or "1"
    if request.stdin is not None:
        variables["OUTRIDER_STDIN"] = str(request.stdin)
    if request.no_python:
        variables["OUTRIDER_PER_RANK"] = "1"
    if request.threads:
        variables["OMP_NUM_THREADS"] = str(request.threads)
    if request.needless:
        variables["OUTRIDER_FLAGS_TOLD"] = "1"
    return variables
