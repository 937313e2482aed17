"""Messages about checkpoints: finished saves, requested saves, and in-memory checkpoints of members."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import NO_GENERATION, NO_ORDER, Generation, MemberId, OrderId
from outrider.wire.messages.text_limits import Address, Path, Print, Ticket


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was finished: at a path that was saved before, or in a numbered series."""

    generation: Generation
    path: Path
    step: int
    asked: OrderId = NO_ORDER
    """The SaveState whose signal had been sent to the rank when this save began."""
    prints: tuple[Print, ...] = ()
    """Fingerprints of the checkpoint's files: size and hash of the first and last bytes (docs/contracts.md §4)."""
    is_first: bool = False
    """Whether it is not known yet to be a checkpoint. A later process may prove it by loading it; until then only its
    step is recorded."""
    again: bool = False
    """Whether this was already reported, maybe to another master: its step is recorded, and nothing else happens."""


@dataclass(frozen=True, slots=True)
class SaveState:
    """Let the script save its registered state within `seconds`; repeated until StateSaved comes."""

    order: OrderId
    generation: Generation
    seconds: float
    reason: str = ""
    last: bool = True
    """Whether the generation is stopped as soon as the state is saved, so that no further step is made."""
    signal: str = ""
    """The signal for all ranks of the member, whose own handler saves. The answer says only whether it was sent; Saved
    reports the save."""


@dataclass(frozen=True, slots=True)
class StateOffered:
    """Rank 0 of the script runs here and saves its state on request. Repeated after each Welcome."""

    generation: Generation
    names: tuple[str, ...] = ()
    """The names that the script has registered."""


@dataclass(frozen=True, slots=True)
class StateSaved:
    """Answer to SaveState."""

    order: OrderId
    generation: Generation
    step: int = 0
    path: Path = ""
    seconds: float = 0.0
    error: str = ""
    """Why the state was not saved; empty if it was."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A complete in-memory checkpoint of a member, as described by its header (docs/contracts.md §11)."""

    rank: int
    step: int
    sharded: bool = False
    """Whether it is the rank's own part of a state, usable only for the same rank of `world` ranks; else for any."""
    world: int = 0
    generation: Generation = NO_GENERATION
    length: int = 0
    held: bool = False
    """Whether it is a replica for the partner, another member that has this rank."""
    marked: bool = False
    """Whether it is a save of the checkpoint path: `step` is the number of the save, and any rank can use it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A replica that a member should receive, and the member that sends it."""

    rank: int
    local_rank: int
    """The local rank whose slots get the replica."""
    member: MemberId
    address: Address
    port: int
    memory_key: Ticket
    held: bool = False
    length: int = 0


@dataclass(frozen=True, slots=True)
class Remembered:
    """An in-memory checkpoint is complete in this member. The newest of each rank is reported again after each
    Welcome."""

    generation: Generation
    rank: int
    step: int
    length: int = 0
    sharded: bool = False
    marked: bool = False
    """As in `Copy`; no other member has it yet."""
    counted: int = 0
    """The number of optimizer steps made before a save of the checkpoint path."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Every rank of this generation has this step in memory, so its copy is not overwritten before there is a newer
    one. Repeated after each Welcome."""

    generation: Generation
    step: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Receive replicas of a checkpoint from other members. A newer order replaces an older one."""

    order: OrderId
    generation: Generation
    """The generation before whose Start own slots are filled, or that runs while replicas for a partner are."""
    step: int
    made_in: Generation
    """The generation that saved it; a version is the step and this generation."""
    wanted: tuple[Wanted, ...]
    sharded: bool = False
    seconds: float = 30.0
    """Seconds after which missing replicas are no longer waited for."""
    reason: str = ""
    marked: bool = False
    """Whether it is a save of the checkpoint path: own slots are then written while worker processes run, which only
    read them."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Answer to Fetch."""

    order: OrderId
    generation: Generation
    step: int
    seconds: float = 0.0
    error: str = ""
    """Why replicas are missing; empty if all have arrived."""
