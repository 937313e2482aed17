"""What an earlier master has left."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.state.durability import Moment, inherited, transient
from outrider.master.core.state.member import Placed
from outrider.wire.ids import MemberId, PodUid
from outrider.wire.messages.generation import Exited
from outrider.wire.messages.log_lines import LineMatched


@dataclass(slots=True)
class Earlier:
    """What an earlier master has left, as far as this one has not found it itself."""

    placed: dict[MemberId, Placed] = inherited(dict, "members")
    """An earlier master's members, as they were last: a pod's label says what it was made with."""
    addresses: dict[MemberId, tuple[PodUid, str, int]] = inherited(dict, "addresses")
    """Where an earlier master's members answer probes: who has not spoken to this one can be looked for too."""
    silent: dict[MemberId, tuple[PodUid, Moment]] = inherited(dict, "silent")
    """Members that an earlier master had left out, and when they were heard last."""
    saved_world: dict[str, object] | None = inherited(None, "world")
    saved_left: dict[str, object] | None = inherited(None, "left")
    """The world that was being stopped, or had been, when the status was saved."""
    saved_numbers: tuple[int, int] = inherited((0, 0), "reserved")
    """The term in which the status was saved, and up to which number it reserves that world another beginning."""
    is_left: bool = transient(False)
    """Nothing is known of the worlds before but what members say: the job's record is gone."""
    deferred: list[tuple[MemberId, Exited | LineMatched]] = transient(list)
    """What members said of ended ranks and lines before a new master knew the world."""

    def defer(self, member: MemberId, message: Exited | LineMatched) -> None:
        """It is looked at when this master knows the world."""
        self.deferred.append((member, message))
