"""What `outrider run` was asked for, as one value: a field a flag, then what follows from them (`run.resolve`)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from outrider.cli import job_dirs, rule_file
from outrider.cli.flags import flag
from outrider.cli.run import flag_values, scaling_flag, size_flags
from outrider.cli.run.flag_values import SpecFields
from outrider.cli.run.ps_flags import PsSize
from outrider.cli.run.size_flags import MOST_MEMBERS, Members, Processes
from outrider.master.core.checkpoints import save_signal as checkpoints_save_signal
from outrider.master.core.k8s.values import checkpoint_memory as memory
from outrider.master.core.k8s.values.chaos import Armed
from outrider.master.core.placement.gpus import Share
from outrider.master.core.spec import Rule
from outrider.master.local.sandbox.cgroups import Limits

PATH = click.Path(path_type=Path)
BUDGET = click.IntRange(0, 1_000_000)
SILENCE = click.IntRange(1, 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One command line of `outrider run`; None where the user said nothing."""

    # Of each flag its text, then its settings in one line.
    # fmt: off
    nnodes: Members | None = flag(
        "Members (simulated nodes). Default 1.", metavar="N|MIN:MAX", parse=size_flags.parsed_members
    )
    nproc_per_node: Processes | None = flag(
        "Worker processes a member. Default: what the command's own launcher says, else 1.",
        metavar="N|auto|gpu|cpu", parse=size_flags.parsed_processes
    )
    max_restarts: int | None = flag(
        "In-place restarts a job; one is regained per 30 minutes without a fault. Default 10.",
        metavar="N", type=BUDGET, spec=True
    )
    job: str | None = flag("The job's name. Default: the script's.", metavar="NAME")
    log_dir: Path | None = flag(
        "Write each rank's output also to DIR/<generation>/<rank>/{stdout,stderr}.log.",
        metavar="DIR", type=PATH, parse=job_dirs.absolute
    )
    spares: int = flag(
        "Members kept ready to replace a lost one at once. Default 0.",
        metavar="N", type=click.IntRange(0, MOST_MEMBERS), default=0, spec=True
    )
    max_relaunches: int | None = flag(
        "Replacements of lost members a job; 0: a lost member is not replaced. Default: no limit.",
        metavar="N", type=BUDGET, spec=True
    )
    silent_after: float | None = flag(
        "Silence after which a member that nobody reaches is left out. Default 3; more on a busy machine.",
        metavar="SECONDS", type=SILENCE, parse=float, spec=True
    )
    network_check: bool = flag(
        "Measure members before they train: a matmul and an all-gather in pairs; who fails is replaced.",
        is_flag=True, spec="node_check"
    )
    exclude_straggler: bool = flag(
        "Replace members that are too slow: in the node check, or while training.",
        is_flag=True, spec="exclude_stragglers"
    )
    elastic_data: bool = flag(
        "Go on in the data where the loaded checkpoint was saved, in any world; torch's DistributedSampler alone.",
        is_flag=True, spec=True
    )
    keep_global_batch: bool = flag(
        "Follow the world's size with the batch sizes, so that the global batch stays that of the first world.",
        is_flag=True, spec=True
    )
    require_resume: bool = flag(
        "End the job if the script starts over although it has saved a checkpoint, before it saves again.",
        is_flag=True, spec=True
    )
    chaos: tuple[Armed, ...] = flag(
        "Arm a fault before the start, as cpu-load=90 or bad-node; what replaces this member is well.",
        metavar="FAULT@rank-index=N", multiple=True, parse=flag_values.armed
    )
    isolate: bool = flag(
        "Give each member a network, pids and a cgroup of its own (root only), so that its network can be broken too.",
        is_flag=True
    )
    member_cpus: float | None = flag(
        "CPUs of an isolated member's trainer, as 0.5.", metavar="N", type=float, parse=flag_values.member_cpus
    )
    member_memory: int | None = flag(
        "Memory of an isolated member's trainer, as 1Gi.", metavar="SIZE", parse=flag_values.member_memory
    )
    hang_after: SpecFields = flag(
        "How long training may make no step before its ranks are asked why and begin again; PHASE=SECONDS,... for "
        "step, init, checkpoint, eval. Default step=60,init=600,checkpoint=600,eval=600; what was slow before has "
        "longer.",
        metavar="SECONDS|off", parse=flag_values.hang_limits, absent={}
    )
    rules: tuple[Rule, ...] = flag(
        "What to do about exit codes and lines of the ranks' output: recovery.rules as an ElasticJob has them.",
        metavar="FILE", type=PATH, parse=rule_file.rules_of, absent=(), spec=True
    )
    migration_dir: Path | None = flag(
        "Where scripts that use training_hooks.migrator save their state before planned moves; of this job DIR/<job>.",
        metavar="DIR", type=PATH, parse=job_dirs.absolute
    )
    checkpoint_memory: int = flag(
        "Memory of each member, as 2Gi, in which training_hooks.checkpoint keeps the newest checkpoints.",
        metavar="SIZE", parse=memory.parsed, absent=0
    )
    checkpoint_path: str = flag(
        "What the script saves there by torch.save is kept in that memory, and written to FILE in the background.",
        metavar="FILE", parse=flag_values.checkpoint_path, absent=""
    )
    save_signal: str = flag(
        "The script has a handler of its own for it, as SIGUSR1, which saves: ranks are sent it before planned moves.",
        metavar="SIGNAL", parse=checkpoints_save_signal.parsed, absent="", spec=True
    )
    atomic_save: str | None = flag(
        "Whether a save to a path is whole or not at all: where there is room for two files, never, or else it fails.",
        type=click.Choice(["true", "false", "required"])
    )
    scaling: SpecFields = flag(
        "The job finds its own size within --nnodes MIN:MAX, beginning with MIN, from what its steps show. Settings: "
        "min-gain=0.5 (what each further member has to add, in what one makes), cooldown=30s, evaluation=30m. "
        "schedule: by the clock, as 'schedule; zone=Europe/Berlin; 0 8 * * 1-5 = 2; 0 20 * * * = 8'.",
        metavar="throughput|efficiency[,SETTING=...]|schedule;CRON=N[;...]", parse=scaling_flag.parsed, absent={}
    )
    metrics: str = flag(
        "Read epoch, step, latency, latency_ms, rate, loss, accuracy, noise from rank 0's log, by a regular "
        "expression with groups of these names; default: lines of PyTorch's imagenet example. --scaling measures by "
        "them where it sees no steps.",
        metavar="PATTERN|default", parse=flag_values.metrics_pattern, absent="", spec="metrics_pattern"
    )
    share_gpus: str = flag(
        "Whether members share out the GPUs, each with its part of CUDA_VISIBLE_DEVICES, or all see all. Default on.",
        type=click.Choice(["on", "off"]), default="on"
    )
    python: str | None = flag(
        "The script's Python. Default: PYTHON_EXEC, an active virtual environment's, ours.", metavar="PYTHON"
    )
    quiet: bool = flag("Of Outrider's own lines only what goes wrong, and the summary.", "-q", is_flag=True)
    verbose: bool = flag("Every event, with where members meet, and all tracebacks.", "-v", is_flag=True)
    log_json: bool = flag("Outrider's own lines as JSON lines, as `outrider events --json` shows them.", is_flag=True)
    stdin: int | None = flag(
        "This rank has the standard input, as for pdb and input(); nobody is taken for hung meanwhile.",
        metavar="RANK", type=click.IntRange(0)
    )
    ps: int | None = flag(
        "Parameter servers: each member gets its TF_CONFIG.", metavar="N", type=click.IntRange(1, MOST_MEMBERS)
    )
    workers: Members | None = flag(
        "Workers of a PS job. Default 1.", metavar="N|MIN:MAX", parse=size_flags.parsed_members
    )
    chief: bool = flag("A PS job has a chief, beside its workers.", is_flag=True)
    evaluator: bool = flag("A PS job has an evaluator.", is_flag=True)
    module: bool = flag("SCRIPT is a module, as in `python -m`.", "-m", is_flag=True)
    no_python: bool = flag("SCRIPT is a program, run once per worker process.", is_flag=True)
    # fmt: on

    name: str = ""
    """The job's."""
    command: tuple[str, ...] = ()
    """It is run once per member; with --no-python once per local rank."""
    members: Members = Members(1, 1)
    """Those of rank indexes; of a PS job its workers."""
    nproc: int | None = None
    """Worker processes a member; None: the trainer's own launcher says it, else 1."""
    telling: str = "normal"
    """How much Outrider says of its own: quiet, normal, verbose, json."""
    tasks: PsSize | None = None
    """Of a job with parameter servers; None: an all-reduce job."""
    limits: Limits | None = None
    """Of each member, which is isolated then; None: members are not."""
    threads: int = 0
    """Of each rank, for OMP_NUM_THREADS; 0: it stays as it is."""
    needless: tuple[str, ...] = ()
    """Flags of the inner launcher that mean nothing here."""
    gpus: tuple[Share, ...] = ()
    """By rank index; empty: every member has the GPUs that the command has."""
    about_gpus: tuple[str, ...] = ()
    """What is to be said of that: who has which, then what may go wrong."""

    @property
    def most_members(self) -> int:
        return self.tasks.most if self.tasks is not None else self.members.most + self.spares

    def spec_fields(self) -> SpecFields:
        """What a JobSpec takes as it is; where the user said nothing, its own default stays."""
        found: dict[str, Any] = {}
        for each in fields(self):
            value, to = getattr(self, each.name), each.metadata.get("spec")
            if to and value is not None:
                found[each.name if to is True else to] = value
        return {**found, **self.hang_after, **self.scaling}
