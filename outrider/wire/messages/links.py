"""Messages that show whether members and master reach each other."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.text_limits import Address


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another member of the same generation, with the UDP address of its sidecar for probes."""

    member: MemberId
    address: Address
    port: int


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """How a neighbour has answered the last probes, at most 20."""

    member: MemberId
    round_trip: float = 0.0
    """The median round trip in seconds; 0 if no datagram came back."""
    lost: int = 0
    """The number of datagrams without an answer."""
    sent: int = 0
    """The number of all datagrams."""
    missing: float = 0.0
    """Seconds since the first unanswered probe after the last answer; 0 if the neighbour answers."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Probe the sidecar of another member."""

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
    """Requests a Pong of the master: no neighbour answers, and the connection to the master may be dead."""

    number: int


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to Ping."""

    number: int
