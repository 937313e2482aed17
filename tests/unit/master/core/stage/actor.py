"""A member of a test job, as its sidecar would play it, with the durations of its actions."""

from __future__ import annotations

import dataclasses

from outrider.master.core.spec import WORKER
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.checkpoints import Copy
from outrider.wire.messages.directions import FromMaster
from outrider.wire.messages.generation import Start
from outrider.wire.messages.membership import PROTOCOL_VERSION
from outrider.wire.messages.node_check import Check
from outrider.wire.messages.report import Spent
from tests.unit.master.core.ranks import Answers

LATENCY = 0.01
STEP_SECONDS = 0.1
CHECK_SECONDS, COMPUTE_SECONDS, NETWORK_SECONDS, SLOW = 1.0, 0.05, 0.01, 5
ROUND_TRIP = 0.0004
START_SECONDS = 3.0
"""The time from CreatePod to Ready."""


@dataclasses.dataclass
class Actor:
    """A member as its sidecar would play it."""

    id: MemberId
    uid: PodUid
    rank_index: RankIndex | None
    role: Role = WORKER
    session: str = ""
    port: int = 30000
    nproc: int = 1
    running: Generation = NO_GENERATION
    highest: Generation = NO_GENERATION
    stopped: Generation = NO_GENERATION
    start: Start | None = None
    started_at: float = 0.0
    base: int = 0
    frozen: bool = False
    unheard: bool = False
    """Whether it and the master do not hear each other, while its peers reach it."""
    stranger: bool = False
    """Whether its sidecar holds another installation's key and never connects."""
    alone_after: float = 0.0
    unsupervised: bool = False
    gone: bool = False
    finished: bool = False
    isolated: str = ""
    """Why it stopped by itself or is about to; empty if it did not."""
    has_trainer: bool = True
    stubborn: bool = False
    """Whether it never sends Stopped."""
    node: str = ""
    memory_limit: int = 0
    resources: str = ""
    bad: str = ""
    """The fault of its machine: `dies` and `slow` (the matmul), `crowded` (only the wall clock), `loaded` (the wall
    clock, by its own container), `mute` (the all-gather), `absurd` times; empty if it is healthy."""
    answers_checks: bool = True
    checks: list[Check] = dataclasses.field(default_factory=list)
    failed: int | None = None
    """The exit code of its pod, which has ended and still exists; None if it runs."""
    inbox: list[FromMaster] = dataclasses.field(default_factory=list)
    hung_at: float | None = None
    """The moment from which its rank makes no step until it is restarted; None if it does not hang."""
    phase: str = ""
    """The phase on its progress page; empty if it follows from its steps."""
    is_stuck: bool = False
    answers: Answers | None = None
    """The diagnostics that its rank returns."""
    has_pages: bool = True
    version: int = PROTOCOL_VERSION
    saves_in: float | None = None
    """Seconds in which its script saves its state on request, as rank 0; None: it never offered that."""
    offers: bool = False
    save_error: str = ""
    copies: tuple[Copy, ...] = ()
    """The complete copies of checkpoints in its memory."""
    kept: int = -1
    fetches_in: float | None = 0.5
    """Seconds in which it receives replicas; None: it never answers."""
    fetch_error: str = ""
    handles_signal: bool = True
    waits: bool = False
    """Whether its pod is unschedulable."""
    step_seconds: float = STEP_SECONDS
    accounts: bool = True
    """Whether its hooks say what the rank spends its time on."""
    spends: dict[str, float] = dataclasses.field(default_factory=dict)
    """The seconds of activities that are no steps, as its page has them."""
    doing: tuple[str, float] = ("", 0.0)
    """The activity that is under way, and since when."""

    def spent(self, now: float) -> Spent | None:
        if not self.accounts or self.start is None:
            return None
        age, made = now - self.started_at, self.step_at(now) - self.base
        moved = self.started_at + made * self.step_seconds
        doing, since = self.doing
        since_first = age - self.step_seconds if made > 0 else -1.0
        doing_for = now - since if doing else 0.0
        return Spent(age, since_first, now - moved, **self.spends, doing=doing, doing_for=doing_for)

    def step_at(self, now: float) -> int:
        now = now if self.hung_at is None else min(now, self.hung_at)
        made = int((now - self.started_at) / self.step_seconds + 1e-6)
        return self.base + made if self.running != NO_GENERATION else 0
