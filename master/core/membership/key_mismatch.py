"""Strangers: members whose sidecars hold the key of another installation's master, and so can never speak to this one.

Their pods were made before Outrider was installed anew, or before its Secrets were lost. What runs in them goes on
without anybody's supervision, and nobody here can stop it, or knows which generation it is. Laws:

* not being heard says nothing about a stranger: it is never judged by silence, nor deleted for it;
* no generation forms beside one that may train, because two worlds would write to one checkpoint. One that this master
  saw before its containers ran has nobody who could have started it: it holds its place, and no world;
* when its pod goes, or ends, its place is free as any other's. Where all of them end with code 0 and no fault was seen,
  the job has succeeded.

Users are told once for all that came together, with what they can do.
"""

from __future__ import annotations

from outrider.master.core.events import PodSeen
from outrider.master.core.generation import readiness, unsupervised
from outrider.master.core.state.job import GATHERING, State
from outrider.master.core.state.member import Member


def note(state: State, member: Member, pod: PodSeen) -> None:
    """Its pod was seen."""
    if pod.has_another_key and not member.is_stranger:
        member.is_stranger = state.membership.has_news_of_strangers = True
        state.membership.strangers.add(member.id)
        state.deadlines.cancel(("patience", member.id))
    if member.is_stranger:
        member.was_idle = member.was_idle or (pod.phase == "pending" and not member.runs_alone)
        readiness.note_resize(state)


def forget(state: State, member: Member) -> None:
    """It is no more."""
    if member.id in state.membership.strangers:
        state.membership.strangers.discard(member.id)
        state.membership.lost_a_stranger |= not (member.finished or member.was_idle)
        member.is_stranger = False
        readiness.note_resize(state)


def advance(state: State) -> None:
    """At the end of a step: warns of them. That no generation forms beside them is told with the status."""
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
