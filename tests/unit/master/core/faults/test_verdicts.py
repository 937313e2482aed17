"""The verdict on the end of a generation: a row of the table for each cause, and the first one that applies decides."""

from __future__ import annotations

import pytest

from outrider.master.core.faults import causes, verdict
from outrider.master.core.faults.causes import FREE_PORT_CLASHES, Case
from outrider.master.core.faults.verdict import AT_IMPORT, CONTINUE, FAIL, LAST_LOOK, LAST_WORD, TABLE, WAIT
from outrider.master.core.spec import FAIL as RULE_FAILS
from outrider.master.core.spec import RESTART
from outrider.master.core.state.generation import Failure, Fault, Incident
from outrider.wire.ids import Generation, MemberId
from outrider.wire.messages.generation import WorkerExit

FIRST, LATE = Generation(1, 1), 100.0
CLASH = "The server socket has failed to listen: EADDRINUSE, Address already in use"
INPUT = "EOF when reading a line"


def failure(*, signal: int | None = None, error: str = "ValueError", message: str = "wrong", rank: int = 0,
            at: float = 0.0, effect: bool = False, rule: tuple[str, str] = ("", "")) -> Failure:  # fmt: skip
    code = 1 if signal is None else None
    end = WorkerExit(0, 5, code, signal, False, 0.0, 7, "" if signal else error, message, "train.py:7 main", "", False)
    return Failure(MemberId(f"worker-{rank}"), rank, at, end, effect, "" if signal else f"{error}|{message}", rule)


def case(*failures: Failure, left: int = 3, free: bool = False, charged: bool = False, again_at: float = 0.0,
         now: float = LATE, **known: object) -> Case:  # fmt: skip
    fault = Fault(0.0, "WorkerExited", MemberId("worker-0"), "worker-0 is gone.", FIRST)
    incident = Incident(FIRST, fault, 0.0, list(failures), charged, free, again_at)
    given: dict[str, object] = {"made_step": False, "errors_before": ("", 0), "crash_loop": 3, "allowed": 3,
                                "port_clashes": 0, "has_stdin": False, "is_undecided": False, **known}  # fmt: skip
    return Case(incident=incident, now=now, left=left, **given)  # type: ignore[arg-type]


SIGNATURE = failure().signature
ROWS = [
    (causes.judged, case(failure(), charged=True), CONTINUE, "its restart is already charged"),
    (causes.second_try, case(failure(), again_at=LATE + 1), WAIT, "all ranks are restarted once more in a moment"),
    (causes.free, case(failure(), free=True, left=0), CONTINUE, "no rank caused it: worker-0 is gone."),
    (causes.port_taken, case(failure(message=CLASH), left=0), CONTINUE, "the rendezvous port was in use"),
    (causes.failed_by_rule, case(failure(rule=(RULE_FAILS, "rule 1 says so"))), FAIL, "rule 1 says so"),
    (causes.asked_for_input, case(failure(error="EOFError", message=INPUT)), FAIL,
     "ranks have no standard input under Outrider (`outrider run --stdin 0` gives it to rank 0)"),
    (causes.crash_loop, case(failure(), errors_before=(SIGNATURE, 2)), FAIL,
     "the same error ended 3 generations in a row, and none of them completed a step"),
    (causes.no_restart_left, case(failure(), left=0), FAIL, "all 3 restarts of the budget are used"),
    (causes.anything_else, case(failure()), CONTINUE, "worker-0 is gone."),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "known", "action", "reason"), ROWS, ids=[row[0].__name__ for row in ROWS])
def test_each_cause_has_its_verdict(cause: object, known: Case, action: str, reason: str) -> None:
    found = verdict.of(known)
    assert (found.by, found.action, found.reason) == (cause, action, reason)
    assert found.is_charged == (cause is causes.anything_else)


def test_each_row_of_the_table_is_tried_above() -> None:
    assert [row.is_it for row in TABLE] == [row[0] for row in ROWS]


