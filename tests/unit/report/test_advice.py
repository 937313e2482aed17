"""What would have helped is computed from the account and the stages; nothing is said if nothing would have."""

from __future__ import annotations

from typing import Any

from outrider.report.advice import Advice, advice
from outrider.report.job import Sources, job_of
from tests.unit.report.documents import BEGAN, STAGES, at, fault, hang, part, status


def of(status_: dict[str, Any], *parts: Any, events: tuple[Any, ...] = ()) -> dict[str, Advice]:
    """The advice by its page."""
    job = job_of(Sources(status_, [(f"part {n}", each) for n, each in enumerate(parts)], events), BEGAN + 4000)
    return {each.page.rpartition("/")[2]: each for each in advice(job)}


def quiet(members: int = 4, **spent: float) -> dict[str, Any]:
    """A status whose account has new steps and these seconds of each member."""
    rest = {cause: members * each for cause, each in spent.items()}
    return status(members, time={"productive": members * 4000.0 - sum(rest.values()), **rest})


def without(*stages: str) -> dict[str, float]:
    return STAGES | dict.fromkeys(stages, 0.0)


def test_a_job_without_losses_gets_none() -> None:
    assert of(quiet(), part(4, [])) == {}
    assert of(quiet(), part(4, [fault(1000.0, stages=without("wait", "new_step"))])) == {}


def test_small_losses_are_not_worth_it() -> None:
    assert of(quiet(), part(4, [fault(1000.0, stages=without("new_step") | {"wait": 3.9})])) == {}
    assert list(of(quiet(), part(4, [fault(1000.0, stages=without("new_step") | {"wait": 4.1})]))) == ["preemption.md"]


def test_a_spare_saves_what_was_waited_for() -> None:
    faults = [fault(1000.0, stages=without("new_step") | {"wait": 7.1}), fault(2000.0, 3, stages=without("new_step"))]
    found = of(quiet(), part(4, faults))["preemption.md"]
    assert found.what.startswith("A spare would have saved up to 10.2 s: after 2 faults the job waited for members")
    assert found.how == "stage wait: 7.1 s + 3.1 s = 10.2 s"


def test_checkpoints_in_memory_save_repeated_steps_and_nearer_saves_half_of_them() -> None:
    faults = [
        fault(1000.0, stages=without("wait") | {"new_step": 40.0}),
        fault(2000.0, 3, stages=without("wait", "new_step")),
    ]
    saves = tuple({"time": at(600.0 * n), "kind": "CheckpointSaved", "reason": "x"} for n in range(1, 5))
    found = of(quiet(checkpoint_stall=6.0), part(4, faults), events=saves)
    assert found["memory-checkpoints.md"].what.startswith("Checkpoints in memory would have saved up to 40.0 s")
    assert found["memory-checkpoints.md"].what.endswith("It saved about every 10 min 00 s.")
    assert found["checkpoints.md"].what.startswith("Saving twice as often would have saved about 14.0 s")
    assert found["checkpoints.md"].how.endswith("40.0 s / 2 − 6.0 s = 14.0 s")


def test_more_saves_that_cost_more_than_they_save_are_not_advised() -> None:
    faults = [fault(1000.0, stages=without("wait") | {"new_step": 40.0})]
    assert "checkpoints.md" not in of(quiet(checkpoint_stall=30.0), part(4, faults))


def test_a_job_with_checkpoints_in_memory_is_not_advised_to_have_them() -> None:
    faults = [fault(1000.0, stages=without("wait") | {"new_step": 40.0})]
    assert list(of(quiet() | {"replicated_step": 400}, part(4, faults))) == ["checkpoints.md"]


def test_half_the_hang_limit() -> None:
    found = of(quiet(), part(8, [hang(1000.0)]))["hangs.md"]
    assert found.what.startswith(
        "Half the hang limit would have saved about 30.1 s: hangs were noticed after 1 min 00 s"
    )
    assert found.how == "stage detect of hangs: 1 min 00 s; 1 min 00 s / 2 = 30.1 s"


def test_a_hang_that_was_found_before_its_limit_would_not_be_found_sooner_with_half_of_it() -> None:
    early = hang(1000.0) | {"reason": "No rank has completed a step for 60 s (phase eval, limit 600 s): x is stopped."}
    assert "hangs.md" not in of(quiet(hang=60.0), part(8, [early]))
    assert of(quiet(), part(8, [early, hang(2000.0)]))["hangs.md"].how.startswith("stage detect of hangs: 1 min 00 s;")


def test_a_hang_that_a_look_found_did_not_wait_for_a_limit() -> None:
    early = hang(1000.0) | {"reason": "No rank of generation 1.1 has completed a step for 12 s: rank 1 is stopped."}
    assert "hangs.md" not in of(quiet(hang=60.0), part(8, [early]))


def test_restarts_after_an_error_of_the_script_are_counted_if_the_job_failed_on_it() -> None:
    faults = [fault(1000.0 * n, seconds_lost=None, stages={}) for n in (1, 2, 3)]
    found = of(quiet() | {"phase": "failed"}, part(4, faults))["rules.md"]
    assert found.what.startswith(
        "Without restarts the job would have failed 50 min 00 s sooner: it ended with RuntimeError: CUDA error "
        "(train.py:61 in main), which occurred 3 times."
    )
    assert "rules.md" not in of(quiet() | {"phase": "succeeded"}, part(4, faults))


def test_a_job_that_saves_nothing_is_advised_to_save() -> None:
    faults = [fault(1000.0, stages=without("wait", "load") | {"new_step": 40.0})]
    found = of(quiet(), part(4, faults))
    assert list(found) == ["checkpoints.md"]
    assert found["checkpoints.md"].what.endswith("no save of the script was seen.")


def test_a_node_with_two_faults_is_named_if_there_is_another() -> None:
    faults = [fault(500.0 * n, 2, stages=without("wait", "new_step"), seconds_lost=10.0) for n in (1, 2, 3)]
    found = of(quiet(), part(4, [*faults, fault(3000.0, 1, stages=without("wait", "new_step"))]))["node-check.md"]
    assert found.what.startswith(
        "Another node than node-2 would have saved up to 30.0 s: 3 of 4 faults were on it (WorkerExited)"
    )
    assert found.how == "seconds lost by the faults on node-2: 10.0 s + 10.0 s + 10.0 s = 30.0 s"
    alone = part(1, [fault(500.0 * n, 0, stages={}, seconds_lost=10.0) for n in (1, 2)])
    assert "node-check.md" not in of(quiet(1), alone)


def test_data_saves_and_slow_members_by_their_share() -> None:
    found = of(quiet(data_wait=400.0, checkpoint_stall=200.0, slow_member=160.0), part(4, []))
    assert [each.saves for each in found.values()] == [400.0, 200.0, 160.0]
    assert found["time.md"].how == "data_wait / the time of all members: 26 min 40 s / 4 h 27 min = 10.0 %"
    assert of(quiet(data_wait=100.0, checkpoint_stall=100.0, slow_member=100.0), part(4, [])) == {}


def test_the_greatest_is_first_and_many_summands_are_not_listed() -> None:
    faults = [fault(100.0 * n, n % 4, node="", stages=without("new_step") | {"wait": float(n)}) for n in range(1, 9)]
    (found,) = of(quiet(), part(4, faults)).values()
    assert found.how == "stage wait: the sum of 8 of them, the greatest 8.0 s, is 36.0 s"
