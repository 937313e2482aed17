"""Members that run and have never been heard: told to the user, and kept from training beside a generation.

A port, a NetworkPolicy or a name that does not resolve keeps a sidecar from its master, and then nothing of the job
begins and nothing else shows why. What the platform shows is enough to say it: the pod runs, and no Hello has come.

Some of these pods may begin by themselves (`PodSeen.alone_after`; docs/adr/0028): their command forms its world alone,
and no generation of the job was formed when they were made. Laws:

* no first generation forms while one of them has not shown that it knows of a master. A Welcome may get lost, so that
  only what is said after it shows that;
* one that is still not heard beside a generation is deleted long before its time. That can be a pod that was on its way
  through the API server while the first generation formed: the next one of its owner may not begin by itself;
* one that has begun is no member of any world (`membership.key_mismatch`), and gets no order.
"""

from __future__ import annotations

from outrider.master.core.actions import CloseSession, Send
from outrider.master.core.events import PodSeen
from outrider.master.core.faults import delete_pod
from outrider.master.core.generation import readiness, unsupervised
from outrider.master.core.membership import failure_detector
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.text import seconds
from outrider.wire.ids import NO_GENERATION, MemberId
from outrider.wire.messages.membership import Hello, Refused

AFTER = 30.0
"""Seconds that a pod runs without a Hello until it is said: a sidecar needs 1 to 3 of them."""
AGAIN = 60.0
"""Seconds after which one that runs unsupervised introduces itself again."""
NO_SIDECAR = (
    'it has no sidecar: its template does not say outrider.dev/inject: "true" (nor does its namespace say enabled), or '
    "the webhook did not answer when it was made. Its trainer runs as without Outrider; make the pod anew"
)
CHECK = (
    "check that a NetworkPolicy lets the pod out to, and outrider-system in from it on, TCP port 7070, and that the "
    "pod's dnsPolicy resolves names of Services"
)


def note(state: State, member: Member, pod: PodSeen) -> None:
    """Its pod was seen, before its phase is taken over."""
    member.alone_after, member.has_sidecar = pod.alone_after, pod.has_sidecar
    if pod.alone_after and not member.is_bound:
        state.membership.unbound.add(member.id)
    if pod.phase != "running":
        _forget(state, member)
    elif member.pod_phase != "running" and not member.greeted:
        state.deadlines.set(("unreachable", member.id), state.now + AFTER)
        if member.alone_after:
            state.deadlines.set(("alone", member.id), state.now + member.alone_after / 2)


def due(state: State, member_id: str) -> None:
    member = state.members.get(MemberId(member_id))
    if member is None or member.greeted or member.is_stranger or member.pod_phase != "running" or member.deleting:
        return
    member.is_unreached = True
    state.mark_status()
    what = f"its sidecar has not reached this master: {CHECK}" if member.has_sidecar else NO_SIDECAR
    state.announce(
        "SidecarCannotReachMaster", f"{member.id} has run for {seconds(AFTER)}, and {what}.", member.id, warning=True
    )


def greeted(state: State, member: Member, hello: Hello) -> None:
    """It was heard. What it knows of a master it may have from an earlier one."""
    if member.is_unreached:
        state.mark_status()
    member.is_unreached = False
    state.deadlines.cancel(("unreachable", member.id))
    if hello.ticket or max(hello.running, hello.highest) > NO_GENERATION:
        bound(state, member)


def bound(state: State, member: Member) -> None:
    """Its sidecar has heard a master, and never lets its command go."""
    if not member.is_bound:
        member.is_bound = True
        state.membership.unbound.discard(member.id)
        state.deadlines.cancel(("alone", member.id))
        readiness.stir(state)


def gone(state: State, member: Member) -> None:
    """It is no more."""
    _forget(state, member)
    state.membership.unbound.discard(member.id)


def _forget(state: State, member: Member) -> None:
    for kind in ("unreachable", "alone"):
        state.deadlines.cancel((kind, member.id))
    if member.is_unreached:
        member.is_unreached = False
        state.mark_status()


# -- those that may begin by themselves
#
def waits_for(state: State, member: Member) -> bool:
    """Its command will begin by itself; it is not deleted for its silence."""
    return not state.number and unsupervised.may_begin(member)


def alone_soon(state: State, member_id: str) -> None:
    """Half of its time is over."""
    member = state.members.get(MemberId(member_id))
    if (
        member is None
        or not state.number
        or not unsupervised.may_begin(member)
        or member.is_stranger
        or member.deleting
    ):
        return
    why = f"{member.id} was never heard, and would begin by itself beside this job's generations; its pod is deleted."
    _remove(state, member, why)


def runs_alone(state: State, session: str, member: Member) -> None:
    """Its Hello says that its command was let go."""
    why = f"{member.id} runs unsupervised: it had reached no master in time, and takes no order."
    state.act(Send(session, member.id, Refused(why, AGAIN), state.generation, why))
    state.act(CloseSession(session, why, state.generation))
    _forget(state, member)
    member.greeted = True
    state.membership.crowd.note(member)
    if not member.is_stranger:
        member.is_stranger = member.runs_alone = state.membership.has_news_of_strangers = True
        member.mode = member.mode_reason = ""
        member.ready = None
        state.membership.strangers.add(member.id)
        state.deadlines.cancel(("patience", member.id))
        failure_detector.forget(state, member)
        readiness.refresh(state, member)
        readiness.note_resize(state)
        readiness.stir(state)
        state.mark_status()
    if state.number and not member.deleting:
        _remove(state, member, f"{member.id} runs unsupervised beside the generations of this job; its pod is deleted.")


def _remove(state: State, member: Member, why: str) -> None:
    if not member.has_controller:
        delete_pod.keep(state, member, why.partition(";")[0])
        return
    state.announce("SilentMemberDeleted", why, member.id, warning=True)
    delete_pod.dismiss(state, member, why)
