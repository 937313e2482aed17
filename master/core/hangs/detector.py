"""Decides whether a generation without progress hangs, and restarts it or replaces the culprit.

If `hangs.limits` finds that a generation has shown no progress for too long, the master asks every rank for its
collectives and its stack (`hangs.diagnostics`), and `hangs.culprit` makes a finding of the answers. Then all ranks are
stopped and restarted in place, which costs a restart. A member that already caused an earlier hang is replaced.

These do not count as a hang: silent members (that is the business of `membership.failure_detector`, and no generation
is judged while no member is heard), pauses of the master itself, generations that are not running, and invalid answers.
If the limit of a training step is the default (at least 60 s), the evidence must confirm the hang: if no rank waits for
another and none is stopped, or if collectives still start, the ranks may be in an evaluation that they do not report,
and the limit of an evaluation applies. A limit that the user has set applies as it is.

If no rank of the job has ever shown a step, missing steps mean nothing. The master reports that once, and only certain
evidence ends such a generation: a stopped process, or a collective or rendezvous in which ranks have waited for as long
as an init may take.
"""

from __future__ import annotations

from outrider.master.core.faults import delete_pod, recovery
from outrider.master.core.hangs import culprit, progress_watch
from outrider.master.core.hangs import diagnostics as hangs_diagnostics
from outrider.master.core.hangs import evidence as hangs_evidence
from outrider.master.core.hangs import limits as hangs_limits
from outrider.master.core.hangs import looks as hangs_looks
from outrider.master.core.hangs.culprit import Finding
from outrider.master.core.hangs.limits import EVAL, INIT, STEP
from outrider.master.core.hangs.progress_watch import own_limit, watched
from outrider.master.core.history import notes
from outrider.master.core.network import partition
from outrider.master.core.network.report import cut_sentence
from outrider.master.core.nodecheck import gate as nodecheck_gate
from outrider.master.core.placement import pod_status
from outrider.master.core.state.generation import World
from outrider.master.core.state.hangs import Collection, RankEvidence, Suspicion, Watch
from outrider.master.core.state.job import State
from outrider.master.core.text import counted, seconds

KIND = "HangDetected"
COLLECTIVES, STACKS = "collectives", "stacks"
FRESH = 3.0
"""Seconds: if no member has reported within them, no generation is judged."""
LOOK_AGAIN, DECIDED_SOON = 1.0, 0.25
HUNG = 124
"""Exit code of a container whose member is replaced for a hang, as of `timeout`."""


# -- suspicion ----------------------------------------------------------------------------------------------------
def look(state: State, number: str) -> None:
    """Runs at the earliest moment at which the generation could hang, as known when the timer was set."""
    found = watched(state, number)
    if found is None or found[0].suspicion is not None:
        return
    watch, world = found
    if state.now < hangs_limits.due(watch, state.hangs.pace, state.spec, state.now) - 1e-6:
        progress_watch.look_in(state, watch)
    elif state.now - watch.heard_at > max(FRESH, state.spec.silent_after):
        progress_watch.look_in(state, watch, LOOK_AGAIN)
    else:
        _suspect(state, watch, world)


def _suspect(state: State, watch: Watch, world: World, *, is_sure: bool = False) -> None:
    watch.questions += 1
    name = f"hang {watch.generation} {watch.questions}"
    is_reported = not is_sure and (progress_watch.is_counted(state) or own_limit(state, watch) is not None)
    watch.suspicion = Suspicion({f"{name} {what}" for what in (COLLECTIVES, STACKS)}, is_reported, is_sure)
    if is_reported:
        request = f"The master requests stacks and collectives from {counted(world.world_size, 'rank')}."
        text = f"{_quiet(state, watch)}. {request}"
        state.announce("HangSuspected", text, warning=True)
    for what in (COLLECTIVES, STACKS):
        hangs_diagnostics.ask(state, f"{name} {what}", what, is_ours=True)
    partition.ask(state, (), is_sudden=False)


def _quiet(state: State, watch: Watch) -> str:
    """`No rank of generation 1.2 has completed a step for 61 s (limit 60 s)`; without a limit that is not reached."""
    phase, limit = hangs_limits.ruling(watch, state.hangs.pace, state.spec, state.now)
    quiet = state.now - (watch.began if not watch.step else watch.stepped_at)
    known = [f"phase {phase}"] * (phase != STEP) + [f"limit {seconds(limit)}"] * (phase != STEP or quiet >= limit)
    doing = f" ({', '.join(known)})" if known else ""
    return f"No rank of generation {watch.generation} has completed a step for {seconds(quiet)}{doing}"


def advance(state: State) -> None:
    """Runs at the end of a step: handles the collections that are complete."""
    complete, state.hangs.answered = state.hangs.answered, []
    for collection in complete:
        _answered(state, collection)


def _answered(state: State, collection: Collection) -> None:
    found = watched(state)
    if found is not None and hangs_looks.is_look(found[0], collection.request):
        _looked(state, *found, collection)
        return
    suspicion = found[0].suspicion if found is not None else None
    if found is None or suspicion is None or collection.request not in suspicion.requests:
        return
    suspicion.said[collection.what] = collection.said
    if len(suspicion.said) == len(suspicion.requests):
        conclude(state, str(found[0].generation.number))


