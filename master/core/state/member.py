"""A member as the master's core knows it: its pod, its connection, its last messages, and suspicion of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.master.core.state.nodecheck import Finding
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, OrderId, PodUid, RankIndex, Role
from outrider.wire.messages.directions import FromMaster
from outrider.wire.messages.generation import Ready
from outrider.wire.messages.report import Report

ALIVE, SILENT, GONE, FAILED = "alive", "silent", "gone", "failed"
"""The values of `Member.life`. The member's next message reverses silent; gone and failed are final."""

ENDED_WELL = "succeeded"
"""The phase of a pod all of whose containers have ended with code 0."""


@dataclass(slots=True)
class Order:
    """An order to one member, repeated until it is acknowledged."""

    id: OrderId
    message: FromMaster
    generation: Generation
    reason: str
    interval: float


@dataclass(slots=True)
class Suspicion:
    """The suspicion of a member that has been silent for a while, and the results of its probes."""

    pending: dict[OrderId, MemberId] = field(default_factory=dict)
    """The peers whose indirect probes are pending, by order."""
    reached_by: set[MemberId] = field(default_factory=set)
    """The peers that reached the member."""
    missed_by: set[MemberId] = field(default_factory=set)
    """The peers that did not reach the member."""
    direct: bool | None = None
    """Whether the master's direct probe reached the member; None before its result."""
    reported: str = ""
    """The kind of the last report about this suspicion, so that each is made once."""

    @property
    def is_of_the_master_only(self) -> bool:
        """Whether a peer reaches the member, so that only its connection to the master is broken."""
        return bool(self.reached_by) or self.reported == "reached"


@dataclass(slots=True)
class Member:
    id: MemberId
    role: Role
    rank_index: RankIndex | None
    created_at: float
    own_index: RankIndex | None = None
    """The rank index that the pod's controller assigned; the member gets no other (`placement.own_rank_index`)."""
    uid: PodUid | None = None
    life: str = ALIVE
    pod_phase: str = ""
    """The pod's phase; empty until the platform shows the pod."""
    pod_reason: str = ""
    refusal: str = ""
    """The reason for which its last Hello was refused, after that was reported."""
    unschedulable: bool = False
    cannot_start: bool = False
    """Whether its pod is blocked: it waits for something that needs the user, or its creation was refused."""
    has_controller: bool = True
    """Whether a controller creates another pod when this one is deleted; a pod without one is never deleted."""
    grace_ends: float | None = None
    """The moment at which the pod, which is being deleted, should be gone; None if it is not being deleted."""
    sidecar_ended: str = ""
    """How its sidecar ended, if it is not restarted (`placement.sidecar_exit`); else empty."""
    has_ended: bool = False
    """Whether all containers of its terminating pod have ended, as in the last PodSeen."""
    is_stuck: bool = False
    """Whether it was reported that the pod is not gone in time or will not be deleted."""
    is_stranger: bool = False
    """Whether its sidecar holds another installation's key or runs unsupervised (`membership.key_mismatch`)."""
    runs_alone: bool = False
    """Whether its sidecar has started its command unsupervised (`unreached`)."""
    has_sidecar: bool = True
    """Whether its pod has a sidecar, as in the last PodSeen."""
    alone_after: float = 0.0
    """Seconds until its command starts unsupervised, as in the last PodSeen; 0: never."""
    is_bound: bool = False
    """Whether its sidecar has shown that it knows a master, so that its command never starts unsupervised."""
    is_unreached: bool = False
    """Whether it has run for longer than a sidecar needs and has never reached the master."""
    was_idle: bool = False
    """Whether this master saw the stranger before its containers ran, so that no master can have started it."""
    node: str = ""
    avoid: tuple[str, ...] = ()
    """The nodes that its pod was created to avoid."""
    memory_limit: int = 0
    """The memory limit of its trainer's container in bytes; 0 if none is known."""
    resources: str = ""
    """The resources with which its pod was created; empty if they are not watched."""
    out_of_memory: bool = False
    """Whether its container was killed because it ran out of memory."""
    hung: bool = False
    """Whether it fails because it was the root cause of hangs."""
    exit_code: int | None = None
    """The exit code of its trainer's container; None unless its pod has ended."""
    overdue: bool = False
    """Whether it has been starting for longer than the other members wait."""
    in_place: tuple[Generation, str] | None = None
    """The generation since which its saves overwrite the old file, and why (`checkpoints.data_position`)."""
    leaving: str = ""
    """Why it will not be part of another generation; empty if it may be."""
    leave_at: float | None = None
    """The moment by which it must leave; None: it may stay until it is replaced."""
    stays_until_saved: bool = False
    """Whether it keeps its rank index until a checkpoint is finished: a parameter server that is to be moved
    (`ps/ps_migration`), or a chief that has to leave (`ps/chief_drain`)."""
    leaves_with_node: bool = False
    """Whether it leaves only because of its node, which may come back."""
    deleting: bool = False
    dismissed: str = ""
    """Why it is deleted even if it is heard again (`faults.delete_pod.dismiss`); empty if it is not."""
    lost_by_fault: bool = False
    taken_out: str = ""
    """Why its running pod no longer belongs to the job; empty if it does."""
    session: str | None = None
    greeted: bool = False
    """Whether it has sent a Hello to this master."""
    heard_at: float = 0.0
    suspicion: Suspicion | None = None
    address: str = ""
    probe_port: int = 0
    machine: str = ""
    """The machine that it named in its Hello."""
    memory_port: int = 0
    memory_key: str = ""
    """The port at which its sidecar sends replicas of checkpoints, and the key that it requires."""
    nproc: int = 0
    mode: str = ""
    mode_reason: str = ""
    trainer_pid: int = 0
    max_restarts: int | None = None
    ready: Ready | None = None
    """Its newest Ready, until a Start uses it up: its port serves one generation only."""
    ordered: Generation = NO_GENERATION
    """The highest generation that it was ordered to start or to stop."""
    highest: Generation = NO_GENERATION
    """The highest generation known to its sidecar, as in its last Hello."""
    stopped: Generation = NO_GENERATION
    running: Generation = NO_GENERATION
    """The generation that it reported as running, for a new master to compare."""
    offers: bool = False
    """Whether its script saves its state on request, as in its last Hello."""
    isolated: str = ""
    """Why it stopped `highest` by itself when it was cut off, as in its last Hello; empty if it did not."""
    check_wanted: str = ""
    """Why it must pass the node check before it may train; empty if it need not."""
    finding: Finding | None = None
    """The measurements with which it passed the node check."""
    finished: bool = False
    trainer_lost: bool = False
    trainer_exits: int = 0
    trainer_code: int | None = None
    report: Report | None = None
    mode_reported: bool = False
    create_failures: int = 0
    create_asked_at: float = 0.0
    orders: dict[OrderId, Order] = field(default_factory=dict)

    @property
    def is_usable(self) -> bool:
        """Whether it may be part of the next generation once it is ready."""
        is_staying = not self.leaving and not self.deleting and self.pod_phase != "terminating"
        return self.life == ALIVE and is_staying and not self.sidecar_ended


def in_order(member: Member) -> tuple[str, int, str]:
    """The key to sort members by role and number, as users count them."""
    number = member.id.rpartition("-")[2]
    return (member.role, int(number) if number.isdigit() else 0, member.id)


class Placed(NamedTuple):
    """A member of an earlier master: its rank index, and the one that its pod's controller assigned."""

    uid: PodUid
    rank_index: RankIndex | None
    own_index: RankIndex | None = None
