"""How many of a job's members should be heard, and how many of them are not. Each change of a member is counted as it
comes, so that a verdict on one of them is O(1) however large the job is.

The seats of a PS job share one: who is not heard there is judged beside the members of all seats.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from outrider.master.core.state.member import ALIVE, SILENT, Member
from outrider.wire.ids import MemberId


@dataclass(slots=True)
class Crowd:
    is_shared: bool = False
    """Other members than the state's own are counted too."""
    present: set[MemberId] = field(default_factory=set)
    """Who has said Hello and is not being deleted."""
    unheard: dict[MemberId, str] = field(default_factory=dict)
    """Those of them that are in doubt or silent, and the node of each."""
    unheard_on: Counter[str] = field(default_factory=Counter)
    """How many of those a node has."""
    bad_nodes: set[str] = field(default_factory=set)
    """Not Ready, or gone."""
    excused: int = 0
    """The unheard on bad nodes."""

    def note(self, member: Member) -> None:
        """It is as it is now."""
        if member.id in self.present:
            self.forget(member.id)
        if not member.greeted or member.deleting or member.life not in (ALIVE, SILENT):
            return
        self.present.add(member.id)
        if member.doubt is not None or member.life == SILENT:
            self.unheard[member.id] = member.node
            self._count(member.node, 1)

    def forget(self, member: MemberId) -> None:
        """It is no more."""
        self.present.discard(member)
        node = self.unheard.pop(member, None)
        if node is not None:
            self._count(node, -1)

    def note_node(self, node: str, is_ready: bool) -> None:
        """May be told more than once."""
        if is_ready and node in self.bad_nodes:
            self.bad_nodes.discard(node)
            self.excused -= self.unheard_on[node]
        elif not is_ready and node not in self.bad_nodes:
            self.bad_nodes.add(node)
            self.excused += self.unheard_on[node]

    def beside(self, member: Member, on_good_nodes: bool) -> tuple[int, int]:
        """The others, and how many of them are not heard either; those alone whose nodes are well, if so asked."""
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
