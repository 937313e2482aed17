"""One command line of `outrider run` as a value: one field per flag, then what `run.resolve` derives from them."""

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
GROUPS = {
    "Command": ("module", "no_python", "python", "job", "stdin"),
    "Size": ("nnodes", "nproc_per_node", "spares", "share_gpus"),
    "Recovery": (
        "max_restarts", "max_relaunches", "silent_after", "hang_after", "network_check", "exclude_straggler", "rules",
        "require_resume",
    ),
    "Checkpoints": ("checkpoint_memory", "checkpoint_path", "migration_dir", "save_signal", "atomic_save"),
    "Data": ("elastic_data", "keep_global_batch"),
    "Scaling": ("scaling", "metrics"),
    "Output": ("log_dir", "dashboard", "quiet", "verbose", "log_json"),
    "Parameter servers": ("ps", "workers", "chief", "evaluator"),
    "Testing": ("chaos", "isolate", "member_cpus", "member_memory"),
}  # fmt: skip
"""The headings of the help, and the flags below each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One command line of `outrider run`; a flag that was not given is None."""

    # The order of the fields is that of GROUPS.
    # fmt: off
    module: bool = flag("Run SCRIPT as a module, as `python -m` does.", "-m", is_flag=True)
    no_python: bool = flag("Run SCRIPT as a program, once per worker process.", is_flag=True)
    python: str | None = flag(
        "Python of the script. Default: PYTHON_EXEC, an active virtual environment's, Outrider's.", metavar="PYTHON"
    )
    job: str | None = flag("Name of the job. Default: the script's name.", metavar="NAME")
    stdin: int | None = flag(
        "Give this rank the standard input, for pdb and input(); turns hang detection off.",
        metavar="RANK", type=click.IntRange(0)
    )

    nnodes: Members | None = flag(
        "Number of members, each standing for one machine, or a range of it. Default: 1.",
        metavar="N|MIN:MAX", parse=size_flags.parsed_members
    )
    nproc_per_node: Processes | None = flag(
        "Worker processes per member. Default: the value of the command's own launcher, else 1.",
        metavar="N|auto|gpu|cpu", parse=size_flags.parsed_processes
    )
    spares: int = flag(
        "Extra members kept ready to replace a lost one at once. Default: 0.",
        metavar="N", type=click.IntRange(0, MOST_MEMBERS), default=0, spec=True
    )
    share_gpus: str = flag(
        "Give each member its own part of the GPUs; off: every member sees all. Default: on.",
        metavar="on|off", type=click.Choice(["on", "off"]), default="on"
    )

    max_restarts: int | None = flag(
        "In-place restarts per job; one is regained per 30 minutes without a fault. Default: 10.",
        metavar="N", type=BUDGET, spec=True
    )
    max_relaunches: int | None = flag(
        "Replacements of lost members per job; 0 replaces none. Default: no limit.",
        metavar="N", type=BUDGET, spec=True
    )
    silent_after: float | None = flag(
        "Exclude a member after SECONDS of silence; a busy machine needs more. Default: 3.",
        metavar="SECONDS", type=SILENCE, parse=float, spec=True
    )
    hang_after: SpecFields = flag(
        "Restart ranks that make no progress. Default: step=60,init=600,checkpoint=600,eval=600.",
        metavar="SECONDS|off", parse=flag_values.hang_limits, absent={}
    )
    network_check: bool = flag(
        "Test members in pairs (matmul, all-gather) before they train; replace those that fail.",
        is_flag=True, spec="node_check"
    )
    exclude_straggler: bool = flag(
        "Replace members that are too slow, in the node check or while training.",
        is_flag=True, spec="exclude_stragglers"
    )
    rules: tuple[Rule, ...] = flag(
        "React to exit codes and output lines by the recovery.rules of an ElasticJob in FILE.",
        metavar="FILE", type=PATH, parse=rule_file.rules_of, absent=(), spec=True
    )
    require_resume: bool = flag(
        "Fail the job if its script has saved a checkpoint but starts at step 0 again.",
        is_flag=True, spec=True
    )

    checkpoint_memory: int = flag(
        "Memory per member for the newest checkpoints, such as 2Gi (docs/how-to/memory-checkpoints.md).",
        metavar="SIZE", parse=memory.parsed, absent=0
    )
    checkpoint_path: str = flag(
        "Let torch.save() to FILE return once it is in memory; FILE is written in the background.",
        metavar="FILE", parse=flag_values.checkpoint_path, absent=""
    )
    migration_dir: Path | None = flag(
        "Let training_hooks.migrator save state in DIR/<job> before planned moves.",
        metavar="DIR", type=PATH, parse=job_dirs.absolute
    )
    save_signal: str = flag(
        "Send ranks SIGNAL, such as SIGUSR1, before planned moves; the script's handler saves.",
        metavar="SIGNAL", parse=checkpoints_save_signal.parsed, absent="", spec=True
    )
    atomic_save: str | None = flag(
        "Save atomically if two files fit on the disk (true), or fail if not (required); false: never.",
        metavar="true|false|required", type=click.Choice(["true", "false", "required"])
    )

    elastic_data: bool = flag(
        "Resume the data where the loaded checkpoint was saved, at any size (DistributedSampler).",
        is_flag=True, spec=True
    )
    keep_global_batch: bool = flag(
        "Keep the first generation's global batch size by adapting each rank's.",
        is_flag=True, spec=True
    )

    scaling: SpecFields = flag(
        "Find the best size within --nnodes MIN:MAX, or follow a schedule (docs/how-to/sizes.md).",
        metavar="throughput|efficiency[,SETTING=...]|schedule;CRON=N[;...]", parse=scaling_flag.parsed, absent={}
    )
    metrics: str = flag(
        "Read step, loss, rate and others from rank 0's log by a regular expression's groups.",
        metavar="PATTERN|default", parse=flag_values.metrics_pattern, absent="", spec="metrics_pattern"
    )

    log_dir: Path | None = flag(
        "Also write each rank's output to DIR/<generation>/<rank>/{stdout,stderr}.log.",
        metavar="DIR", type=PATH, parse=job_dirs.absolute
    )
    dashboard: bool = flag(
        "Show the job as a page in the browser while it runs, at the address that is printed.",
        is_flag=True
    )
    quiet: bool = flag("Print only warnings and the summary of Outrider's own lines.", "-q", is_flag=True)
    verbose: bool = flag("Print every event with its details, and all tracebacks.", "-v", is_flag=True)
    log_json: bool = flag("Print Outrider's lines as JSON, as `outrider events --json` does.", is_flag=True)

    ps: int | None = flag(
        "Number of parameter servers; each member gets its TF_CONFIG.",
        metavar="N", type=click.IntRange(1, MOST_MEMBERS)
    )
    workers: Members | None = flag(
        "Number of workers of a job with parameter servers. Default: 1.",
        metavar="N|MIN:MAX", parse=size_flags.parsed_members
    )
    chief: bool = flag("Add a chief to a job with parameter servers.", is_flag=True)
    evaluator: bool = flag("Add an evaluator to a job with parameter servers.", is_flag=True)

    chaos: tuple[Armed, ...] = flag(
        "Inject a fault before the start, such as cpu-load=90; a replacement member is not affected.",
        metavar="FAULT@rank-index=N", multiple=True, parse=flag_values.armed
    )
    isolate: bool = flag(
        "Give each member its own network, pids and cgroup, so that these can be broken. Root only.",
        is_flag=True
    )
    member_cpus: float | None = flag(
        "CPU limit of each isolated member's trainer, such as 0.5.",
        metavar="N", type=float, parse=flag_values.member_cpus
    )
    member_memory: int | None = flag(
        "Memory limit of each isolated member's trainer, such as 1Gi.",
        metavar="SIZE", parse=flag_values.member_memory
    )
    # fmt: on

    name: str = ""
    """The job's name."""
    command: tuple[str, ...] = ()
    """The command that each member runs once; with --no-python each local rank."""
    members: Members = Members(1, 1)
    """The least and the most members with a rank index; for a PS job, of its workers."""
    nproc: int | None = None
    """Worker processes per member; None: as the trainer's own launcher says, else 1."""
    verbosity: str = "normal"
    """How much Outrider prints of its own: quiet, normal, verbose, json."""
    tasks: PsSize | None = None
    """The size of a job with parameter servers; None: an all-reduce job."""
    limits: Limits | None = None
    """CPU and memory limits of each isolated member; None: members are not isolated."""
    threads: int = 0
    """OMP_NUM_THREADS of each rank; 0: the variable stays as it is."""
    needless: tuple[str, ...] = ()
    """Flags of the launcher in the command that have no effect here."""
    gpus: tuple[Share, ...] = ()
    """The GPUs of each rank index; empty: every member has the GPUs of the command."""
    about_gpus: tuple[str, ...] = ()
    """Messages about the GPUs: first which member has which, then what may go wrong."""

    @property
    def most_members(self) -> int:
        """The most members that the job can have at once, spares included."""
        return self.tasks.most if self.tasks is not None else self.members.most + self.spares

    def spec_fields(self) -> SpecFields:
        """The fields of a JobSpec that flags fill; a flag that was not given leaves the JobSpec's default."""
        found: dict[str, Any] = {}
        for each in fields(self):
            value, to = getattr(self, each.name), each.metadata.get("spec")
            if to and value is not None:
                found[each.name if to is True else to] = value
        return {**found, **self.hang_after, **self.scaling}
