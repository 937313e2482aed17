"""What shows whether members and master reach each other."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.text_limits import Address


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another member of the same world, where its sidecar answers probes (UDP)."""

    member: MemberId
    address: Address
    port: int


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """How a neighbour has answered the last probes, at most 20 looks at it."""

    member: MemberId
    round_trip: float = 0.0
    """Seconds, the median; 0 where none came back."""
    lost: int = 0
    """Datagrams that brought nothing."""
    sent: int = 0
    """All of them."""
    missing: float = 0.0
    """Seconds since the first look that found nobody after its last answer; 0: it answers."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Try to reach another member's sidecar."""

    order: OrderId
    member: MemberId
    address: Address
    port: int
    seconds: float = 0.4


@dataclass(frozen=True, slots=True)
class Probed:
    """Answer to Probe."""

    order: OrderId
    member: MemberId
    reachable: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks the master for a sign of life: no neighbour answers, and the link may be up and dead."""

    number: int


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to Ping."""

    number: int
