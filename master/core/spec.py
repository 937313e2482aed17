"""What the user asked for: the job's size, budgets and patience. It is one frozen value, which is checked when it is
made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from outrider.wire.ids import JobName, RankIndex, Role

WORKER = Role("worker")
MASTER = Role("master")
"""Of a job that has one: who holds rank index 0. In all else it is a member like the workers."""
RETRYABLE_CODES = (130, 134, 135, 137, 138, 139, 143)
"""Ends from outside, or by a signal that a wrapper turned into a code: no statement about the script."""
RELAUNCHES = 5
"""Replacements of failed pods a rank index, where the user says no number."""
SIDECAR_PATIENCE = 24 * 3600
"""Seconds that the trainer of a member that we started waits for its sidecar. Nobody else gives it a place in a world:
alone it would be a training of its own, and all of them would write one checkpoint. The pods of other controllers run
as without us after a minute."""
THROUGHPUT, EFFICIENCY, SCHEDULE = "throughput", "efficiency", "schedule"
"""Policies by which a job finds its own size (`scaling.autoscaler`; by the second samples are weighed by what they
teach), or has it by the clock (`scaling.schedule`)."""
FAIL, RESTART, REPLACE, REPLACE_NODE = "fail", "restart", "replace", "replaceNode"
"""What a rule may want done."""


class Rule(NamedTuple):
    """A rank that ends with one of these codes, as a shell says them, or a node of such a condition or taint, or a line
    of a rank's output: what is done about it."""

    exit_codes: tuple[int, ...]
    action: str
    condition: tuple[str, str] = ("", "")
    """Type and status."""
    taint: str = ""
    """Its key."""
    log_pattern: str = ""
    """A regular expression that is searched in each line."""
    times: int = 1
    """It is followed when that has been seen so often."""
    within: float = 0.0
    """Seconds that what was seen counts; of one that is followed the first time nothing is counted."""
    dry_run: bool = False
    """What would be done is told, and not done."""


