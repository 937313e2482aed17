"""One step of the master's core: handles an event, then decides what follows for the job.

`step(state, event, now)` changes the state and returns the actions. Handlers note what happened (`handlers`); when a
handler is done, other domains handle its occurrences (`handlers.occurrences`). What follows for the job as a whole
(which member has which rank index, whether a generation may form) is decided once, at the end of the step, by `RULES`
in their order, and only if something has changed. So a crashed generation is stopped in the step that reports the
crash, and the next generation forms in the step in which the last survivor is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from outrider.master.core.account import goodput, ledger
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
from outrider.master.core.history import document as history_document
from outrider.master.core.history import notes
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
"""The largest number of members for which a running service checks the invariants at every step."""


def step(state: State, event: Event, now: float) -> list[Action]:
    """Handles one event; returns the actions in order."""
    return change(state, lambda: HANDLERS[type(event)](state, event), now)


def change(state: State, make: Callable[[], None], now: float) -> list[Action]:
    """Makes one step with a change that comes from outside the tables; returns the actions in order."""
    state.now = now
    state.actions = []
    if state.stage != ENDED:
        make()
        handlers_occurrences.follow(state)
        _look(state)
    actions, state.actions = state.actions, []
    return observe_only.filtered(state, actions)


def next_deadline(state: State) -> float | None:
    """The moment at which `Woke` is due at the latest; None if it is not needed."""
    return None if state.stage == ENDED else state.deadlines.next()


def describe(state: State) -> str:
    """The state in a few words; each change of them is a transition in the journal."""
    return f"{state.stage} {state.generation} {state.phase}"


def check(state: State) -> None:
    """Raises if an invariant does not hold; skipped for large jobs, because it walks over all members."""
    if len(state.members) <= CHECKED_UP_TO:
        invariants.check(state)


# -- at the end of a step -----------------------------------------------------------------------------------------
def _look(state: State) -> None:
    """Decides what follows from the changes; each part may change something for the next."""
    if state.checkpoint_step is not None and not state.lease.lapsed:
        scaling_resize.at_checkpoint(state)
    if state.world is not None and state.world.resume.verdict == OVER and state.spec.require_resume:
        recovery.started_over(state, state.world)
    is_calm = not state.stirred and not state.actions
    if state.stirred:
        state.stirred = False
        past_lease.advance(state) if state.lease.lapsed else _advance(state)
    handlers_occurrences.follow(state)
    if not is_calm or state.actions or state.account.changed:
        ledger.look(state)
        notes.look(state)
    goodput.sample(state)
    status_document.flush(state)
    history_document.flush(state)
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
        generation_job_end.fail(state, 1, "No member is left, and none is created: the job is only observed.")


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
    """A rule that runs at the end of each step in which something has changed, and why it runs at its place."""

    look: Callable[[State], None]
    why_here: str


RULES = (
    Rule(failover.advance, "A new master first learns the running generation: all later rules depend on it."),
    Rule(sidecar_exit.advance, "Members without a sidecar are out before rank indexes are assigned."),
    Rule(key_mismatch.advance, "So are members of another installation."),
    Rule(hangs_detector.advance, "A confirmed hang stops the generation, which the rules below then leave."),
    Rule(spec_update.hold, "A suspended job stops its generation before a member is created for it."),
    Rule(_forget_observed_world, "An observe-only job is over when no member is left."),
    Rule(_settle, "All have stopped: may the job continue? It pays from its budget now, when every exit is known."),
    Rule(_staff, "Rank indexes are assigned and members created before a generation may form."),
    Rule(prior_success.advance, "The members that an earlier master saw end with 0 may have been all of the job."),
    Rule(nodecheck_rounds.advance, "A member that passes the node check now is ready for the generation below."),
    Rule(owner_scaling.hold, "A suspended owner creates no pods: the job does not wait for them."),
    Rule(lifecycle.try_form, "The next generation forms in the step in which its last member is ready."),
    Rule(_resize, "The running generation may have another size than the desired one."),
    Rule(scaling_resize.after_save, "The script's state is saved: what waited for that is done."),
    Rule(save_before_end.after_save, "So is the end of the job if it waited for that; nothing can follow it."),
)
"""The rules in the order in which they run, until the job is over."""
