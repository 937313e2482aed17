"""What a master asks a member to collect, and the answer."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import OrderId
from outrider.wire.messages.text_limits import Json

REHEARSAL = "rehearsal"


@dataclass(frozen=True, slots=True)
class Ask:
    """Collect something from the worker processes: `stacks` or `collectives`. Or `rehearsal`: try beside them whether
    the script as it is now would come through its imports."""

    order: OrderId
    what: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to Ask, one of a kind per member. `body` is JSON."""

    order: OrderId
    body: Json
