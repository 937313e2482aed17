"""Members that run but have never reached the master: reported, and kept from training beside a generation.

A blocked port, a NetworkPolicy or a name that does not resolve keeps a sidecar from its master. Then the job does not
start, and nothing else shows why. What the platform shows is enough to report it: the pod runs, and no Hello has come.

Some of these pods may start unsupervised (`PodSeen.alone_after`; docs/adr/0028): their command forms its process group
by itself, and the job had no generation when they were created. Laws:

* the first generation does not form until each of these pods has shown that it knows a master. A Welcome may get lost,
  so only a message after the Welcome shows that;
* a pod of this kind that is still silent when a generation exists is deleted long before it could start. That can be a
  pod that was on its way through the API server while the first generation formed; the next pod of its owner may not
  start unsupervised;
* a pod that has started unsupervised is in no generation (`membership.key_mismatch`) and receives no order.
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
"""Seconds that a pod runs without a Hello before that is reported: a sidecar needs 1 to 3 s."""
AGAIN = 60.0
"""Seconds after which a sidecar that runs unsupervised sends its Hello again."""
NO_SIDECAR = (
    'it has no sidecar: its template lacks the label outrider.dev/inject: "true" and its namespace the label '
    "outrider.dev/inject: enabled, or the webhook did not respond when the pod was created. Its trainer runs "
    "unsupervised; correct the labels if needed, then recreate the pod"
)
CHECK = (
    "check that NetworkPolicies allow TCP port 7070 from the pod to outrider-system (egress and ingress), and that the "
    "pod's dnsPolicy resolves Service names"
)


def note(state: State, member: Member, pod: PodSeen) -> None:
    """Notes what the member's pod says, before the member takes over the pod's phase."""
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
        "SidecarCannotReachMaster", f"{member.id} has run for {seconds(AFTER)}, but {what}.", member.id, warning=True
    )


def greeted(state: State, member: Member, hello: Hello) -> None:
    """Notes the member's Hello; it may show that the sidecar already knew an earlier master."""
    if member.is_unreached:
        state.mark_status()
    member.is_unreached = False
    state.deadlines.cancel(("unreachable", member.id))
    if hello.ticket or max(hello.running, hello.highest) > NO_GENERATION:
        bound(state, member)


def bound(state: State, member: Member) -> None:
    """Notes that the member's sidecar has heard a master: it never starts its command unsupervised."""
    if not member.is_bound:
        member.is_bound = True
        state.membership.unbound.discard(member.id)
        state.deadlines.cancel(("alone", member.id))
        readiness.stir(state)


def gone(state: State, member: Member) -> None:
    """Forgets a member that is gone."""
    _forget(state, member)
    state.membership.unbound.discard(member.id)


def _forget(state: State, member: Member) -> None:
    for kind in ("unreachable", "alone"):
        state.deadlines.cancel((kind, member.id))
    if member.is_unreached:
        member.is_unreached = False
        state.mark_status()


# -- pods that may start unsupervised
#
def waits_for(state: State, member: Member) -> bool:
    """Whether the member is not deleted for its silence, because its command will start unsupervised."""
    return not state.number and unsupervised.may_begin(member)


def alone_soon(state: State, member_id: str) -> None:
    """Deletes a silent member beside a generation when half of the time to its unsupervised start is over."""
    member = state.members.get(MemberId(member_id))
    if (
        member is None
        or not state.number
        or not unsupervised.may_begin(member)
        or member.is_stranger
        or member.deleting
    ):
        return
    why = f"{member.id} never reached the master and would start unsupervised beside the job; its pod is deleted."
    _remove(state, member, why)


def runs_alone(state: State, session: str, member: Member) -> None:
    """Handles the Hello of a sidecar that has started its command unsupervised."""
    why = f"{member.id} runs unsupervised: it reached no master in time, so it accepts no orders."
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
