"""What has ended a generation, as far as that decides whether its job may go on (`verdict` has the table).

Each cause is a question to what is known of the end, a `Case`: the sentence that it gives is what users read.
"""

from __future__ import annotations

from typing import NamedTuple

from outrider.master.core.faults import error_signature
from outrider.master.core.spec import FAIL, RESTART
from outrider.master.core.state.generation import Episode, Failure

FREE_PORT_CLASHES = 5


class Case(NamedTuple):
    """The end of a generation by a fault, and what is left to go on with."""

    episode: Episode
    made_step: bool
    now: float
    errors_before: tuple[str, int]
    """By which error generations ended last, and how many running."""
    crash_loop: int
    """So many of one error are too many; 0: the user has said how many restarts there are."""
    allowed: int
    left: int
    """Restarts of the budget."""
    port_clashes: int
    has_stdin: bool
    is_undecided: bool
    """It is being found out whether two members cannot see each other."""

    @property
    def failure(self) -> Failure | None:
        """The cause among the ends of ranks; None: it was something else that ended the generation."""
        return first(self.episode.failures) if self.episode.failures else None

    @property
    def errors(self) -> tuple[str, int]:
        """With this one."""
        if self.failure is None:
            return self.errors_before
        known, count = self.errors_before
        signature = _signature(self.failure, self.made_step)
        return signature, count + 1 if known == signature else 1


class Found(NamedTuple):
    """It is this cause."""

    reason: str
    failure: Failure | None = None
    """With whose exit code the job ends, if it does."""


# -- the end of a rank --------------------------------------------------------------------------------------------
def first(failures: list[Failure]) -> Failure:
    """The cause: the earliest that is no effect, else the earliest."""
    return min(failures, key=earliest_cause)


def earliest_cause(failure: Failure) -> tuple[bool, float, int]:
    return (failure.is_effect, failure.at, failure.rank)


def sentence(failure: Failure) -> str:
    action, why = failure.ruling
    by_rule = f": {why}" if action == RESTART else ""  # what else a rule says is told when it is done
    who = str(failure.member) if failure.is_alone else f"Rank {failure.rank} on {failure.member}"
    return f"{who} {error_signature.describe(failure.exit)}{failure.note}{by_rule}."


def is_certain(failure: Failure | None) -> bool:
    """An exception of the script speaks for itself; for anything else the loss of a member may still be told."""
    return failure is not None and failure.exit.signal is None and not failure.is_effect


# -- causes -------------------------------------------------------------------------------------------------------
def judged(case: Case) -> Found | None:
    return Found("it has cost its restart already") if case.episode.charged else None


def second_try(case: Case) -> Found | None:
    return Found("all are tried once more in a moment") if case.episode.again_at > case.now else None


def free(case: Case) -> Found | None:
    return Found(f"no rank is to blame: {case.episode.fault.reason}") if case.episode.free else None


def port_taken(case: Case) -> Found | None:
    clashes = [failure for failure in case.episode.failures if error_signature.is_port_clash(failure.exit)]
    is_free = bool(clashes) and case.port_clashes < FREE_PORT_CLASHES
    return Found("the rendezvous port was taken", clashes[0]) if is_free else None


def failed_by_rule(case: Case) -> Found | None:
    by_time = sorted(case.episode.failures, key=earliest_cause)
    return next((Found(each.ruling[1], each) for each in by_time if each.ruling[0] == FAIL), None)


def asked_for_input(case: Case) -> Found | None:
    failure = case.failure
    if failure is None or not error_signature.asked_for_input(failure.exit):
        return None
    if case.has_stdin:
        return Found("its debugger was left, or its standard input has ended", failure)
    return Found("ranks have no standard input under Outrider (`outrider run --stdin 0` gives it to rank 0)", failure)


def crash_loop(case: Case) -> Found | None:
    failure, (signature, count) = case.failure, case.errors
    if failure is None or not signature or not 0 < case.crash_loop <= count:
        return None
    passed = f"was past step {failure.exit.step}" if case.made_step else "made a step"
    return Found(f"the same error ended {count} generations running, and none of them {passed}", failure)


def no_restart_left(case: Case) -> Found | None:
    if case.left > 0:
        return None
    if not case.allowed:
        return Found("no restart is allowed", case.failure)
    used = (
        f"all {case.allowed} restarts of the budget are used" if case.allowed > 1 else "the one restart allowed is used"
    )
    return Found(used, case.failure)


def anything_else(case: Case) -> Found | None:
    return Found(case.episode.fault.reason, case.failure)


# -- where every rank fails at import -----------------------------------------------------------------------------
def fails_at_import_again(case: Case) -> Found | None:
    """Where only a change helps, or it has failed so before."""
    failure, (signature, count) = case.failure, case.errors
    if failure is None or not failure.signature:
        return None
    is_hopeless = error_signature.needs_a_change(failure.exit) or (bool(signature) and count > 1)
    return Found("every rank fails at import the same way", failure) if is_hopeless else None


def no_second_try(case: Case) -> Found | None:
    return Found("every rank fails at import, and no restart is left", case.failure) if case.left <= 0 else None


def may_be_outside(case: Case) -> Found | None:
    """Storage, a name server or a download may be there a while later."""
    return Found("Every rank does; all are tried once more", case.failure)


def _signature(failure: Failure, made_step: bool) -> str:
    """Equal for what comes again and again; empty where another try may go well. A job that trains has done something
    right: there it is an exception of the script's own alone, at the same place behind the same step."""
    end = failure.exit
    if not failure.signature or error_signature.is_of_outside(end):
        return ""
    if not made_step:
        return failure.signature
    is_at_one_place = error_signature.is_its_own(end) and end.error_frame
    return f"{end.error_type}|{end.error_frame}|step {end.step}" if is_at_one_place else ""
