"""What `outrider run` was asked for, as one checked value, before anything is started.

The trainer is either a Python script or module, which is run as torchrun would run it (`python -u SCRIPT ARGS`, or
`-m`), or any command after `--`, which may be another launcher with flags of its own. Where both sides say a size, they
must say the same: a guess would be wrong half of the time and be found out hours later.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outrider.cli import job_dirs
from outrider.cli.errors import UserError
from outrider.cli.run import gpus, launcher_flags, size_flags
from outrider.cli.run.chaos_flag import Armed
from outrider.cli.run.hang_flag import HangLimits
from outrider.cli.run.ps_flags import PsSize
from outrider.cli.run.scaling_flag import Scaling
from outrider.cli.run.size_flags import Members
from outrider.master.core import quantities
from outrider.master.core.k8s.values import chaos
from outrider.master.core.placement.gpus import Share
from outrider.master.core.spec import Rule
from outrider.master.local.sandbox.cgroups import Limits
from training_hooks.command import invocation
from training_hooks.command.shell_parser import SHELLS, line_of
from training_hooks.command.torchrun_args import is_python

MOST_RESTARTS = 1_000_000
LONGEST_SILENCE = 3600
NO_INPUT = "ranks have none, and each of them reads the script anew; write it to a file, and give that"
SAYS_ITSELF = {"-h", "--help", "-V", "-VV", "--version"}
"""Options with which an interpreter reads no script."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The flags as they were given; None where the user said nothing."""

    nnodes: Members | None = None
    ps: PsSize | None = None
    nproc: size_flags.Processes | None = None
    max_restarts: int | None = None
    max_relaunches: int | None = None
    spares: int = 0
    silent_after: int | None = None
    hang_after: HangLimits | None = field(default_factory=dict)
    job: str | None = None
    log_dir: Path | None = None
    telling: str = "normal"
    stdin: int | None = None
    python: str | None = None
    module: bool = False
    no_python: bool = False
    network_check: bool = False
    exclude_straggler: bool = False
    elastic_data: bool = False
    keep_global_batch: bool = False
    require_resume: bool = False
    chaos: tuple[Armed, ...] = ()
    rules: tuple[Rule, ...] = ()
    limits: Limits | None = None
    migration_dir: Path | None = None
    save_signal: str = ""
    atomic_save: str | None = None
    checkpoint_memory: int = 0
    checkpoint_path: str = ""
    scaling: Scaling = field(default_factory=dict)
    metrics_pattern: str = ""
    share_gpus: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """A job that can be started."""

    job: str
    command: tuple[str, ...]
    nnodes: Members
    nproc: int | None
    """None: the trainer's own launcher says it, else 1."""
    per_rank: bool
    """The command is run once per local rank (--no-python), not once per member."""
    max_restarts: int | None
    max_relaunches: int | None
    spares: int
    silent_after: int | None
    """Seconds; None: the default."""
    hang_after: HangLimits | None
    """Seconds by phase, where they are not the default; None: off."""
    log_dir: Path | None
    stdin: int | None
    """The rank that has this command's standard input."""
    telling: str
    """How much Outrider says of its own: quiet, normal, verbose, json."""
    network_check: bool = False
    exclude_straggler: bool = False
    elastic_data: bool = False
    keep_global_batch: bool = False
    require_resume: bool = False
    chaos: tuple[Armed, ...] = ()
    """What is to be wrong with members from their start."""
    limits: Limits | None = None
    """Of each member, which is isolated then; None: members are not."""
    rules: tuple[Rule, ...] = ()
    migration_dir: Path | None = None
    save_signal: str = ""
    atomic_save: str | None = None
    checkpoint_memory: int = 0
    """Bytes a member."""
    checkpoint_path: str = ""
    """What the script saves there is kept in that memory."""
    scaling: Scaling = field(default_factory=dict)
    metrics_pattern: str = ""
    threads: int = 0
    """Of each rank, for OMP_NUM_THREADS; 0: it stays as it is."""
    needless: tuple[str, ...] = ()
    """Flags of the inner launcher that mean nothing here."""
    gpus: tuple[Share, ...] = ()
    """By rank index; empty: every member has the GPUs that the command has."""
    about_gpus: tuple[str, ...] = ()
    """What is to be said of that: who has which, then what may go wrong."""
    ps: PsSize | None = None
    """A job with parameter servers, whose workers are `nnodes`; None: an all-reduce job."""

    @property
    def most_members(self) -> int:
        return self.ps.most if self.ps is not None else self.nnodes.most + self.spares


