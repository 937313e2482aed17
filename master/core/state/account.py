"""The state of the time account: what every second of every member was spent on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from outrider.master.core.state.durability import transient
from outrider.master.core.state.history import Track
from outrider.wire.ids import NO_GENERATION, Generation, RankIndex

SAMPLES = 110


@dataclass(slots=True)
class Process:
    """The first rank of a member in one generation, as far as it is in the account."""

    generation: Generation
    born_at: float
    counted: dict[str, float]
    """The seconds of each activity that are in the account."""
    totals: tuple[float, ...] = ()
    """The seconds of all activities as the rank reported them last."""
    first_step_at: float | None = None
    step: int = 0
    """The absolute step up to which steps are in the account."""
    is_assumed: bool = False
    """Whether it has been stopped before it reported anything."""
    doing: str = ""
    doing_since: float = 0.0


@dataclass(slots=True)
class Seat:
    """One desired rank index: it has exactly one cause at each moment, with or without a member."""

    cause: str
    """The cause since `since`; while a process runs, that of what it does now."""
    since: float
    """The moment up to which all seconds are in the account."""
    process: Process | None = None
    ends_at: float | None = None
    """The moment of the fault for which the process is being stopped; None while it is not."""
    stop_at: float = 0.0
    """The moment at which its stop was ordered."""
    told_of: Generation = NO_GENERATION
    """The newest generation whose process said at its end what it had done until then."""
    hung: bool = False
    track: Track = field(default_factory=Track)
    """What was booked, over time, for the history."""


@dataclass(slots=True)
class Outage:
    """A pause of the training, from its cause to the next generation."""

    began_at: float
    stop_at: float
    left_at: float | None = None
    """The moment at which nothing of the old generation ran any more."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The account at one moment, for the goodput of the last hour and day."""

    at: float
    productive: float
    wall: float


@dataclass(slots=True)
class Account:
    """The time account of a job (`account.ledger`)."""

    seconds: dict[str, float] = transient(dict)
    """The seconds of members by cause, as far as the cause is final; none of them ever decreases."""
    wall: float = transient(0.0)
    """The seconds of all desired members up to `wall_at`."""
    wall_at: float = transient(0.0)
    seats: dict[RankIndex, Seat] = transient(dict)
    changed: set[RankIndex] = transient(set)
    """The rank indexes whose cause may have changed in this step."""
    seen: tuple[object, ...] = transient(())
    """What the causes of all seats depend on, as of the last look at all of them."""
    reached: tuple[Generation, int] = transient(lambda: (NO_GENERATION, 0))
    """The newest generation with a process in the account, and the highest step that any of its members has made."""
    outage: Outage | None = transient(None)
    samples: deque[Sample] = transient(lambda: deque(maxlen=SAMPLES))
    closed: bool = transient(False)
