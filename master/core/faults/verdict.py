"""Decides whether the job continues after a fault has ended a generation, and what that costs.

`TABLE` applies once the survivors have stopped, `AT_IMPORT` as soon as every rank of a first generation has failed
alike before its first step. The first row whose cause applies decides (`causes` has the causes, and the sentences that
users read). Whether an end is free is known when it is noted: members that are lost, silent or leave, and all else that
no rank caused. `recovery` collects the evidence of a generation's end and finds the root cause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from outrider.master.core.faults import causes, error_signature
from outrider.master.core.faults.causes import Case, Found
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import lifecycle
from outrider.master.core.state import budgets
from outrider.master.core.state import links as state_links
from outrider.master.core.state.generation import Failure, Incident, World
from outrider.master.core.state.job import State

CONTINUE, WAIT, FAIL = "continue", "wait", "fail"
"""The consequence for the job: the next generation forms, nothing happens for now, or the job fails."""


class Row(NamedTuple):
    """A cause and its consequence."""

    is_it: Callable[[Case], Found | None]
    action: str
    is_charged: bool = False
    """Whether it costs a restart of the budget."""
    may_be_explained: bool = False
    """Whether the job waits a moment if the end is not an exception of the script: the loss of a member may still be
    reported, and explains the end at no cost."""


TABLE = (
    Row(causes.judged, CONTINUE),
    Row(causes.second_try, WAIT),
    Row(causes.free, CONTINUE),
    Row(causes.port_taken, CONTINUE),
    Row(causes.failed_by_rule, FAIL, may_be_explained=True),
    Row(causes.asked_for_input, FAIL),
    Row(causes.crash_loop, FAIL),
    Row(causes.no_restart_left, FAIL, may_be_explained=True),
    Row(causes.anything_else, CONTINUE, is_charged=True),
)
AT_IMPORT = (
    Row(causes.fails_at_import_again, FAIL),
    Row(causes.asked_for_input, FAIL),
    Row(causes.no_second_try, FAIL),
    Row(causes.may_be_outside, WAIT),
)
LAST_WORD = 2.0
"""Seconds for which a failure of the whole job waits for a better explanation of how its ranks ended."""
LAST_LOOK = 8.0
"""The same while it is still open if two members cannot reach each other."""
LOOK_AGAIN = 0.5
SECOND_TRY = 10.0
"""Seconds between the first generation and the second if all ranks fail at import."""


class Verdict(NamedTuple):
    """What happens to the job, and why."""

    action: str
    reason: str
    is_charged: bool = False
    failure: Failure | None = None
    """The failure whose exit code becomes that of the job, if the job fails."""
    by: Callable[[Case], Found | None] = causes.anything_else
    """The cause that decided."""


def of(case: Case, table: tuple[Row, ...] = TABLE) -> Verdict:
    row, found = next((row, found) for row in table if (found := row.is_it(case)))
    patience = LAST_LOOK if case.is_undecided else LAST_WORD
    is_early = case.now < case.incident.began_at + patience
    if row.may_be_explained and not causes.is_certain(found.failure) and is_early:
        return Verdict(WAIT, f"{found.reason}, unless the loss of a member explains it", by=row.is_it)
    return Verdict(row.action, found.reason, row.is_charged, found.failure, row.is_it)


# -- the consequence ----------------------------------------------------------------------------------------------
def settle(state: State) -> bool:
    """Decides after the survivors have stopped. True if the job continues; False if it has failed or waits."""
    incident, world = state.faults.incident, state.world
    if incident is None or world is None or incident.generation != world.generation:
        return True  # no fault has ended it
    case = _case(state, incident, world)
    verdict = of(case)
    if verdict.action == WAIT:
        last_word = max(incident.began_at + LAST_WORD, state.now + LOOK_AGAIN)
        again = incident.again_at if verdict.by is causes.second_try else last_word
        state.deadlines.set(("last word", ""), again)
    elif verdict.by is causes.port_taken:
        incident.free = is_free_port_clash(state)
    elif verdict.is_charged:
        budgets.use(state.faults.restarts, state.spec.restart_decay, state.now)
        incident.charged, state.faults.same_error = True, case.errors
    elif verdict.action == FAIL:
        state.faults.same_error = case.errors
        _fail(state, incident, verdict)
    return verdict.action == CONTINUE


def all_fail_at_import(state: State, incident: Incident, world: World) -> None:
    """Every rank has failed before its first step: the job fails at once, or is restarted once more."""
    verdict = of(_case(state, incident, world), AT_IMPORT)
    if verdict.action == FAIL:
        _fail(state, incident, verdict)
        return
    incident.again_at = state.now + SECOND_TRY
    cause = causes.sentence(causes.first(incident.failures))
    lifecycle.stop(state, f"{cause} {verdict.reason} in {SECOND_TRY:g} s.")


def is_free_port_clash(state: State) -> bool:
    state.faults.port_clashes += 1
    if state.faults.port_clashes > causes.FREE_PORT_CLASHES:
        return False
    state.announce("PortInUse", "The rendezvous port was in use by another process. A new generation starts on another "
                                "port; that costs no restart.")  # fmt: skip
    return True


def _case(state: State, incident: Incident, world: World) -> Case:
    spec, allowed = state.spec, lifecycle.max_restarts(state)
    return Case(
        incident=incident,
        made_step=world.made_step,
        now=state.now,
        errors_before=state.faults.same_error,
        crash_loop=0 if spec.max_restarts_asked else spec.crash_loop,
        allowed=allowed,
        left=budgets.left(state.faults.restarts, allowed, spec.restart_decay, state.now),
        port_clashes=state.faults.port_clashes,
        has_stdin=spec.has_stdin,
        is_undecided=state_links.is_undecided(state.links, state.now),
    )


def _fail(state: State, incident: Incident, verdict: Verdict) -> None:
    failure = verdict.failure
    reason = incident.fault.reason if failure is None else causes.sentence(failure)
    code = 1 if failure is None else error_signature.exit_code(failure.exit)
    traceback = "" if failure is None else failure.exit.traceback
    generation_job_end.fail(state, code, f"{reason.rstrip('.')}; {verdict.reason}.", traceback)
