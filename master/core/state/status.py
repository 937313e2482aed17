"""The state of the status: when it was written, and whether it must be written again."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.state.durability import durable, special, transient


@dataclass(slots=True)
class Status:
    """The versions of the status, and whether it must be written again."""

    version: int = durable(0, outlives_end=True)
    saved_version: int = special(0)
    written_at: float | None = transient(None)
    is_wanted: bool = transient(False)
    """Whether something that users see has changed."""
    reason: str = transient("")
    """Why the status must be written at the end of this step; empty if it need not be."""
    not_before: float = transient(0.0)
    """The earliest moment of the next status: during a recovery, the status of the recovery goes first."""

    def hold(self, until: float) -> None:
        """Delays the status until that moment."""
        self.not_before = until
