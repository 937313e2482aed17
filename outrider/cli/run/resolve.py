"""What follows from the flags of `outrider run`, checked before anything is started.

Where both outrider and the launcher in the command after `--` say a size, they must say the same: a guess would be
wrong half of the time and be found out hours later.
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
    """The job that these words and flags mean, or an error that names the flag and what it may be."""
    asked = Request(**{each.name: flags[each.name] for each in flags_of(Request)})
    asked = replace(asked, tasks=ps_flags.size(flags), telling=_telling(flags))
    asked = replace(asked, limits=_limits(asked))
    command = trainer_command(words, after_dashes, asked, environ)
    inside = launcher_flags.read(command, environ) if after_dashes else launcher_flags.Inner()
    size = asked.tasks.workers if asked.tasks is not None else asked.nnodes
    members = launcher_flags.agreed("--nnodes", size, inside.nnodes, command) or Members(1, 1)
    is_divided = asked.share_gpus == "on" and asked.tasks is None
    dividing = gpus.Dividing(environ, discover, members.most if is_divided else 1)
    ours, theirs = (size_flags.counted(each, dividing.a_member) for each in (asked.nproc_per_node, inside.nproc))
    nproc = launcher_flags.agreed("--nproc-per-node", ours, theirs, command) or 1
    shares, about_gpus = dividing.shares(nproc)
    launcher_flags.agreed("--max-restarts", asked.max_restarts, inside.max_restarts, command)
    _check_chaos(asked, members)
    _check_memory(asked)
    _check_scaling(asked, members)
    _check_stdin(asked, members.most * nproc)
    return replace(
        asked,
        name=job_dirs.checked_name(asked.job) if asked.job is not None else _named_after(words, asked.module),
        command=command,
        members=members,
        nproc=ours,
        threads=0 if asked.tasks else size_flags.threads(members.most * nproc, asked.limits, nproc, environ),
        needless=(*inside.needless, *inside.ineffective),
        gpus=shares,
        about_gpus=about_gpus,
    )


def check_place(request: Request) -> None:
    """Make sure that this machine has a place for the job: folders, a free name, open files."""
    job_dirs.check_writable(job_dirs.home(), "OUTRIDER_HOME")
    for folder, flag in ((request.log_dir, "--log-dir"), (request.migration_dir, "--migration-dir")):
        if folder is not None:
            job_dirs.check_writable(folder, flag)
    job_dirs.check_socket_paths(request.name)
    job_dirs.check_free(request.name)
    size_flags.check_open_files(request.most_members, isolated=request.limits is not None)


def _telling(flags: Mapping[str, Any]) -> str:
    asked = [name for name in ("quiet", "verbose", "log_json") if flags[name]]
    if len(asked) > 1:
        both = " and ".join(f"--{name.replace('_', '-')}" for name in asked[:2])
        raise click.UsageError(f"{both}: say one or the other")
    return asked[0].removeprefix("log_") if asked else "normal"


def _limits(asked: Request) -> Limits | None:
    if not asked.isolate:
        for flag, value in (("--member-cpus", asked.member_cpus), ("--member-memory", asked.member_memory)):
            if value is not None:
                raise UserError(f"{flag}: only an isolated member can be limited; give --isolate too")
        return None
    from outrider.master.local.sandbox.isolation import check_tools  # late: only who isolates waits for asyncio
    from outrider.master.local.sandbox.namespaces import IsolationError

    try:
        check_tools()
    except IsolationError as impossible:
        raise UserError(f"--isolate: {impossible}") from impossible
    return Limits(asked.member_cpus, asked.member_memory)


def _named_after(words: tuple[str, ...], module: bool) -> str:
    """What a job is called whose user gave no name: after its module, its script, else its program."""
    scripts = [word for word in words if word.endswith(".py")]
    return job_dirs.name_from(words[0] if module or not scripts else scripts[0])


def _check_scaling(asked: Request, members: Members) -> None:
    if asked.scaling and members.fewest == members.most:
        raise UserError(f"--scaling has nothing to find within --nnodes {members}; give a range, as --nnodes 1:4")
    for entry in asked.scaling.get("schedule", ()):
        if not members.fewest <= entry.members <= members.most:
            raise UserError(f"--scaling: {entry.cron} = {entry.members} is not within --nnodes {members}")


def _check_stdin(asked: Request, ranks: int) -> None:
    if asked.stdin is None:
        return
    for flag, given in (("--ps", asked.tasks), ("--isolate", asked.limits)):
        if given is not None:
            raise UserError(f"--stdin and {flag}: a member of such a job has no standard input")
    if asked.stdin >= ranks:
        raise UserError(f"--stdin {asked.stdin}: the job has ranks 0 to {ranks - 1}")


def _check_memory(asked: Request) -> None:
    if asked.checkpoint_path and not asked.checkpoint_memory:
        raise UserError(
            "--checkpoint-path: saves to it are kept in memory, and none was declared; give --checkpoint-memory 2Gi too"
        )
    most = asked.limits.memory if asked.limits is not None else None
    if most is not None and asked.checkpoint_memory >= most:
        given = quantities.written(asked.checkpoint_memory)
        raise UserError(
            f"--checkpoint-memory: {given} is all that --member-memory {quantities.written(most)} gives to a member's "
            f"trainer, and its checkpoints are in it"
        )


def _check_chaos(asked: Request, members: Members) -> None:
    impossible = {}
    if not asked.network_check:
        impossible[chaos.BAD_NODE] = "only the node check meets it; give --network-check too"
    if asked.limits is None:
        shared = "members share this machine's own network, which is not broken; give --isolate too"
        impossible |= dict.fromkeys(chaos.NETWORK, shared)
    for each in asked.chaos:
        if wrong := chaos.wrong_for(each, members.most, impossible):
            raise UserError(f"--chaos {each}: {wrong}")