def _check_schedule(wanted: Scaling, nnodes: Members) -> None:
    found = wanted.get("schedule", ())
    for entry in found if isinstance(found, tuple) else ():
        if not nnodes.fewest <= entry.members <= nnodes.most:
            raise UserError(f"--scaling: {entry.cron} = {entry.members} is not within --nnodes {nnodes}")


def _check_stdin(wishes: Wishes, nnodes: Members, nproc: int | str) -> None:
    if wishes.stdin is None:
        return
    for flag, given in (("--ps", wishes.ps is not None), ("--isolate", wishes.limits is not None)):
        if given:
            raise UserError(f"--stdin and {flag}: a member of such a job has no standard input")
    ranks = nnodes.most * nproc if isinstance(nproc, int) else None
    if ranks is not None and wishes.stdin >= ranks:
        raise UserError(f"--stdin {wishes.stdin}: the job has ranks 0 to {ranks - 1}")


def request_for(
    words: tuple[str, ...],
    after_dashes: bool,
    wishes: Wishes,
    environ: Mapping[str, str],
    discover: gpus.Discovery = gpus.discovered,
) -> Request:
    """The job that these words and flags mean, or an error that names the flag and what it may be."""
    if after_dashes:
        command = _any_command(words, wishes, environ)
    else:
        command = _script_command(words[0], words[1:], wishes, environ)
    inside = launcher_flags.read(command, environ) if after_dashes else launcher_flags.Inner()
    asked = wishes.ps.workers if wishes.ps is not None else wishes.nnodes
    nnodes = launcher_flags.agreed("--nnodes", asked, inside.nnodes, command) or Members(1, 1)
    dividing = gpus.Dividing(environ, discover, nnodes.most if wishes.share_gpus and wishes.ps is None else 1)
    asked_nproc, inner_nproc = (size_flags.counted(each, dividing.a_member) for each in (wishes.nproc, inside.nproc))
    nproc = launcher_flags.agreed("--nproc-per-node", asked_nproc, inner_nproc, command) or 1
    shares, about_gpus = dividing.shares(nproc)
    launcher_flags.agreed("--max-restarts", wishes.max_restarts, inside.max_restarts, command)
    _check_chaos(wishes, nnodes)
    _check_memory(wishes)
    if wishes.scaling and nnodes.fewest == nnodes.most:
        raise UserError(f"--scaling has nothing to find within --nnodes {nnodes}; give a range, as --nnodes 1:4")
    _check_schedule(wishes.scaling, nnodes)
    _check_stdin(wishes, nnodes, nproc)
    return Request(
        job=job_dirs.checked_name(wishes.job) if wishes.job is not None else _named_after(words, wishes.module),
        command=command,
        nnodes=nnodes,
        nproc=asked_nproc,
        per_rank=wishes.no_python,
        max_restarts=wishes.max_restarts,
        max_relaunches=wishes.max_relaunches,
        spares=wishes.spares,
        silent_after=wishes.silent_after,
        hang_after=wishes.hang_after,
        log_dir=job_dirs.here() / wishes.log_dir if wishes.log_dir else None,
        telling=wishes.telling,
        stdin=wishes.stdin,
        network_check=wishes.network_check,
        exclude_straggler=wishes.exclude_straggler,
        elastic_data=wishes.elastic_data,
        keep_global_batch=wishes.keep_global_batch,
        require_resume=wishes.require_resume,
        chaos=wishes.chaos,
        rules=wishes.rules,
        migration_dir=job_dirs.here() / wishes.migration_dir if wishes.migration_dir else None,
        checkpoint_memory=wishes.checkpoint_memory,
        checkpoint_path=wishes.checkpoint_path,
        save_signal=wishes.save_signal,
        atomic_save=wishes.atomic_save,
        scaling=wishes.scaling,
        metrics_pattern=wishes.metrics_pattern,
        threads=0 if wishes.ps else size_flags.threads(nnodes.most * nproc, wishes.limits, nproc, environ),
        limits=wishes.limits,
        gpus=shares,
        about_gpus=about_gpus,
        ps=wishes.ps,
        needless=(*inside.needless, *inside.ineffective),
    )


