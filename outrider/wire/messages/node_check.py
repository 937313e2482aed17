"""Messages about one round of the node check: the measurements, the partners, and the results."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.text_limits import Address


@dataclass(frozen=True, slots=True)
class CheckPeer:
    """A member of the same group in a round of the node check, with the address of its probe."""

    member: MemberId
    address: Address
    port: int


@dataclass(frozen=True, slots=True)
class PeerCheck:
    """The result of the all-gather with one member of the group, or with the member itself if it was tested alone."""

    member: MemberId
    seconds: float = 0.0
    """Seconds of the best of several all-gathers; 0 if none succeeded."""
    error: str = ""
    """Why none succeeded; empty if one did."""


@dataclass(frozen=True, slots=True)
class Check:
    """Test this member in one round of the node check: a matmul, then an all-gather with each member of its group. A
    newer order replaces an older one."""

    order: OrderId
    round: int
    port: int = 0
    """The port on which the probe listens for the members in `awaited`: the one from this member's Ready, which is used
    only once. 0: it does not listen."""
    peers: tuple[CheckPeer, ...] = ()
    """The members that the probe connects to, at most 2."""
    awaited: tuple[MemberId, ...] = ()
    """The members that connect to the probe, at most 2."""
    compute: bool = True
    """Whether to do the matmul; False for a member that trains and only helps another one with the all-gather."""
    alone: bool = False
    """Whether to do also an all-gather with itself over its own address, because few members cannot show whose fault a
    broken all-gather is."""
    address: Address = ""
    """This member's own address, for that all-gather."""
    seconds: float = 30.0
    """Seconds after which the probe is ended."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Answer to Check: what this member's probe found in one round."""

    order: OrderId
    round: int
    result: str
    """`ok`, or what failed in this member itself: one of the words in docs/contracts.md §3."""
    error: str = ""
    kind: str = ""
    """The library of the matmul: `torch cuda`, `torch cpu`, `numpy`, `python`. Times of different kinds are not
    compared."""
    compute: float = 0.0
    """Seconds of the best matmul on the slowest local device; 0 if none was measured."""
    cpu: float = 0.0
    """CPU seconds of that matmul, its time without other processes on the machine; 0 on a GPU."""
    elapsed: float = 0.0
    """Seconds from the order to this answer."""
    peers: tuple[PeerCheck, ...] = ()
    held_up: float = 0.0
    """Seconds beyond `cpu` that its own container cost it, by its CPU limit and its other processes."""