class RoleLimits(NamedTuple):
    """What a role may cost, where it is not what the job says."""

    role: Role
    relaunch_limit: int
    max_memory: int | None
    restart_policy: str = ""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The policy of one job. Seconds throughout."""

    name: JobName
    min_members: int
    max_members: int
    replicas: int
    """Members wanted now; `outrider scale` changes it within min and max."""
    nproc: int = 1
    """Worker processes a member."""
    node_unit: int = 1
    """The world is a multiple of this many members."""
    spares: int = 0
    max_restarts: int = 10
    """In-place restarts a job; one is regained per `restart_decay` without a fault."""
    restart_decay: float = 1800.0
    max_relaunches: int | None = None
    """Replacements of lost members, a job; None: deletions are free and failed pods have `relaunch_limit` a rank index;
    0: a lost member is not replaced."""
    relaunch_limit: int = RELAUNCHES
    silent_after: float = 3.0
    replace_after: float = 20.0
    stop_grace: float = 0.2
    handler_grace: float = 10.0
    save_grace: float = 60.0
    grow_patience: float = 600.0
    start_patience: float = 60.0
    """How long a first world of at least min waits for members whose containers are starting."""
    crash_loop: int = 3
    """Generations running with the same error and no step, after which the job fails with it."""
    role: Role = WORKER
    is_isolated: bool = False
    """Members of one machine have a cgroup of their own each, as pods have."""
    is_adopted: bool = False
    """Another controller (a Job, a StatefulSet) makes the pods: a replacement is left to it."""
    keep_failed_pods: int | None = None
    """Failed pods a rank index that are left to be read; None: all, because the pods are not ours to delete."""
    max_memory: int | None = None
    """The most bytes that a container is given after it ran out of memory; None: no such end."""
    retryable_codes: tuple[int, ...] = RETRYABLE_CODES
    permanent_codes: tuple[int, ...] = ()
    rules: tuple[Rule, ...] = ()
    restart_policy: str = ""
    """Which ends of ranks end the job (`faults.restart_policy`)."""
    node_check: bool = False
    """Members are measured before they may train (`nodecheck.rounds`)."""
    exclude_stragglers: bool = False
    """Also those are replaced that are too slow: in the check, or while training (`stragglers.remedy`)."""
    elastic_data: bool = False
    """Ranks go on in their data where the checkpoint that they load was saved."""
    keep_global_batch: bool = False
    """Batch sizes follow the world's, so that the global batch is that of the job's first world."""
    require_resume: bool = False
    """The job fails where its script starts over although it has saved a checkpoint."""
    save_signal: str = ""
    """The script has a handler for it, and saves then (`checkpoints.save_signal`)."""
    metrics_pattern: str = ""
    """Lines of rank 0's output that fit it say how the training goes (`scaling.log_metrics`); empty: none are looked
    for."""
    scaling: str = ""
    """By which policy the job finds its own size (`scaling.autoscaler`); empty: its user gives it."""
    schedule: tuple[Entry, ...] = ()
    time_zone: str = "UTC"
    min_gain: float = 0.5
    """What each further member has to add at the least, in what one makes: 1 is linear growth."""
    scale_cooldown: float = 30.0
    scale_evaluation: float = 1800.0
    scale_room_patience: float = 60.0
    """Seconds that a member which scaling has asked for may be without room: autoscalers of clusters take about so long
    to add a node."""
    has_stdin: bool = False
    """One rank has the standard input of the command: a debugger may hold it for as long as it likes."""
    hang_detection: bool = True
    hang_step: float | None = None
    """Seconds without a step after which training hangs; None: ours (`hangs.limits.LEAST`), after which it must be seen
    that somebody waits. What the job's own past shows to be slow has longer, whoever says the limit."""
    hang_init: float | None = None
    hang_checkpoint: float | None = None
    hang_eval: float | None = None
    ps: tuple[str, ...] = ()
    """Where each parameter server is reached (`host:port`), by rank index; empty: this is an all-reduce job."""
    workers: tuple[str, ...] = ()
    """The same of workers, of as many as the job may ever have."""
    chief: str = ""
    has_evaluator: bool = False
    tf_config_from: str = ""
    """Where the user has set TF_CONFIG himself: it is left as it is."""
    limits: tuple[RoleLimits, ...] = ()
    """By role, where they differ."""
    has_master: bool = False
    """Rank index 0 is the role master's, and has its template."""
    remarks: tuple[str, ...] = ()
    """What of the user's job is passed over, to be told once."""
    ps_resources: tuple[str, ...] = ()
    """What the container of each parameter server is to have, in words, by rank index."""
    resources: str = ""
    """The same, of the one seat that this is the job of."""
    own_address: str = ""
    """Where others look for the member of this seat."""
    first_index: int = 0
    """The job's rank indexes begin here: that of one seat of a PS job is a job of its own."""
    has_rendezvous: bool = True
    """Its ranks meet at an address, each with its number."""
    names_ranks: bool = True
    """Users read of ranks by their numbers; else of members, which have one process each."""
    holds_all_ranks: bool = True
    """All processes that run the script are in its world: what happens to each of them is the script's doing."""
    counts_generations_alone: bool = False
    """Generations of others have the same numbers: who is meant has to be said."""
    has_addresses: bool = False
    """A place has an address, at which its member is looked for."""
    watches_resume: bool = True
    """What ranks load, and go on from, is looked at (`generation.resume`)."""
    counts_logged_steps: bool = False
    """Steps that lines of the log name are the job's; elsewhere they may begin anew with each epoch."""
    observed: bool = False
    """Nothing of it is stopped, deleted or resized: what would be done is said instead (`generation.observe_only`)."""
    max_restarts_asked: bool = False
    """The user gave `max_restarts` to outrider: it wins over what an inner launcher (torchrun) asks for."""

    def role_of(self, rank_index: RankIndex | None) -> Role:
        """Of the member that is made for it; None: a spare."""
        return MASTER if self.has_master and rank_index == 0 else self.role

    def limits_of(self, role: Role) -> RoleLimits:
        own = RoleLimits(role, self.relaunch_limit, self.max_memory, self.restart_policy)
        return next((each for each in self.limits if each.role == role), own)

    @property
    def is_ps(self) -> bool:
        return bool(self.ps)

    @property
    def ready_patience(self) -> float:
        """Seconds after which it is told that a member is slow to come. Six imports of TensorFlow side by side on two
        cores took more than the minute that is enough elsewhere, and nobody waits for a member of a PS job."""
        return self.start_patience * (3 if self.is_ps else 1)


class Entry(NamedTuple):
    cron: str
    members: int
