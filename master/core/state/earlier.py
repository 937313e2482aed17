"""The state that an earlier master has left."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.state.durability import Moment, inherited, transient
from outrider.master.core.state.member import Placed
from outrider.wire.ids import MemberId, PodUid
from outrider.wire.messages.generation import Exited
from outrider.wire.messages.log_lines import LineMatched


@dataclass(slots=True)
class Earlier:
    """The state that an earlier master has left, until this master has found it itself."""

    placed: dict[MemberId, Placed] = inherited(dict, "members")
    """The earlier master's members with their last rank indexes; a pod's label may have an older one."""
    addresses: dict[MemberId, tuple[PodUid, str, int]] = inherited(dict, "addresses")
    """The addresses of the earlier master's members, to probe those that have not reached this master."""
    silent: dict[MemberId, tuple[PodUid, Moment]] = inherited(dict, "silent")
    """The members that the earlier master found silent, and when each was last heard."""
    saved_world: dict[str, object] | None = inherited(None, "world")
    saved_left: dict[str, object] | None = inherited(None, "left")
    """The generation that was being stopped or was stopped last when the status was saved."""
    saved_numbers: tuple[int, int] = inherited((0, 0), "reserved")
    """The term in which the status was saved, and the highest number under which its generation may restart."""
    is_left: bool = transient(False)
    """Whether the job's record is gone, so that only its members report earlier generations."""
    deferred: list[tuple[MemberId, Exited | LineMatched]] = transient(list)
    """The messages on ended ranks and log lines that came before a new master knew the generation."""

    def defer(self, member: MemberId, message: Exited | LineMatched) -> None:
        """Keeps a message until this master knows the generation."""
        self.deferred.append((member, message))
