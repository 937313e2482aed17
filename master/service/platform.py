"""What the master wants of whatever holds its members and its records. That is a Kubernetes cluster, or the node and
the folder of a local job.

A platform tells what it has (`PodsListed` first, and again after each break, then `PodSeen` and `PodGone`) and does
`CreatePod` and `DeletePod`. Both may raise, which becomes ActionFailed; that they have worked is seen, not returned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from outrider.master.core.actions import (
    CreatePod,
    DeletePod,
    FollowOwner,
    HidePod,
    PlacePod,
    ResizeOwner,
    WriteReplicas,
)


class Platform(Protocol):
    async def create(self, pod: CreatePod) -> None: ...

    async def delete(self, pod: DeletePod) -> None: ...

    async def place(self, pod: PlacePod) -> None: ...

    async def hide(self, pod: HidePod) -> None: ...

    async def resize_owner(self, action: ResizeOwner) -> None: ...

    async def follow_owner(self, action: FollowOwner) -> None: ...

    async def write_replicas(self, action: WriteReplicas) -> None: ...

    def ended(self, exit_code: int) -> None:
        """The job is over, with this exit code."""


class Keeper(Protocol):
    """Keeps what users read and the next master needs."""

    def save_status(self, status: Mapping[str, object]) -> Awaitable[None] | None:
        """Saved when it returns, or when what it returns is done."""

    def add(
        self, kind: str, reason: str, severity: str, member: str | None, generation: str, detail: dict[str, Any]
    ) -> None:
        """One event for the user."""
