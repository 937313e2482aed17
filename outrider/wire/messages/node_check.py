"""One round of the node check: what is measured with whom, and what that gave."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.text_limits import Address


@dataclass(frozen=True, slots=True)
class CheckPeer:
    """A member of the same group in a round of the node check, where its probe listens."""

    member: MemberId
    address: Address
    port: int


@dataclass(frozen=True, slots=True)
class PeerCheck:
    """What became of the all-gather with one member of the group; with the member itself where it was tried alone."""

    member: MemberId
    seconds: float = 0.0
    """Of the best of several; 0 where there was none."""
    error: str = ""
    """Why there was none; empty: all went well."""


@dataclass(frozen=True, slots=True)
class Check:
    """Measure this member in one round of the node check: a matmul, then an all-gather with each member of its group.
    A newer one replaces the older."""

    order: OrderId
    round: int
    port: int = 0
    """Where the probe listens for the members in `awaited`: the one that this member's Ready offered, which is used up
    by it. 0: for nobody."""
    peers: tuple[CheckPeer, ...] = ()
    """Whom the probe connects to: at most 2."""
    awaited: tuple[MemberId, ...] = ()
    """Who connects to it: at most 2."""
    compute: bool = True
    """False: this member trains, and only helps another one with the all-gather."""
    alone: bool = False
    """Also an all-gather with itself over its own address: few members cannot tell whose fault a broken one is."""
    address: Address = ""
    """This member's own, for that."""
    seconds: float = 30.0
    """The probe is ended after so many."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Answer to Check: what this member's probe found in one round."""

    order: OrderId
    round: int
    result: str
    """`ok`, or what went wrong in this member itself, one of the words in docs/contracts.md §3."""
    error: str = ""
    kind: str = ""
    """What did the matmul: `torch cuda`, `torch cpu`, `numpy`, `python`. Times of different kinds are not compared."""
    compute: float = 0.0
    """Seconds of the best matmul on the slowest local device; 0 where none was measured."""
    cpu: float = 0.0
    """CPU seconds of that one: what it would have taken without others on its machine; 0 on a device of its own."""
    elapsed: float = 0.0
    """Seconds from the order to this answer."""
    peers: tuple[PeerCheck, ...] = ()
    held_up: float = 0.0
    """Seconds beyond `cpu` for which its own container held it back, by its CPU limit and by what else runs there."""
