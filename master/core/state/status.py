"""When the status was written, and whether it is to be written again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Status:
    """When the status was written, and whether it is to be written again."""

    version: int = 0
    saved_version: int = 0
    written_at: float | None = None
    is_wanted: bool = False
    """Something that users see has changed."""
    reason: str = ""
    """Why the status is written at the end of this step, whenever it was written last; empty where it need not be."""
    not_before: float = 0.0
    """A recovery is on its way: its own status is due in a moment, and nothing else shall be in front of it."""
