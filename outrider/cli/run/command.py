"""`outrider run`: host a job on this machine, show what happens to it, and end with its exit code.

torchrun's command line works here as it is: both spellings of every flag, its sizes, its rendezvous flags. Everything
after SCRIPT belongs to the script; after `--` comes any command, run once per member.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from outrider.cli import job_dirs, rule_file
from outrider.cli.run import chaos_flag, hang_flag, isolation_flags, metrics_flag, ps_flags, scaling_flag, size_flags
from outrider.cli.run.request import LONGEST_SILENCE, MOST_RESTARTS, Request, Wishes, request_for
from outrider.cli.run.slurm import about_slurm
from outrider.cli.run.torchrun_flags import accepted, both_spellings, not_needed
from outrider.cli.text import warning

Function = TypeVar("Function", bound=Callable[..., Any])


class _RunCommand(click.Command):
    """Keeps whether the positional arguments came after a `--`, which click takes away."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as unknown:
            name = unknown.option_name
            raise click.NoSuchOption(name, possibilities=self._near(name, ctx), ctx=ctx) from unknown
        words = ctx.params.get("words", ())
        ctx.params["after_dashes"] = len(given) > len(words) and given[-len(words) - 1] == "--" and bool(words)
        return rest

    def _near(self, name: str, context: click.Context) -> list[str]:
        """Flags of ours that may be meant: click names any that shares some letters, those without effect too."""
        shown = [each for each in self.get_params(context) if isinstance(each, click.Option) and not each.hidden]
        return get_close_matches(name, [each.opts[0] for each in shown], cutoff=0.75)


def flag(name: str, *short: str, **settings: Any) -> Callable[[Function], Function]:
    """An option in both spellings, `--max-restarts` and `--max_restarts`; the help shows the first."""
    return click.option(*both_spellings(name), *short, name.replace("-", "_"), **settings)


@click.command(cls=_RunCommand, context_settings={"allow_interspersed_args": False}, options_metavar="[FLAGS]")
@flag("nnodes", metavar="N|MIN:MAX", callback=size_flags.members, help="Members (simulated nodes). Default 1.")
@flag(
    "nproc-per-node",
    metavar="N|auto|gpu|cpu",
    callback=size_flags.processes,
    help="Worker processes a member. Default: what the command's own launcher says, else 1.",
)
@flag(
    "max-restarts",
    type=click.IntRange(0, MOST_RESTARTS),
    metavar="N",
    help="In-place restarts a job; one is regained per 30 minutes without a fault. Default 10.",
)
@flag("job", metavar="NAME", help="The job's name. Default: the script's.")
@flag(
    "log-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write each rank's output also to DIR/<generation>/<rank>/{stdout,stderr}.log.",
)
@flag(
    "spares",
    type=click.IntRange(0, size_flags.MOST_MEMBERS),
    default=0,
    metavar="N",
    help="Members kept ready to replace a lost one at once. Default 0.",
)
@flag(
    "max-relaunches",
    type=click.IntRange(0, MOST_RESTARTS),
    metavar="N",
    help="Replacements of lost members a job; 0: a lost member is not replaced. Default: no limit.",
)
@flag(
    "silent-after",
    type=click.IntRange(1, LONGEST_SILENCE),
    metavar="SECONDS",
    help="Silence after which a member that nobody reaches is left out. Default 3; more on a busy machine.",
)
@flag(
    "network-check",
    is_flag=True,
    help="Measure members before they train: a matmul and an all-gather in pairs; who fails is replaced.",
)
@flag(
    "exclude-straggler", is_flag=True, help="Replace members that are too slow: in the node check, or while training."
)
@flag(
    "elastic-data",
    is_flag=True,
    help="Go on in the data where the loaded checkpoint was saved, in any world; torch's DistributedSampler alone.",
)
@flag(
    "keep-global-batch",
    is_flag=True,
    help="Follow the world's size with the batch sizes, so that the global batch stays that of the first world.",
)
@flag(
    "require-resume",
    is_flag=True,
    help="End the job if the script starts over although it has saved a checkpoint, before it saves again.",
)
@flag(
    "chaos",
    multiple=True,
    callback=chaos_flag.armed,
    metavar="FAULT@rank-index=N",
    help="Arm a fault before the start, as cpu-load=90 or bad-node; what replaces this member is well.",
)
@flag(
    "isolate",
    is_flag=True,
    help="Give each member a network, pids and a cgroup of its own (root only), so that its network can be broken too.",
)
@flag(
    "member-cpus",
    type=float,
    metavar="N",
    callback=isolation_flags.cpus,
    help="CPUs of an isolated member's trainer, as 0.5.",
)
@flag(
    "member-memory",
    metavar="SIZE",
    callback=isolation_flags.memory,
    help="Memory of an isolated member's trainer, as 1Gi.",
)
@flag(
    "hang-after",
    metavar="SECONDS|off",
    callback=hang_flag.hang_limits,
    help="How long training may make no step before its ranks are asked why and begin again; PHASE=SECONDS,... for "
    "step, init, checkpoint, eval. Default step=60,init=600,checkpoint=600,eval=600; what was slow before has longer.",
)
@flag(
    "rules",
    metavar="FILE",
    type=click.Path(path_type=Path),
    callback=rule_file.option,
    help="What to do about exit codes and lines of the ranks' output: recovery.rules as an ElasticJob has them.",
)
@flag(
    "migration-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where scripts that use training_hooks.migrator save their state before planned moves; of this job DIR/<job>.",
)
@flag(
    "checkpoint-memory",
    metavar="SIZE",
    callback=size_flags.checkpoint_memory,
    help="Memory of each member, as 2Gi, in which training_hooks.checkpoint keeps the newest checkpoints.",
)
@flag(
    "checkpoint-path",
    metavar="FILE",
    callback=size_flags.checkpoint_path,
    help="What the script saves there by torch.save is kept in that memory, and written to FILE in the background.",
)
@flag(
    "save-signal",
    metavar="SIGNAL",
    callback=size_flags.save_signal,
    help="The script has a handler of its own for it, as SIGUSR1, which saves: ranks are sent it before planned moves.",
)
@flag(
    "atomic-save",
    type=click.Choice(["true", "false", "required"]),
    default=None,
    help="Whether a save to a path is whole or not at all: where there is room for two files, never, or else it fails.",
)
@flag(
    "scaling",
    metavar="throughput|efficiency[,SETTING=...]|schedule;CRON=N[;...]",
    callback=scaling_flag.scaling,
    help="The job finds its own size within --nnodes MIN:MAX, beginning with MIN, from what its steps show. Settings: "
    "min-gain=0.5 (what each further member has to add, in what one makes), cooldown=30s, evaluation=30m. "
    "schedule: by the clock, as 'schedule; zone=Europe/Berlin; 0 8 * * 1-5 = 2; 0 20 * * * = 8'.",
)
@flag(
    "metrics",
    metavar="PATTERN|default",
    callback=metrics_flag.pattern,
    help="Read epoch, step, latency, latency_ms, rate, loss, accuracy, noise from rank 0's log, by a regular "
    "expression with groups of these names; default: lines of PyTorch's imagenet example. --scaling measures by them "
    "where it sees no steps.",
)
@flag(
    "share-gpus",
    type=click.Choice(["on", "off"]),
    default="on",
    help="Whether members share out the GPUs, each with its part of CUDA_VISIBLE_DEVICES, or all see all. Default on.",
)
@flag(
    "python", metavar="PYTHON", help="The script's Python. Default: PYTHON_EXEC, an active virtual environment's, ours."
)
@click.option("-q", "--quiet", is_flag=True, help="Of Outrider's own lines only what goes wrong, and the summary.")
@click.option("-v", "--verbose", is_flag=True, help="Every event, with where members meet, and all tracebacks.")
@flag("log-json", is_flag=True, help="Outrider's own lines as JSON lines, as `outrider events --json` shows them.")
@flag(
    "stdin",
    type=click.IntRange(0),
    metavar="RANK",
    help="This rank has the standard input, as for pdb and input(); nobody is taken for hung meanwhile.",
)
@ps_flags.options
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module, as in `python -m`.")
@flag("no-python", is_flag=True, help="SCRIPT is a program, run once per worker process.")
@accepted
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]... | -- COMMAND...")
def run(words: tuple[str, ...], after_dashes: bool, **flags: Any) -> None:
    """Run a training job on this one machine and keep it running.

    For several machines there is Kubernetes; within Slurm it is one node's job.

    SCRIPT is a Python script, run unchanged in every worker process; ARGS are its own.
    """
    request = _request(words, after_dashes, flags)
    for line in [*about_slurm(os.environ), *not_needed(flags, request.needless), *rule_file.about_nodes(request.rules)]:
        click.echo(json.dumps(warning(line)) if request.telling == "json" else f"outrider: {line}", err=True)
    from outrider.cli.run.host import host  # late: a command line that is wrong should be told at once

    sys.exit(host(request))


