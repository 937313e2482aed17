"""When the status was written, and whether it is to be written again."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.state.durability import durable, special, transient


@dataclass(slots=True)
class Status:
    """When the status was written, and whether it is to be written again."""

    version: int = durable(0, outlives_end=True)
    saved_version: int = special(0)
    written_at: float | None = transient(None)
    is_wanted: bool = transient(False)
    """Something that users see has changed."""
    reason: str = transient("")
    """Why the status is written at the end of this step, whenever it was written last; empty where it need not be."""
    not_before: float = transient(0.0)
    """A recovery is on its way: its own status is due in a moment, and nothing else shall be in front of it."""

    def hold(self, until: float) -> None:
        """What has changed is written then at the earliest."""
        self.not_before = until
