"""Requests of a master to collect diagnostics from a member, and the answers."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import OrderId
from outrider.wire.messages.text_limits import Json

REHEARSAL = "rehearsal"


@dataclass(frozen=True, slots=True)
class Ask:
    """Collect `stacks` or `collectives` from the worker processes. Or `rehearsal`: test in another process whether the
    imports of the current script would work."""

    order: OrderId
    what: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to Ask, one of each kind per member. `body` is JSON."""

    order: OrderId
    body: Json
