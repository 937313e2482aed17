"""A member as the master's core knows it. That is its pod, its sidecar's session, what it said last, and what is
doubted of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.master.core.state.nodecheck import Finding
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, OrderId, PodUid, RankIndex, Role
from outrider.wire.messages.directions import FromMaster
from outrider.wire.messages.generation import Ready
from outrider.wire.messages.report import Report

ALIVE, SILENT, GONE, FAILED = "alive", "silent", "gone", "failed"
"""A member's life: silent is a verdict that its next word takes back; gone and failed are for ever."""

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
class Doubt:
    """A member has not been heard for a while; who was asked to reach it, and what they said."""

    asked: dict[OrderId, MemberId] = field(default_factory=dict)
    reached_by: set[MemberId] = field(default_factory=set)
    missed_by: set[MemberId] = field(default_factory=set)
    own: bool | None = None
    """The master's own attempt: None where it has no answer."""
    told: str = ""
    """The last thing said about it, so that it is said once."""

    @property
    def is_of_the_master_only(self) -> bool:
        """A peer reaches the member: it is well, and only the master cannot talk to it."""
        return bool(self.reached_by) or self.told == "reached"


@dataclass(slots=True)
class Member:
    id: MemberId
    role: Role
    rank_index: RankIndex | None
    created_at: float
    own_index: RankIndex | None = None
    """What the controller that made its pod says: it gets this rank index and no other (`placement.own_rank_index`)."""
    uid: PodUid | None = None
    life: str = ALIVE
    pod_phase: str = ""
    """Empty until the platform shows the pod."""
    pod_reason: str = ""
    refusal: str = ""
    """Why its last Hello was refused, which was told."""
    unschedulable: bool = False
    cannot_start: bool = False
    """Its pod waits for something that does not come by itself, or may not be made: nobody waits for it."""
    has_controller: bool = True
    """Somebody makes another pod when this one is deleted; one without is never deleted."""
    grace_ends: float | None = None
    """Its pod is being deleted, and has to be gone by then."""
    sidecar_ended: str = ""
    """How its sidecar ended, where nobody starts it again (`placement.sidecar_exit`)."""
    has_ended: bool = False
    """As its last PodSeen said."""
    is_stuck: bool = False
    """It was not, and that has been told."""
    is_stranger: bool = False
    """Its sidecar holds the key of another installation's master (`membership.key_mismatch`)."""
    runs_alone: bool = False
    """Its command was let go: a stranger of another kind (`unreached`)."""
    has_sidecar: bool = True
    """As its last PodSeen said."""
    alone_after: float = 0.0
    """As its last PodSeen said."""
    is_bound: bool = False
    """It has shown that it knows of a master: its command is never let go."""
    is_unreached: bool = False
    """It runs, and was never heard, for longer than a sidecar needs."""
    was_idle: bool = False
    """A stranger that this master has seen before its containers ran: nobody can have started it."""
    node: str = ""
    avoid: tuple[str, ...] = ()
    """Nodes that its pod was made to keep off."""
    memory_limit: int = 0
    """Bytes that its trainer's container may use; 0: no limit is known."""
    resources: str = ""
    """What its pod was made with; empty where nobody asks."""
    out_of_memory: bool = False
    """Its container had too little memory, and that ended it."""
    hung: bool = False
    """It was to blame for hangs, and fails for that."""
    exit_code: int | None = None
    """Of its trainer's container, where its pod has ended."""
    overdue: bool = False
    """It has been starting for longer than anyone waits for."""
    in_place: tuple[Generation, str] | None = None
    """Since which generation its saves go over the old file, and why (`checkpoints.data_position`)."""
    leaving: str = ""
    """Why it will not be part of another generation, if so."""
    leave_at: float | None = None
    """The moment that the least grace it was given leaves it; None: it may stay until it is replaced."""
    stays_until_saved: bool = False
    """A parameter server that is to be moved keeps its place until a checkpoint is finished (`ps/ps_migration`), and a
    chief that has to leave until it has saved (`ps/chief_drain`)."""
    leaves_with_node: bool = False
    """For its node's sake alone, and that may come back."""
    deleting: bool = False
    dismissed: str = ""
    """Why it is deleted whatever is heard of it meanwhile, if so (`faults.delete_pod.dismiss`)."""
    lost_by_fault: bool = False
    taken_out: str = ""
    """Why its pod, which runs, is no part of the job any more."""
    session: str | None = None
    greeted: bool = False
    """It has said Hello to this master."""
    heard_at: float = 0.0
    doubt: Doubt | None = None
    address: str = ""
    probe_port: int = 0
    machine: str = ""
    """As in its Hello."""
    memory_port: int = 0
    memory_key: str = ""
    """Where its sidecar gives copies of checkpoints, and to whom."""
    nproc: int = 0
    mode: str = ""
    mode_reason: str = ""
    trainer_pid: int = 0
    max_restarts: int | None = None
    ready: Ready | None = None
    """Its newest Ready, until a Start uses it up: its port serves one generation only."""
    told: Generation = NO_GENERATION
    """The highest generation it was told to start."""
    highest: Generation = NO_GENERATION
    """The highest generation that its sidecar has heard of, as its last Hello said."""
    stopped: Generation = NO_GENERATION
    running: Generation = NO_GENERATION
    """What it said to be running in its Hello: looked at by a new master."""
    offers: bool = False
    """The script that runs there saves its state when it is asked to, as its last Hello said."""
    isolated: str = ""
    """Why it has stopped `highest` by itself, or is stopping it: it was cut off. As its last Hello said."""
    check_wanted: str = ""
    """Why it must pass the node check before it may train; empty where it need not."""
    finding: Finding | None = None
    """What the node check measured when it passed."""
    finished: bool = False
    trainer_lost: bool = False
    trainer_exits: int = 0
    trainer_code: int | None = None
    report: Report | None = None
    rung_told: bool = False
    create_failures: int = 0
    create_asked_at: float = 0.0
    orders: dict[OrderId, Order] = field(default_factory=dict)

    @property
    def is_usable(self) -> bool:
        """It may be part of the next generation once it is ready."""
        is_staying = not self.leaving and not self.deleting and self.pod_phase != "terminating"
        return self.life == ALIVE and is_staying and not self.sidecar_ended


def in_order(member: Member) -> tuple[str, int, str]:
    """For `sorted`: as users count."""
    number = member.id.rpartition("-")[2]
    return (member.role, int(number) if number.isdigit() else 0, member.id)


class Placed(NamedTuple):
    """A member of an earlier master, and its rank indexes: the one that it had, and the one that its pod says."""

    uid: PodUid
    rank_index: RankIndex | None
    own_index: RankIndex | None = None
