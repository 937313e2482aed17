"""Counts of the members that should be heard and of the silent ones among them.

Each change of a member updates the counts, so that a verdict on one member is O(1) however large the job is. The tasks
of a PS job share one crowd: a silent member is judged beside the members of all tasks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from outrider.master.core.state.member import ALIVE, SILENT, Member
from outrider.wire.ids import MemberId


@dataclass(slots=True)
class Crowd:
    is_shared: bool = False
    """Whether other members than the state's own are counted too."""
    present: set[MemberId] = field(default_factory=set)
    """The members that have sent a Hello and are not being deleted."""
    unheard: dict[MemberId, str] = field(default_factory=dict)
    """The present members that are suspected or silent, with the node of each."""
    unheard_on: Counter[str] = field(default_factory=Counter)
    """The number of unheard members on each node."""
    bad_nodes: set[str] = field(default_factory=set)
    """The nodes that are not Ready or gone."""
    excused: int = 0
    """The number of unheard members on bad nodes."""

    def note(self, member: Member) -> None:
        """Counts the member as it is now."""
        if member.id in self.present:
            self.forget(member.id)
        if not member.greeted or member.deleting or member.life not in (ALIVE, SILENT):
            return
        self.present.add(member.id)
        if member.suspicion is not None or member.life == SILENT:
            self.unheard[member.id] = member.node
            self._count(member.node, 1)

    def forget(self, member: MemberId) -> None:
        """Removes a member that is gone from the counts."""
        self.present.discard(member)
        node = self.unheard.pop(member, None)
        if node is not None:
            self._count(node, -1)

    def note_node(self, node: str, is_ready: bool) -> None:
        """Notes whether a node is Ready; repetitions are harmless."""
        if is_ready and node in self.bad_nodes:
            self.bad_nodes.discard(node)
            self.excused -= self.unheard_on[node]
        elif not is_ready and node not in self.bad_nodes:
            self.bad_nodes.add(node)
            self.excused += self.unheard_on[node]

    def beside(self, member: Member, on_good_nodes: bool) -> tuple[int, int]:
        """The number of other members and of the unheard ones among them; without bad nodes if `on_good_nodes`."""
        others, unheard = len(self.present), len(self.unheard) - (self.excused if on_good_nodes else 0)
        node = self.unheard.get(member.id)
        is_counted = node is not None and not (on_good_nodes and node in self.bad_nodes)
        return others - (member.id in self.present), unheard - is_counted

    def _count(self, node: str, change: int) -> None:
        self.unheard_on[node] += change
        if not self.unheard_on[node]:
            del self.unheard_on[node]
        if node in self.bad_nodes:
            self.excused += change