def _telling(flags: dict[str, Any]) -> str:
    asked = [name for name in ("quiet", "verbose", "log_json") if flags[name]]
    if len(asked) > 1:
        both = " and ".join(f"--{name.replace('_', '-')}" for name in asked[:2])
        raise click.UsageError(f"{both}: say one or the other")
    return asked[0].removeprefix("log_") if asked else "normal"


def _request(words: tuple[str, ...], after_dashes: bool, flags: dict[str, Any]) -> Request:
    wishes = Wishes(
        nnodes=flags["nnodes"],
        ps=ps_flags.size(flags),
        nproc=flags["nproc_per_node"],
        max_restarts=flags["max_restarts"],
        max_relaunches=flags["max_relaunches"],
        spares=flags["spares"],
        silent_after=flags["silent_after"],
        hang_after=flags["hang_after"],
        job=flags["job"],
        log_dir=flags["log_dir"],
        telling=_telling(flags),
        stdin=flags["stdin"],
        python=flags["python"],
        module=flags["module"],
        no_python=flags["no_python"],
        network_check=flags["network_check"],
        exclude_straggler=flags["exclude_straggler"],
        elastic_data=flags["elastic_data"],
        keep_global_batch=flags["keep_global_batch"],
        require_resume=flags["require_resume"],
        chaos=flags["chaos"],
        rules=flags["rules"],
        migration_dir=flags["migration_dir"],
        save_signal=flags["save_signal"],
        atomic_save=flags["atomic_save"],
        scaling=flags["scaling"],
        metrics_pattern=flags["metrics"],
        checkpoint_memory=flags["checkpoint_memory"],
        checkpoint_path=flags["checkpoint_path"],
        share_gpus=flags["share_gpus"] == "on",
        limits=isolation_flags.limits(flags["isolate"], flags["member_cpus"], flags["member_memory"]),
    )
    request = request_for(words, after_dashes, wishes, os.environ)
    job_dirs.check_writable(job_dirs.home(), "OUTRIDER_HOME")
    if request.log_dir is not None:
        job_dirs.check_writable(request.log_dir, "--log-dir")
    if request.migration_dir is not None:
        job_dirs.check_writable(request.migration_dir, "--migration-dir")
    job_dirs.check_socket_paths(request.job)
    job_dirs.check_free(request.job)
    size_flags.check_open_files(request.most_members, isolated=request.limits is not None)
    return request
