"""Causes that can end a generation, as far as they decide whether its job continues (`verdict` has the table).

Each cause is a function of a `Case`, which has all that is known of the end. Users read the sentence that it returns.
"""

from __future__ import annotations

from typing import NamedTuple

from outrider.master.core.faults import error_signature
from outrider.master.core.spec import FAIL, RESTART
from outrider.master.core.state.generation import Failure, Incident

FREE_PORT_CLASHES = 5


class Case(NamedTuple):
    """The end of a generation by a fault, and the budgets that are left."""

    incident: Incident
    made_step: bool
    now: float
    errors_before: tuple[str, int]
    """The error that ended the last generations, and how many in a row it has ended."""
    crash_loop: int
    """Generations in a row that one error must end for a crash loop; 0: never, as the user set a number of restarts."""
    allowed: int
    left: int
    """Restarts that are left in the budget."""
    port_clashes: int
    has_stdin: bool
    is_undecided: bool
    """Whether it is still open if two members cannot reach each other."""

    @property
    def failure(self) -> Failure | None:
        """The root cause among the failures of ranks; None if something else ended the generation."""
        return first(self.incident.failures) if self.incident.failures else None

    @property
    def errors(self) -> tuple[str, int]:
        """`errors_before` with this failure included."""
        if self.failure is None:
            return self.errors_before
        known, count = self.errors_before
        signature = _signature(self.failure, self.made_step)
        return signature, count + 1 if known == signature else 1


class Found(NamedTuple):
    """The cause applies, with the reason that users read."""

    reason: str
    failure: Failure | None = None
    """The failure whose exit code becomes that of the job, if the job fails."""


# -- the end of a rank --------------------------------------------------------------------------------------------
def first(failures: list[Failure]) -> Failure:
    """The root cause: the earliest failure that is not an effect, else the earliest one."""
    return min(failures, key=earliest_cause)


def earliest_cause(failure: Failure) -> tuple[bool, float, int]:
    return (failure.is_effect, failure.at, failure.rank)


def sentence(failure: Failure) -> str:
    action, why = failure.ruling
    by_rule = f": {why}" if action == RESTART else ""  # other actions of rules are reported when they are done
    subject = str(failure.member) if failure.is_alone else f"Rank {failure.rank} on {failure.member}"
    return f"{subject} {error_signature.describe(failure.exit)}{failure.note}{by_rule}."


def is_certain(failure: Failure | None) -> bool:
    """Whether this is an exception of the script. For any other end the loss of a member may still be reported."""
    return failure is not None and failure.exit.signal is None and not failure.is_effect


# -- causes -------------------------------------------------------------------------------------------------------
def judged(case: Case) -> Found | None:
    return Found("its restart is already charged") if case.incident.charged else None


def second_try(case: Case) -> Found | None:
    return Found("all ranks are restarted once more in a moment") if case.incident.again_at > case.now else None


def free(case: Case) -> Found | None:
    return Found(f"no rank caused it: {case.incident.fault.reason}") if case.incident.free else None


def port_taken(case: Case) -> Found | None:
    clashes = [failure for failure in case.incident.failures if error_signature.is_port_clash(failure.exit)]
    is_free = bool(clashes) and case.port_clashes < FREE_PORT_CLASHES
    return Found("the rendezvous port was in use", clashes[0]) if is_free else None


def failed_by_rule(case: Case) -> Found | None:
    by_time = sorted(case.incident.failures, key=earliest_cause)
    return next((Found(each.ruling[1], each) for each in by_time if each.ruling[0] == FAIL), None)


def asked_for_input(case: Case) -> Found | None:
    failure = case.failure
    if failure is None or not error_signature.asked_for_input(failure.exit):
        return None
    if case.has_stdin:
        return Found("its debugger was quit, or its standard input has ended", failure)
    return Found("ranks have no standard input under Outrider (`outrider run --stdin 0` gives it to rank 0)", failure)


def crash_loop(case: Case) -> Found | None:
    failure, (signature, count) = case.failure, case.errors
    if failure is None or not signature or not 0 < case.crash_loop <= count:
        return None
    passed = f"got past step {failure.exit.step}" if case.made_step else "completed a step"
    return Found(f"the same error ended {count} generations in a row, and none of them {passed}", failure)


def no_restart_left(case: Case) -> Found | None:
    if case.left > 0:
        return None
    if not case.allowed:
        return Found("no restart is allowed", case.failure)
    used = (
        f"all {case.allowed} restarts of the budget are used"
        if case.allowed > 1
        else "the only allowed restart is used"
    )
    return Found(used, case.failure)


def anything_else(case: Case) -> Found | None:
    return Found(case.incident.fault.reason, case.failure)


# -- if every rank fails at import --------------------------------------------------------------------------------
def fails_at_import_again(case: Case) -> Found | None:
    """Only a change of the script helps, or the job has failed in this way before."""
    failure, (signature, count) = case.failure, case.errors
    if failure is None or not failure.signature:
        return None
    is_hopeless = error_signature.needs_a_change(failure.exit) or (bool(signature) and count > 1)
    return Found("every rank fails at import the same way", failure) if is_hopeless else None


def no_second_try(case: Case) -> Found | None:
    return Found("every rank fails at import, and no restart is left", case.failure) if case.left <= 0 else None


def may_be_outside(case: Case) -> Found | None:
    """Storage, a name server or a download may work a moment later."""
    return Found("Every rank fails in this way; all are restarted once more", case.failure)


def _signature(failure: Failure, made_step: bool) -> str:
    """Equal for failures that repeat; empty if another try may succeed. Once a job trains, its script works: then only
    exceptions of the script itself count, at the same place after the same step."""
    end = failure.exit
    if not failure.signature or error_signature.is_of_outside(end):
        return ""
    if not made_step:
        return failure.signature
    is_at_one_place = error_signature.is_its_own(end) and end.error_frame
    return f"{end.error_type}|{end.error_frame}|step {end.step}" if is_at_one_place else ""