def _looked(state: State, watch: Watch, world: World, collection: Collection) -> None:
    is_sure = hangs_looks.answered(state, watch, world, collection.said)
    if watch.suspicion is None and (is_sure or hangs_looks.is_idle_again(state, watch)):
        watch.lenient = False
        _suspect(state, watch, world, is_sure=is_sure)


# -- conclusion ---------------------------------------------------------------------------------------------------
def conclude(state: State, number: str) -> None:
    """All members have answered. If two members may be unable to reach each other, that is settled first."""
    found = watched(state, number)
    suspicion = found[0].suspicion if found is not None else None
    if found is None or suspicion is None:
        return
    if partition.is_undecided(state):
        state.deadlines.set(("conclude", number), state.now + DECIDED_SOON)
    else:
        _conclude(state, *found, suspicion)


def _conclude(state: State, watch: Watch, world: World, suspicion: Suspicion) -> None:
    phase, limit = hangs_limits.ruling(watch, state.hangs.pace, state.spec, state.now)
    is_counted, own = progress_watch.is_counted(state), own_limit(state, watch)
    answers = suspicion.said
    evidence = hangs_evidence.read(world.places.values(), world.done, answers[COLLECTIVES], answers[STACKS])
    notes.looked(state, evidence)
    nodes = {member.id: member.node for member in state.members.values()}
    patience = limit / 2 if is_counted or own is not None else limit
    finding = culprit.find(evidence, hangs_looks.PENDING if suspicion.is_sure else patience, nodes)
    if suspicion.is_sure and not finding.is_certain:
        watch.suspicion = None  # the ranks have made progress meanwhile
        return
    is_explained = suspicion.is_sure or finding.moves or any(each.is_stopped for each in evidence)
    cut = [] if is_explained else partition.of_a_hang(state)
    if cut:
        watch.suspicion = None
        if not partition.resolve(state, cut, _quiet(state, watch)):
            _end(state, watch, Finding(cut_sentence(state, cut[0]), is_certain=True))
    elif suspicion.is_sure:
        watch.suspicion = None
        _end(state, watch, finding)
    elif not is_counted and own is None and not finding.is_certain:
        _cannot_count(state, watch)
    elif phase == STEP and own is None and not (finding.is_certain or finding.is_odd):
        watch.lenient = True
        more = hangs_limits.limit(state.hangs.pace, state.spec, EVAL, state.now)
        progress_watch.drop(
            state, watch, f"{_activity(finding)}; this may be an evaluation, so the limit is now {seconds(more)}"
        )
    elif phase == STEP and own is None and hangs_looks.may_take_longer(state, watch, finding, limit):
        _let_work(state, watch, finding, evidence)
    else:
        watch.suspicion = None
        _end(state, watch, finding)


def _let_work(state: State, watch: Watch, finding: Finding, evidence: list[RankEvidence]) -> None:
    """Gives a rank that works more time. Reported once, even if the ranks are asked again later."""
    watch.suspicion, was_lenient, watch.lenient = None, watch.looks.is_let_work, True
    watch.looks.is_let_work = True
    progress_watch.look_in(state, watch)
    if was_lenient:
        return
    most = hangs_limits.limit(state.hangs.pace, state.spec, EVAL, state.now)
    text = (
        f"{_quiet(state, watch)}: {hangs_looks.at_work(finding, evidence)}. The limit is now {seconds(most)} "
        "(--hang-after, recovery.hang)."
    )
    state.announce("SlowStep", text, warning=True)


def _activity(finding: Finding) -> str:
    return "its ranks still start collectives" if finding.moves else finding.sentence


def _cannot_count(state: State, watch: Watch) -> None:
    """Steps cannot be counted. Reported once for a job."""
    watch.suspicion = None
    progress_watch.look_in(state, watch, hangs_limits.limit(state.hangs.pace, state.spec, INIT, state.now))
    if state.hangs.pace.told_uncounted:
        return
    state.hangs.pace.told_uncounted = True
    text = (
        f"No step of any rank was seen in {seconds(state.now - watch.began)}: only steps of torch's optimizers "
        f"and DataLoaders are counted. Step-based hang detection is off; stopped processes, and collectives or a "
        f"rendezvous that do not complete, are still detected."
    )
    state.announce("HangDetectionUnavailable", text, warning=True)
    state.mark_status()


def _end(state: State, watch: Watch, finding: Finding) -> None:
    reason = f"{_quiet(state, watch)}: {finding.sentence}"
    member = state.members.get(finding.member) if finding.member is not None else None
    is_repeat = member is not None and any(f.kind == KIND and f.member == member.id for f in state.faults.noted)
    if member is None or not is_repeat:
        recovery.begin(state, KIND, f"{reason}.", member)
        if member is not None:
            nodecheck_gate.ask(state, member, "it caused a hang")
        return
    reason = f"{reason}. {member.id} caused a hang before, so it is replaced if a replacement is allowed."
    recovery.begin(state, KIND, reason, member)
    if state.spec.is_adopted:
        delete_pod.dismiss(state, member, f"{member.id} caused more than one hang; its controller creates another pod.")
    elif _may_be_replaced(state):
        member.hung = True
        pod_status.fail(state, member, reason, HUNG)


def _may_be_replaced(state: State) -> bool:
    """If a lost member would not be replaced, the member is kept."""
    most = state.spec.max_relaunches
    return most is None or state.placement.relaunches < most