def _check_memory(wishes: Wishes) -> None:
    if wishes.checkpoint_path and not wishes.checkpoint_memory:
        raise UserError(
            "--checkpoint-path: saves to it are kept in memory, and none was declared; give --checkpoint-memory 2Gi too"
        )
    most = wishes.limits.memory if wishes.limits is not None else None
    if most is not None and wishes.checkpoint_memory >= most:
        given = quantities.written(wishes.checkpoint_memory)
        raise UserError(
            f"--checkpoint-memory: {given} is all that --member-memory {quantities.written(most)} gives to a member's "
            f"trainer, and its checkpoints are in it"
        )


def _check_chaos(wishes: Wishes, nnodes: Members) -> None:
    impossible = {}
    if not wishes.network_check:
        impossible[chaos.BAD_NODE] = "only the node check meets it; give --network-check too"
    if wishes.limits is None:
        shared = "members share this machine's own network, which is not broken; give --isolate too"
        impossible |= dict.fromkeys(chaos.NETWORK, shared)
    for each in wishes.chaos:
        if wrong := chaos.wrong_for(each, nnodes.most, impossible):
            raise UserError(f"--chaos {each}: {wrong}")


def trainer_python(environ: Mapping[str, str], chosen: str | None = None) -> str:
    """The script's Python: --python, PYTHON_EXEC as under torchrun, an active virtual environment's, else ours."""
    asked = chosen or environ.get("PYTHON_EXEC")
    if asked:
        found = shutil.which(asked, path=environ.get("PATH"))
        if not found:
            raise UserError(f"{'--python' if chosen else 'PYTHON_EXEC'} {asked}: there is no such program")
        return found
    active = Path(environ.get("VIRTUAL_ENV") or "/nonexistent") / "bin" / "python"
    return str(active) if os.access(active, os.X_OK) else sys.executable


def _script_command(
    script: str, arguments: tuple[str, ...], wishes: Wishes, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The command that runs a script or a module, unbuffered as under torchrun."""
    if wishes.no_python:
        if wishes.module:
            raise UserError("--no-python and --module exclude each other")
        return (_program(script, environ), *arguments)
    python = trainer_python(environ, wishes.python)
    if wishes.module:
        return (python, "-u", "-m", script, *arguments)
    _check_script(script)
    return (python, "-u", script, *arguments)


def _check_script(script: str) -> None:
    """What Python could not even open is refused here: at the ranks it would look like a fault, three times over."""
    path = Path(script)
    if not script or not path.exists():
        hint = f"; to run a command, write: outrider run -- {script} ..." if script and shutil.which(script) else ""
        raise UserError(f"there is no script {script!r} (looked in {job_dirs.here()}){hint}")
    _check_no_stream(script)
    if path.is_dir() and not (path / "__main__.py").exists():
        raise UserError(f"{script} is a folder without a __main__.py; SCRIPT is a Python file (a module: -m NAME)")
    if not os.access(path, os.R_OK):
        raise UserError(f"the script {script} cannot be read: permission denied")


def _any_command(command: tuple[str, ...], wishes: Wishes, environ: Mapping[str, str]) -> tuple[str, ...]:
    """A command after `--` as it is, once its program is known to exist."""
    if wishes.module or wishes.python:
        flag = "--module" if wishes.module else "--python"
        raise UserError(f"{flag} belongs to a script; after -- the command says itself how it is run")
    name, words = os.path.basename(command[0]), list(command)
    called = invocation.parse(words) if is_python(name) else None
    reads_none = name in SHELLS and line_of(words) == (None, [])
    if not set(words) & SAYS_ITSELF and (reads_none or (called is not None and called.kind == "stdin")):
        raise UserError(f"{' '.join(command)!r} reads its script from the standard input: {NO_INPUT}")
    if called is not None and called.kind == "script":
        _check_no_stream(called.target)
    return (_program(command[0], environ), *command[1:])


def _check_no_stream(script: str) -> None:
    path = Path(script)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{script} is no file: {NO_INPUT}")


def _program(name: str, environ: Mapping[str, str]) -> str:
    """A program as it was named, or, where PATH has none, that of the trainer's environment (its torchrun)."""
    if shutil.which(name, path=environ.get("PATH")):
        return name
    beside = Path(trainer_python(environ)).parent / name
    if os.sep in name or not os.access(beside, os.X_OK):
        raise UserError(f"there is no program {name!r} that can be executed")
    return str(beside)


def _named_after(words: tuple[str, ...], module: bool) -> str:
    """What a job is called whose user gave no name: after its module, its script, else its program."""
    scripts = [word for word in words if word.endswith(".py")]
    return job_dirs.name_from(words[0] if module or not scripts else scripts[0])
