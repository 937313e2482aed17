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

from collections.abc import Sequence

from outrider.master.core.events import PodSeen
from outrider.master.core.generation import readiness, unsupervised
from outrider.master.core.state.job import GATHERING, State
from outrider.master.core.state.member import Member

NAMED = 5
WAITING = "waiting for members"


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
    """At the end of a step: says why no generation forms, and takes it back."""
    living = [m for member_id in sorted(state.membership.strangers) if not (m := state.members[member_id]).finished]
    if state.membership.has_news_of_strangers and living:
        kind = "KeyMismatch" if any(not m.runs_alone for m in living) else "RunsUnsupervised"
        state.announce(kind, _sentence(living), warning=True)
        state.mark_status()
    state.membership.has_news_of_strangers = False
    if state.stage != GATHERING or state.placement.suspended:
        return
    there = unsupervised.in_the_way(state)
    message = _sentence(there) if there else WAITING
    if state.message != message and (there or state.membership.blocked_by_strangers):
        state.message = message
        state.mark_status()
    state.membership.blocked_by_strangers = bool(there)


def _sentence(members: Sequence[Member]) -> str:
    """Of all that are in the way, by what they are."""
    kinds = (
        (_of_another_key, [m for m in members if m.is_stranger and not m.runs_alone]),
        (_let_go, [m for m in members if m.runs_alone]),
        (_unheard, [m for m in members if not m.is_stranger]),
    )
    return " ".join(sentence(those) for sentence, those in kinds if those)


def _named(members: Sequence[Member]) -> str:
    names = ", ".join(m.id for m in members[:NAMED])
    return f"{names} and {len(members) - NAMED} more" if len(members) > NAMED else names


def _let_go(members: Sequence[Member]) -> str:
    return (
        f"{_named(members)} had reached no master in time and {'runs' if len(members) == 1 else 'run'} unsupervised, "
        f"and no generation forms beside that; made anew while this master is reached, pods are supervised."
    )


def _unheard(members: Sequence[Member]) -> str:
    return (
        f"waiting for {_named(members)}: as long as its sidecar has not been heard, its command may begin by itself, "
        f"and no generation forms beside that"
    )


def _of_another_key(members: Sequence[Member]) -> str:
    names = ", ".join(m.id for m in members[:NAMED])
    more = f" and {len(members) - NAMED} more" if len(members) > NAMED else ""
    were, have, these = ("was", "has", "this pod") if len(members) == 1 else ("were", "have", "these pods")
    again = "what its controller makes anew has" if all(m.has_controller for m in members) else "made anew it has"
    return (
        f"{names}{more} {were} made for another installation of Outrider and {have} the key of its master: what runs "
        f"there trains on unsupervised, and no generation forms beside it; delete or restart {these}, {again} the key "
        f"of this one."
    )
