"""Checkpoints: what was saved, what is asked to be, and the copies in members' memories."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import NO_GENERATION, NO_ORDER, Generation, MemberId, OrderId
from outrider.wire.messages.text_limits import Address, Path, Print, Ticket


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was finished (a path saved before, or one of a numbered series)."""

    generation: Generation
    path: Path
    step: int
    asked: OrderId = NO_ORDER
    """The SaveState whose signal had been sent there when this save began."""
    prints: tuple[Print, ...] = ()
    """Fingerprints of its files: size and hash of the first and last bytes (docs/contracts.md §4)."""
    is_first: bool = False
    """Nothing says that it is a checkpoint, but the load of a later process may: until then only its step is kept."""
    again: bool = False
    """It was said before, maybe to another master: its step is kept, and nothing happens now."""


@dataclass(frozen=True, slots=True)
class SaveState:
    """Have the script save what it has registered, within so many seconds; repeated until StateSaved comes."""

    order: OrderId
    generation: Generation
    seconds: float
    reason: str = ""
    last: bool = True
    """The generation is stopped as soon as it is saved: no further step is to be made."""
    signal: str = ""
    """All ranks here are sent it, and the script's own handler sees to the rest. The answer says whether they were;
    what they save is told by Saved."""


@dataclass(frozen=True, slots=True)
class StateOffered:
    """The script's rank 0 runs here and saves its state when it is asked to. Repeated after each Welcome."""

    generation: Generation
    names: tuple[str, ...] = ()
    """What the script has registered."""


@dataclass(frozen=True, slots=True)
class StateSaved:
    """Answer to SaveState."""

    order: OrderId
    generation: Generation
    step: int = 0
    path: Path = ""
    seconds: float = 0.0
    error: str = ""
    """Why it was not saved; empty: it was."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A whole checkpoint in the memory of a member, as its head says (docs/contracts.md §11)."""

    rank: int
    step: int
    sharded: bool = False
    """It is this rank's own state, and good for the same rank of a world of `world` ranks; else for any rank."""
    world: int = 0
    generation: Generation = NO_GENERATION
    length: int = 0
    held: bool = False
    """It is kept for the partner, another member whose rank this is."""
    marked: bool = False
    """It is a save of the marked path: `step` is the number of the save, and it is good for any rank."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A copy that a member is to be given, and where it is."""

    rank: int
    local_rank: int
    """Whose slots it goes to."""
    member: MemberId
    address: Address
    port: int
    memory_key: Ticket
    held: bool = False
    length: int = 0


@dataclass(frozen=True, slots=True)
class Remembered:
    """A copy of a checkpoint is whole in this member's memory. The newest of each rank is said again after each
    Welcome."""

    generation: Generation
    rank: int
    step: int
    length: int = 0
    sharded: bool = False
    marked: bool = False
    """As in `Copy`: this member alone has it yet."""
    counted: int = 0
    """Of a marked one: the optimizer steps that were made."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Every rank of this generation has this step in memory: that copy is not overwritten before there is a newer one.
    Said again after each Welcome."""

    generation: Generation
    step: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Take copies of a checkpoint over from other members. A newer order takes the place of an older one."""

    order: OrderId
    generation: Generation
    """Before whose Start (own slots), or while which runs (held ones)."""
    step: int
    made_in: Generation
    """The generation that saved it: a version is both."""
    wanted: tuple[Wanted, ...]
    sharded: bool = False
    seconds: float = 30.0
    """What is not there by then is not waited for."""
    reason: str = ""
    marked: bool = False
    """A save of the marked path: own slots are written to while worker processes run, which only read them."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Answer to Fetch."""

    order: OrderId
    generation: Generation
    step: int
    seconds: float = 0.0
    error: str = ""
    """Why not all of it is there; empty: it is."""
