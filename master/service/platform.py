"""The master's interface to its platform: a Kubernetes cluster, or the node and folder of a local job.

A platform reports its pods (`PodsListed` first, and again after each break, then `PodSeen` and `PodGone`), and performs
`CreatePod` and `DeletePod`. An exception of either becomes ActionFailed; success is seen in later reports, not
returned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Mapping
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
        """Reports that the job is over, with this exit code."""


class Keeper(Protocol):
    """Stores the status and events, for users and for the next master."""

    def save_status(self, status: Mapping[str, object]) -> Awaitable[None] | None:
        """Saves the status; it is saved on return, or when the returned awaitable is done."""

    def save_history(self, part: Mapping[str, object]) -> Coroutine[object, object, None] | None:
        """Saves this master's part of the history, which replaces the one that it saved before."""

    def add(
        self, kind: str, reason: str, severity: str, member: str | None, generation: str, detail: dict[str, Any]
    ) -> None:
        """Emits one event for the user."""
