"""One member as its sidecar would play it, and how long what it does takes."""

from __future__ import annotations

import dataclasses

from outrider.master.core.spec import WORKER
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.checkpoints import Copy
from outrider.wire.messages.directions import FromMaster
from outrider.wire.messages.generation import Start
from outrider.wire.messages.membership import PROTOCOL_VERSION
from outrider.wire.messages.node_check import Check
from tests.unit.master.core.ranks import Answers

LATENCY = 0.01
STEP_SECONDS = 0.1
CHECK_SECONDS, COMPUTE_SECONDS, NETWORK_SECONDS, SLOW = 1.0, 0.05, 0.01, 5
ROUND_TRIP = 0.0004
START_SECONDS = 3.0
"""From CreatePod to Ready."""


@dataclasses.dataclass
class Actor:
    """One member as its sidecar would play it."""

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
    """The master does not hear it, and it does not hear the master; its peers reach it."""
    stranger: bool = False
    alone_after: float = 0.0
    unsupervised: bool = False
    """Its sidecar holds the key of another installation's master: the two never speak."""
    gone: bool = False
    finished: bool = False
    isolated: str = ""
    """Why it stopped by itself, or is about to."""
    has_trainer: bool = True
    stubborn: bool = False
    """It never says Stopped."""
    node: str = ""
    memory_limit: int = 0
    resources: str = ""
    bad: str = ""
    """What is wrong with its machine: `dies` and `slow` (the matmul), `crowded` (its clock alone), `loaded` (that by
    its own container), `mute` (the all-gather), `absurd` times."""
    answers_checks: bool = True
    checks: list[Check] = dataclasses.field(default_factory=list)
    failed: int | None = None
    """Its pod has ended with this code, and is still there."""
    inbox: list[FromMaster] = dataclasses.field(default_factory=list)
    hung_at: float | None = None
    """Its rank makes no step from then on, until it begins again."""
    phase: str = ""
    is_stuck: bool = False
    """What its page says, where that is not what its steps say."""
    answers: Answers | None = None
    """What its rank says when it is asked where it is."""
    has_pages: bool = True
    version: int = PROTOCOL_VERSION
    saves_in: float | None = None
    """Seconds in which its script saves its state when it is asked to, as rank 0; None: it never offered that."""
    offers: bool = False
    save_error: str = ""
    copies: tuple[Copy, ...] = ()
    """Of checkpoints, that are whole in its memory."""
    kept: int = -1
    fetches_in: float | None = 0.5
    """Seconds in which it takes copies over; None: it never answers."""
    fetch_error: str = ""
    handles_signal: bool = True
    waits: bool = False
    """Its pod finds no room."""
    step_seconds: float = STEP_SECONDS

    def step_at(self, now: float) -> int:
        now = now if self.hung_at is None else min(now, self.hung_at)
        made = int((now - self.started_at) / self.step_seconds + 1e-6)
        return self.base + made if self.running != NO_GENERATION else 0
