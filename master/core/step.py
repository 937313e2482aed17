"""One step of the master's core: an event is handled, and what follows for the job is looked at.

`step(state, event, now)` changes the state and returns the actions. Handlers note what happened (`handlers`), and what
that means for other rooms is told them when a handler is through (`handlers.occurrences`). What follows for the job as
a whole (who holds which rank index, whether a generation may form) is looked at once, at the end of the step, by
`RULES` in their order, and only where something has changed. So a crash is stopped in the step that reports it, and
the next generation forms in the step in which the last survivor is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from outrider.master.core.actions import Action, EndJob
from outrider.master.core.checkpoints import save_before_end
from outrider.master.core.events import (
    Event,
)
from outrider.master.core.faults import recovery
from outrider.master.core.faults import verdict as faults_verdict
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import lifecycle, observe_only
from outrider.master.core.handlers import occurrences as handlers_occurrences
from outrider.master.core.handlers.events import HANDLERS
from outrider.master.core.hangs import detector as hangs_detector
from outrider.master.core.membership import (
    failover,
    key_mismatch,
    past_lease,
    prior_success,
)
from outrider.master.core.nodecheck import rounds as nodecheck_rounds
from outrider.master.core.placement import (
    owner_scaling,
    pod_status,
    sidecar_exit,
    spec_update,
)
from outrider.master.core.placement import replicas as placement_replicas
from outrider.master.core.scaling import resize as scaling_resize
from outrider.master.core.state.generation import OVER
from outrider.master.core.state.job import ENDED, RUNNING, STOPPING, State
from outrider.master.core.status import document as status_document
from outrider.master.core.status import invariants

CHECKED_UP_TO = 64
"""Members up to which a running service checks its invariants at every step."""


def step(state: State, event: Event, now: float) -> list[Action]:
    """Takes one event; returns what is to be done, in order."""
    return change(state, lambda: HANDLERS[type(event)](state, event), now)


def change(state: State, make: Callable[[], None], now: float) -> list[Action]:
    """The same of a change that comes from outside the tables."""
    state.now = now
    state.actions = []
    if state.stage != ENDED:
        make()
        handlers_occurrences.follow(state)
        _look(state)
    actions, state.actions = state.actions, []
    return observe_only.filtered(state, actions)


def next_deadline(state: State) -> float | None:
    """When `Woke` is due at the latest."""
    return None if state.stage == ENDED else state.deadlines.next()


def describe(state: State) -> str:
    """The state in a few words; each change of them is a transition in the journal."""
    return f"{state.stage} {state.generation} {state.phase}"


def check(state: State) -> None:
    """Raises where an invariant does not hold. A walk over all members, so a large job is spared it."""
    if len(state.members) <= CHECKED_UP_TO:
        invariants.check(state)


# -- at the end of a step -----------------------------------------------------------------------------------------
def _look(state: State) -> None:
    """What follows from what has changed; each part may change something for the next."""
    if state.checkpoint_step is not None and not state.lease.lapsed:
        scaling_resize.at_checkpoint(state)
    if state.world is not None and state.world.resume.verdict == OVER and state.spec.require_resume:
        recovery.started_over(state, state.world)
    if state.stirred:
        state.stirred = False
        past_lease.advance(state) if state.lease.lapsed else _advance(state)
    handlers_occurrences.follow(state)
    status_document.flush(state)
    if state.stage == ENDED:
        state.act(EndJob(state.exit_code or 0, state.generation, state.message))


def _advance(state: State) -> None:
    pod_status.unsupervised_done(state)
    for rule in RULES:
        if state.is_over:
            break
        rule.look(state)
        handlers_occurrences.follow(state)
    generation_job_end.advance(state)


def _leave_world(state: State) -> None:
    lifecycle.leave(state)
    spec_update.hold(state)
    placement_replicas.staff(state)
    scaling_resize.dismiss(state)
    owner_scaling.resize(state)


def _forget_observed_world(state: State) -> None:
    if observe_only.is_world_over(state):
        observe_only.forget_world(state)
        _leave_world(state)
    if observe_only.is_over(state):
        generation_job_end.fail(state, 1, "No member is left, and none is made anew: the job is only observed.")


def _staff(state: State) -> None:
    if state.unstaffed:
        state.unstaffed = False
        placement_replicas.staff(state)
        scaling_resize.dismiss(state)
        owner_scaling.resize(state)


def _settle(state: State) -> None:
    if state.stage == STOPPING and state.world is not None and not state.world.waiting and faults_verdict.settle(state):
        _leave_world(state)


def _resize(state: State) -> None:
    if state.stage == RUNNING and state.unsized:
        state.unsized = False
        scaling_resize.consider(state)


class Rule(NamedTuple):
    """What is looked at where something has changed."""

    look: Callable[[State], None]
    why_here: str


RULES = (
    Rule(failover.advance, "A new master learns first which world there is: all that follows is about it."),
    Rule(sidecar_exit.advance, "Who cannot be heard any more is out before ranks are given away."),
    Rule(key_mismatch.advance, "So is who belongs to another installation."),
    Rule(hangs_detector.advance, "A hang that is known now ends the world, which the rules below then leave."),
    Rule(spec_update.hold, "A job that is suspended stops its world before another member is made for it."),
    Rule(_forget_observed_world, "A job that is only observed is over where nobody is left."),
    Rule(_settle, "All have stopped: may the job go on? It costs its budget only now, when every exit is known."),
    Rule(_staff, "Where it goes on, ranks are given away and members made before a world may form."),
    Rule(prior_success.advance, "Members that had ended well before this master may have been all there were."),
    Rule(nodecheck_rounds.advance, "Who passes the node check now is ready for the world below."),
    Rule(owner_scaling.hold, "An owner that is suspended makes no pods: nobody waits for them."),
    Rule(lifecycle.try_form, "The next world, in the step in which its last member is ready."),
    Rule(_resize, "A world that runs may have another size than is wanted by now."),
    Rule(scaling_resize.after_save, "The script's state is saved: what waited for that is done."),
    Rule(save_before_end.after_save, "The same of the job's end, behind which nothing comes."),
)
"""In this order, until the job is over."""
