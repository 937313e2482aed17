"""A generation in which no rank makes progress: suspicion, the ranks' own words, the remedy.

When `hangs.limits` says that a generation has shown no progress for too long, every rank is asked for its collectives
and its stack (`hangs.diagnostics`), and `hangs.culprit` makes a finding of the answers. Then the world is stopped and
begins again in place, which costs a restart; a member that was to blame for a hang before is replaced.

What does not count: silence (who is not heard is `membership.failure_detector`'s business, and the clock stands still
while nobody is), our own pauses, generations that do not run, and words of ranks that make no sense. And where the 60 s
for a training step are our own idea, the ranks' words must bear it out: where no rank waits for another and none is
stopped, or collectives go on, they may be evaluating without telling, and have the time of an evaluation. A limit that
the user has given counts as it is.

Where no rank of the job has ever shown a step, its silence says nothing. That is told once, and only what hangs for
certain ends such a world: a stopped process, a collective or a rendezvous that is waited in for as long as an init may
take.
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
from outrider.master.core.network import partition
from outrider.master.core.network.report import cut_sentence
from outrider.master.core.nodecheck import gate as nodecheck_gate
from outrider.master.core.placement import pod_status
from outrider.master.core.state.generation import World
from outrider.master.core.state.hangs import Collection, Suspicion, Told, Watch
from outrider.master.core.state.job import State
from outrider.master.core.text import counted, seconds

KIND = "HangDetected"
COLLECTIVES, STACKS = "collectives", "stacks"
FRESH = 3.0
"""Seconds within which somebody must have reported, or nobody is judged."""
LOOK_AGAIN, DECIDED_SOON = 1.0, 0.25
HUNG = 124
"""What a container ends with whose member is replaced for it: as `timeout` does."""


# -- suspicion ----------------------------------------------------------------------------------------------------
def look(state: State, number: str) -> None:
    """The moment at which it could hang, as far as was known when it was set."""
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
    is_told = not is_sure and (progress_watch.is_counted(state) or own_limit(state, watch) is not None)
    watch.suspicion = Suspicion({f"{name} {what}" for what in (COLLECTIVES, STACKS)}, is_told, is_sure)
    if is_told:
        text = f"{_quiet(state, watch)}: its {counted(world.world_size, 'rank')} are asked where they are."
        state.announce("HangSuspected", text, warning=True)
    for what in (COLLECTIVES, STACKS):
        hangs_diagnostics.ask(state, f"{name} {what}", what, is_ours=True)
    partition.ask(state, (), is_sudden=False)


def _quiet(state: State, watch: Watch) -> str:
    """`No rank of generation 1.2 has made a step for 61 s`."""
    phase, limit = hangs_limits.ruling(watch, state.hangs.pace, state.spec, state.now)
    since = watch.began if not watch.step else watch.stepped_at
    doing = "" if phase == STEP else f" (in its {phase}, which may take {seconds(limit)})"
    return f"No rank of generation {watch.generation} has made a step for {seconds(state.now - since)}{doing}"


def advance(state: State) -> None:
    """At the end of a step: are all answers there?"""
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
    """All have answered. Where two members may not see each other, that is found out first."""
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
    told = hangs_evidence.read(world.places.values(), world.done, suspicion.said[COLLECTIVES], suspicion.said[STACKS])
    nodes = {member.id: member.node for member in state.members.values()}
    patience = limit / 2 if is_counted or own is not None else limit
    finding = culprit.find(told, hangs_looks.PENDING if suspicion.is_sure else patience, nodes)
    if suspicion.is_sure and not finding.is_certain:
        watch.suspicion = None  # it has gone on meanwhile
        return
    is_explained = suspicion.is_sure or finding.moves or any(each.is_stopped for each in told)
    cut = [] if is_explained else partition.of_a_hang(state)
    if cut:
        watch.suspicion = None
        if not partition.part(state, cut, _quiet(state, watch)):
            _end(state, watch, Finding(cut_sentence(state, cut[0]), is_certain=True))
    elif suspicion.is_sure:
        watch.suspicion = None
        _end(state, watch, finding)
    elif not is_counted and own is None and not finding.is_certain:
        _cannot_count(state, watch)
    elif phase == STEP and own is None and not (finding.is_certain or finding.is_odd):
        watch.lenient = True
        more = hangs_limits.limit(state.hangs.pace, state.spec, EVAL, state.now)
        progress_watch.drop(state, watch, f"{_what_goes_on(finding)}, so it has the {seconds(more)} of an evaluation")
    elif phase == STEP and own is None and hangs_looks.may_take_longer(state, watch, finding, limit):
        _let_work(state, watch, finding, told)
    else:
        watch.suspicion = None
        _end(state, watch, finding)


def _let_work(state: State, watch: Watch, finding: Finding, told: list[Told]) -> None:
    """Said once, whatever is asked again later."""
    watch.suspicion, was_lenient, watch.lenient = None, watch.looks.is_let_work, True
    watch.looks.is_let_work = True
    progress_watch.look_in(state, watch)
    if was_lenient:
        return
    most = hangs_limits.limit(state.hangs.pace, state.spec, EVAL, state.now)
    text = (
        f"{_quiet(state, watch)}: {hangs_looks.at_work(finding, told)}. That may take {seconds(most)} (--hang-after)."
    )
    state.announce("SlowStep", text, warning=True)


def _what_goes_on(finding: Finding) -> str:
    return "collectives go on" if finding.moves else finding.sentence


def _cannot_count(state: State, watch: Watch) -> None:
    """Told once a job."""
    watch.suspicion = None
    progress_watch.look_in(state, watch, hangs_limits.limit(state.hangs.pace, state.spec, INIT, state.now))
    if state.hangs.pace.told_uncounted:
        return
    state.hangs.pace.told_uncounted = True
    text = (
        f"No rank of this job has shown a step in {seconds(state.now - watch.began)}: steps are counted by torch's "
        f"optimizers and DataLoaders. Whether it hangs cannot be told from that, so only a stopped process, or a "
        f"collective or rendezvous that is waited in for long, ends a generation."
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
            nodecheck_gate.ask(state, member, "it was to blame for a hang")
        return
    reason = f"{reason}. It was to blame for a hang before, so {member.id} is replaced."
    recovery.begin(state, KIND, reason, member)
    if state.spec.is_adopted:
        delete_pod.dismiss(state, member, f"{member.id} hangs again and again; its controller makes another.")
    elif _may_be_replaced(state):
        member.hung = True
        pod_status.fail(state, member, reason, HUNG)


def _may_be_replaced(state: State) -> bool:
    """Where a lost member is not replaced, it is better kept."""
    most = state.spec.max_relaunches
    return most is None or state.placement.relaunches < most
