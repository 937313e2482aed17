"""Derives the job from the flags of `outrider run`, and checks it before anything is started.

If both outrider and the launcher in the command after `--` give a size, both must be equal: a guess would be wrong half
of the time, and the user would notice it hours later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from outrider.cli import job_dirs
from outrider.cli.errors import UserError
from outrider.cli.flags import flags_of
from outrider.cli.run import gpus, launcher_flags, ps_flags, size_flags
from outrider.cli.run.request import Request
from outrider.cli.run.size_flags import Members
from outrider.cli.run.trainer_command import trainer_command
from outrider.master.core import quantities
from outrider.master.core.k8s.values import chaos
from outrider.master.local.sandbox.cgroups import Limits


def request_of(
    words: tuple[str, ...],
    after_dashes: bool,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    discover: gpus.Discovery = gpus.discovered,
) -> Request:
    """The job that these words and flags describe, or an error that names the flag and what its value must be."""
    given = Request(**{each.name: flags[each.name] for each in flags_of(Request)})
    given = replace(given, tasks=ps_flags.size(flags), verbosity=_verbosity(flags))
    given = replace(given, limits=_limits(given))
    command = trainer_command(words, after_dashes, given, environ)
    inside = launcher_flags.read(command, environ) if after_dashes else launcher_flags.Inner()
    size = given.tasks.workers if given.tasks is not None else given.nnodes
    members = launcher_flags.agreed("--nnodes", size, inside.nnodes, command) or Members(1, 1)
    is_divided = given.share_gpus == "on" and given.tasks is None
    dividing = gpus.Dividing(environ, discover, members.most if is_divided else 1)
    ours, theirs = (size_flags.counted(each, dividing.a_member) for each in (given.nproc_per_node, inside.nproc))
    nproc = launcher_flags.agreed("--nproc-per-node", ours, theirs, command) or 1
    shares, about_gpus = dividing.shares(nproc)
    launcher_flags.agreed("--max-restarts", given.max_restarts, inside.max_restarts, command)
    _check_chaos(given, members)
    _check_memory(given)
    _check_scaling(given, members)
    _check_stdin(given, members.most * nproc)
    return replace(
        given,
        name=job_dirs.checked_name(given.job) if given.job is not None else _named_after(words, given.module),
        command=command,
        members=members,
        nproc=ours,
        threads=0 if given.tasks else size_flags.threads(members.most * nproc, given.limits, nproc, environ),
        needless=(*inside.needless, *inside.ineffective),
        gpus=shares,
        about_gpus=about_gpus,
    )


def check_place(request: Request) -> None:
    """Make sure that the job can live on this machine: writable folders, a free name, enough open files."""
    job_dirs.check_writable(job_dirs.home(), "OUTRIDER_HOME")
    for folder, flag in ((request.log_dir, "--log-dir"), (request.migration_dir, "--migration-dir")):
        if folder is not None:
            job_dirs.check_writable(folder, flag)
    job_dirs.check_socket_paths(request.name)
    job_dirs.check_free(request.name)
    size_flags.check_open_files(request.most_members, isolated=request.limits is not None)


def _verbosity(flags: Mapping[str, Any]) -> str:
    given = [name for name in ("quiet", "verbose", "log_json") if flags[name]]
    if len(given) > 1:
        both = " and ".join(f"--{name.replace('_', '-')}" for name in given[:2])
        raise click.UsageError(f"{both}: must not be used together; give one of them")
    return given[0].removeprefix("log_") if given else "normal"


def _limits(given: Request) -> Limits | None:
    if not given.isolate:
        for flag, value in (("--member-cpus", given.member_cpus), ("--member-memory", given.member_memory)):
            if value is not None:
                raise UserError(f"{flag}: only an isolated member can be limited; give --isolate too")
        return None
    from outrider.master.local.sandbox.isolation import check_tools  # late: only --isolate needs asyncio here
    from outrider.master.local.sandbox.namespaces import IsolationError

    try:
        check_tools()
    except IsolationError as impossible:
        raise UserError(f"--isolate: {impossible}") from impossible
    return Limits(given.member_cpus, given.member_memory)


def _named_after(words: tuple[str, ...], module: bool) -> str:
    """The name of a job without --job: that of its module, its script, else its program."""
    scripts = [word for word in words if word.endswith(".py")]
    return job_dirs.name_from(words[0] if module or not scripts else scripts[0])


def _check_scaling(given: Request, members: Members) -> None:
    if given.scaling and members.fewest == members.most:
        raise UserError(f"--nnodes {members}: must be a range for --scaling, such as 1:4")
    for entry in given.scaling.get("schedule", ()):
        if not members.fewest <= entry.members <= members.most:
            raise UserError(f"--scaling '{entry.cron} = {entry.members}': members must be within --nnodes {members}")


def _check_stdin(given: Request, ranks: int) -> None:
    if given.stdin is None:
        return
    for flag, value in (("--ps", given.tasks), ("--isolate", given.limits)):
        if value is not None:
            raise UserError(f"--stdin and {flag}: must not be used together; members of such a job have no input")
    if given.stdin >= ranks:
        raise UserError(f"--stdin {given.stdin}: must be a rank of the job, which has ranks 0 to {ranks - 1}")


def _check_memory(given: Request) -> None:
    if given.checkpoint_path and not given.checkpoint_memory:
        raise UserError(
            f"--checkpoint-path {given.checkpoint_path}: needs memory for its checkpoints; give --checkpoint-memory "
            f"2Gi too"
        )
    most = given.limits.memory if given.limits is not None else None
    if most is not None and given.checkpoint_memory >= most:
        size = quantities.written(given.checkpoint_memory)
        raise UserError(
            f"--checkpoint-memory {size}: must be less than --member-memory {quantities.written(most)}, which includes "
            f"it"
        )


def _check_chaos(given: Request, members: Members) -> None:
    impossible = {}
    if not given.network_check:
        impossible[chaos.BAD_NODE] = "only the node check notices it; give --network-check too"
    if given.limits is None:
        shared = "members share this machine's own network, which faults must not break; give --isolate too"
        impossible |= dict.fromkeys(chaos.NETWORK, shared)
    for each in given.chaos:
        if wrong := chaos.wrong_for(each, members.most, impossible):
            raise UserError(f"--chaos {each}: {wrong}")
