"""Key mismatch: members whose sidecars hold another installation's key and cannot reach this master.

The code calls them strangers. Their pods were created before Outrider was reinstalled, or before its Secrets were lost.
What runs in them continues unsupervised; this master cannot stop it and does not know its generation. Laws:

* silence says nothing about a stranger: it is never judged by silence, nor deleted for it;
* no generation forms beside a stranger that may train, because two trainings would write to one checkpoint. A stranger
  that this master saw before its containers ran cannot have been started by any master: it keeps its rank index, but
  does not block a generation;
* when a stranger's pod is gone or has ended, its rank index is vacant like any other. If all of them end with code 0
  and no fault was seen, the job has succeeded.

One Event reports all strangers that were found together, with what the user can do.
"""

from __future__ import annotations

from outrider.master.core.events import PodSeen
from outrider.master.core.generation import readiness, unsupervised
from outrider.master.core.state.job import GATHERING, State
from outrider.master.core.state.member import Member


def note(state: State, member: Member, pod: PodSeen) -> None:
    """Notes from the member's pod whether its key mismatches."""
    if pod.has_another_key and not member.is_stranger:
        member.is_stranger = state.membership.has_news_of_strangers = True
        state.membership.strangers.add(member.id)
        state.deadlines.cancel(("patience", member.id))
    if member.is_stranger:
        member.was_idle = member.was_idle or (pod.phase == "pending" and not member.runs_alone)
        readiness.note_resize(state)


def forget(state: State, member: Member) -> None:
    """Forgets a stranger that is gone."""
    if member.id in state.membership.strangers:
        state.membership.strangers.discard(member.id)
        state.membership.lost_a_stranger |= not (member.finished or member.was_idle)
        member.is_stranger = False
        readiness.note_resize(state)


def advance(state: State) -> None:
    """Warns of new strangers at the end of a step; the status says that no generation forms beside them."""
    living = [m for member_id in sorted(state.membership.strangers) if not (m := state.members[member_id]).finished]
    if state.membership.has_news_of_strangers and living:
        kind = "KeyMismatch" if any(not m.runs_alone for m in living) else "RunningUnsupervised"
        state.announce(kind, unsupervised.sentence(living), warning=True)
        state.mark_status()
    state.membership.has_news_of_strangers = False
    if state.stage != GATHERING or state.placement.suspended:
        return
    there = unsupervised.in_the_way(state)
    in_the_way = unsupervised.sentence(there) if there else ""
    if state.membership.in_the_way != in_the_way:
        state.membership.in_the_way = in_the_way
        state.mark_status()