AGAIN = ("ValueError|wrong", 1)


@pytest.mark.parametrize(("known", "action", "reason"), [
    (case(failure(error="SyntaxError")), FAIL, "every rank fails at import the same way"),
    (case(failure(), errors_before=AGAIN), FAIL, "every rank fails at import the same way"),
    (case(failure(error="EOFError", message=INPUT), has_stdin=True), FAIL,
     "its debugger was quit, or its standard input has ended"),
    (case(failure(), left=0), FAIL, "every rank fails at import, and no restart is left"),
    (case(failure(error="OSError")), WAIT, "Every rank fails in this way; all are restarted once more"),
])  # fmt: skip
def test_if_every_rank_fails_at_import(known: Case, action: str, reason: str) -> None:
    found = verdict.of(known, AT_IMPORT)
    assert (found.action, found.reason) == (action, reason)


@pytest.mark.parametrize("rule", [True, False])
def test_an_end_that_is_not_an_exception_of_the_script_waits_for_an_explanation(rule: bool) -> None:
    ended = failure(signal=9, rule=(RULE_FAILS, "rule 1 says so") if rule else ("", ""))
    early, late = (case(ended, left=0, now=now) for now in (LAST_WORD - 0.1, LAST_WORD))
    assert (verdict.of(early).action, verdict.of(late).action) == (WAIT, FAIL)
    assert verdict.of(early).reason.endswith(", unless the loss of a member explains it")
    looked_for = early._replace(is_undecided=True, now=LAST_LOOK - 0.1)
    assert verdict.of(looked_for).action == WAIT
    certain = case(failure(rule=ended.ruling), left=0, now=0.0)
    assert verdict.of(certain).action == FAIL


def test_the_job_ends_with_the_code_of_the_rank_that_the_rule_matches() -> None:
    first, second = failure(at=1.0), failure(rank=1, at=2.0, rule=(RULE_FAILS, "rule 1"))
    assert verdict.of(case(first, second)).failure is second
    assert verdict.of(case(first, second, failure(rank=2, at=0.5, effect=True), left=0)).failure is second
    assert verdict.of(case(first, failure(rank=2, at=0.5, effect=True), left=0)).failure is first


@pytest.mark.parametrize(("known", "reason"), [
    (case(allowed=0, left=0), "no restart is allowed"),
    (case(allowed=1, left=0), "the only allowed restart is used"),
])  # fmt: skip
def test_a_budget_that_is_used_up(known: Case, reason: str) -> None:
    found = verdict.of(known)
    assert (found.action, found.reason, found.failure) == (FAIL, reason, None)


@pytest.mark.parametrize("known", [
    case(failure(), errors_before=(SIGNATURE, 1)),
    case(failure(), errors_before=("another", 5)),
    case(failure(), errors_before=(SIGNATURE, 5), crash_loop=0),
    case(failure(), errors_before=(SIGNATURE, 5), made_step=True),
    case(failure(signal=9), errors_before=("", 5)),
    case(failure(message=CLASH), port_clashes=FREE_PORT_CLASHES),
    case(failure(rule=(RESTART, "rule 1"))),
], ids=["few", "another", "as the user wants", "it trains", "a signal", "too many ports", "a rule"])  # fmt: skip
def test_an_end_that_is_not_a_crash_loop_costs_a_restart(known: Case) -> None:
    assert verdict.of(known)[:3] == (CONTINUE, "worker-0 is gone.", True)


def test_a_job_that_trains_is_in_a_crash_loop_if_one_place_fails_after_the_same_step() -> None:
    at_one_place = case(failure(), errors_before=("ValueError|train.py:7 main|step 7", 2), made_step=True)
    assert verdict.of(at_one_place).reason.endswith("none of them got past step 7")


def test_a_verdict_changes_nothing() -> None:
    known = case(failure(), left=0)
    before = repr(known)
    verdict.of(known)
    assert repr(known) == before
