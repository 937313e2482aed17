"""The specification of a job: its size, budgets and patience, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from outrider.wire.ids import JobName, RankIndex, Role

WORKER = Role("worker")
MASTER = Role("master")
"""The role of rank index 0 in a job that has a master role; otherwise a member like the workers."""
RETRYABLE_CODES = (130, 134, 135, 137, 138, 139, 143)
"""Exit codes that say nothing about the script: ends from outside, or by a signal that a wrapper turned into a code."""
RELAUNCHES = 5
"""The default number of replacements of failed pods for each rank index."""
SIDECAR_PATIENCE = 24 * 3600
"""Seconds that the trainer of a member that the master created waits for its sidecar. Only the sidecar gives it ranks:
alone it would be a training of its own, and all such members would write to one checkpoint. Pods of other controllers
run unsupervised after a minute."""
THROUGHPUT, EFFICIENCY, SCHEDULE = "throughput", "efficiency", "schedule"
"""Scaling policies: by throughput, by throughput weighed with the statistical efficiency of the samples
(`scaling.autoscaler`), or by the clock (`scaling.schedule`)."""
FAIL, RESTART, REPLACE, REPLACE_NODE = "fail", "restart", "replace", "replaceNode"
"""The actions of a rule."""


class Rule(NamedTuple):
    """A rule of the user: an action for an exit code of a rank, for a node condition or taint, or for a log line.

    Exit codes are those that a shell reports.
    """

    exit_codes: tuple[int, ...]
    action: str
    condition: tuple[str, str] = ("", "")
    """Type and status of the node condition."""
    taint: str = ""
    """The key of the node taint."""
    log_pattern: str = ""
    """The regular expression that is searched in each line of output."""
    times: int = 1
    """The number of matches after which the rule takes effect."""
    within: float = 0.0
    """Seconds for which a match counts; irrelevant if the first match takes effect."""
    dry_run: bool = False
    """Whether the action is only reported and not taken."""


class RoleLimits(NamedTuple):
    """The limits of a role that differ from those of the job."""

    role: Role
    relaunch_limit: int
    max_memory: int | None
    restart_policy: str = ""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The policy of one job; all durations are in seconds."""

    name: JobName
    min_members: int
    max_members: int
    replicas: int
    """The number of members requested now; `outrider scale` changes it between `min_members` and `max_members`."""
    nproc: int = 1
    """The number of worker processes of each member."""
    node_unit: int = 1
    """The number of members of which the size of each generation is a multiple."""
    spares: int = 0
    max_restarts: int = 10
    """The budget of restarts in place; one is regained after each `restart_decay` without a fault."""
    restart_decay: float = 1800.0
    max_relaunches: int | None = None
    """The budget of replacements of lost members; 0: a lost member is not replaced.

    None: replacing a deleted pod is free, and failed pods have `relaunch_limit` for each rank index.
    """
    relaunch_limit: int = RELAUNCHES
    silent_after: float = 3.0
    replace_after: float = 20.0
    stop_grace: float = 0.2
    handler_grace: float = 10.0
    save_grace: float = 60.0
    grow_patience: float = 600.0
    start_patience: float = 60.0
    """Seconds that a first generation of at least `min_members` waits for members whose containers are starting."""
    crash_loop: int = 3
    """The number of consecutive generations with the same error and no step after which the job fails with it."""
    role: Role = WORKER
    is_isolated: bool = False
    """Whether each member on a machine has its own cgroup, as pods have."""
    is_adopted: bool = False
    """Whether another controller (a Job, a StatefulSet) creates the pods and their replacements."""
    keep_failed_pods: int | None = None
    """The number of failed pods of each rank index that are kept for their logs; None: all, because another
    controller owns the pods."""
    max_memory: int | None = None
    """The upper bound in bytes for a memory limit that is raised after running out of memory; None: no bound."""
    retryable_codes: tuple[int, ...] = RETRYABLE_CODES
    permanent_codes: tuple[int, ...] = ()
    rules: tuple[Rule, ...] = ()
    restart_policy: str = ""
    """The policy that decides which ends of ranks end the job (`faults.restart_policy`)."""
    node_check: bool = False
    """Whether members are measured before they may train (`nodecheck.rounds`)."""
    exclude_stragglers: bool = False
    """Whether members that are too slow, in the check or while training, are replaced (`stragglers.remedy`)."""
    elastic_data: bool = False
    """Whether ranks continue in their data where the loaded checkpoint was saved."""
    keep_global_batch: bool = False
    """Whether batch sizes follow the world size, so that the global batch stays that of the first generation."""
    require_resume: bool = False
    """Whether the job fails if its script starts over although it has saved a checkpoint."""
    save_signal: str = ""
    """The signal at which the script saves (`checkpoints.save_signal`); empty if there is none."""
    metrics_pattern: str = ""
    """The regular expression of metrics in rank 0's output (`scaling.log_metrics`); empty if there is none."""
    scaling: str = ""
    """The policy that chooses the job's size (`scaling.autoscaler`); empty: the user chooses it."""
    schedule: tuple[Entry, ...] = ()
    time_zone: str = "UTC"
    min_gain: float = 0.5
    """The least gain of each further member, as a share of one member's throughput: 1 is linear growth."""
    scale_cooldown: float = 30.0
    scale_evaluation: float = 1800.0
    scale_room_patience: float = 60.0
    """Seconds that a member added by scaling may stay unschedulable: cluster autoscalers need about as long to add a
    node."""
    has_stdin: bool = False
    """Whether a rank has the command's standard input, so that a debugger may pause it for any time."""
    hang_detection: bool = True
    hang_step: float | None = None
    """Seconds without a step after which training hangs.

    None: the default (`hangs.limits.LEAST`), and a rank must also be seen to wait. Phases that were slow earlier in the
    job have longer in either case.
    """
    hang_init: float | None = None
    hang_checkpoint: float | None = None
    hang_eval: float | None = None
    ps: tuple[str, ...] = ()
    """The address (`host:port`) of each parameter server, by rank index; empty for an all-reduce job."""
    workers: tuple[str, ...] = ()
    """The addresses of workers, for as many as the job may ever have."""
    chief: str = ""
    has_evaluator: bool = False
    tf_config_from: str = ""
    """The place in which the user has set TF_CONFIG, which is then not changed; empty if it is not set."""
    limits: tuple[RoleLimits, ...] = ()
    """The limits of the roles that differ from the job's."""
    has_master: bool = False
    """Whether rank index 0 has the role master, with its template."""
    remarks: tuple[str, ...] = ()
    """Remarks on fields of the user's job that are ignored, each reported once."""
    ps_resources: tuple[str, ...] = ()
    """The resources of each parameter server's container, in words, by rank index."""
    resources: str = ""
    """The resources of the member's container, in words, if this is one task of a PS job."""
    own_address: str = ""
    """The address of the member, if this is one task of a PS job."""
    first_index: int = 0
    """The first rank index of the job; each task of a PS job is a job of its own with one rank index."""
    has_rendezvous: bool = True
    """Whether the ranks meet at an address, each with its number."""
    names_ranks: bool = True
    """Whether users read of ranks by their numbers; else of members, which have one process each."""
    holds_all_ranks: bool = True
    """Whether the generation has all processes that run the script, so that each exit is the script's doing."""
    counts_generations_alone: bool = False
    """Whether other tasks use the same generation numbers, so that messages must name the member."""
    has_addresses: bool = False
    """Whether each rank index has an address at which other members look for its member."""
    watches_resume: bool = True
    """Whether the checkpoint from which ranks resume is watched (`generation.resume`)."""
    counts_logged_steps: bool = False
    """Whether steps in the log are the job's steps; elsewhere they may restart with each epoch."""
    observed: bool = False
    """Whether the job is observe-only: stops, deletions and resizes are only reported (`generation.observe_only`)."""
    max_restarts_asked: bool = False
    """Whether the user gave `max_restarts` to Outrider, so that it overrides an inner launcher's (torchrun's)."""

    def role_of(self, rank_index: RankIndex | None) -> Role:
        """The role of the member that is created for this rank index; None: a spare."""
        return MASTER if self.has_master and rank_index == 0 else self.role

    def limits_of(self, role: Role) -> RoleLimits:
        own = RoleLimits(role, self.relaunch_limit, self.max_memory, self.restart_policy)
        return next((each for each in self.limits if each.role == role), own)

    @property
    def is_ps(self) -> bool:
        return bool(self.ps)

    @property
    def ready_patience(self) -> float:
        """Seconds after which a member that is not ready is reported.

        A PS job has three times as long: six concurrent imports of TensorFlow on two cores took more than the minute
        that suffices elsewhere, and no other member waits for a member of a PS job.
        """
        return self.start_patience * (3 if self.is_ps else 1)


class Entry(NamedTuple):
    cron: str
    members: int
