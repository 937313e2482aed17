"""`outrider chaos cpu-load` and other lasting faults in a member of a local job, whose only process waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.cli.commands.test_commands_to_a_master import bystander, claim, end


@pytest.fixture
def member(running_job: Any) -> Iterator[Any]:
    job = running_job()
    marks = {"OUTRIDER_DIR": str(job.folder / "members" / "worker-0"), "OUTRIDER_HOOKS": "hooks"}
    (job.folder / "members" / "worker-0").mkdir(parents=True, exist_ok=True)
    process = bystander(**marks, OUTRIDER_POD_UID=f"{job.folder}-pod", OUTRIDER_JOB_UID=f"{job.folder}-job")
    job.status["members"] = claim(job.folder, process.pid)
    yield job
    end(process)


def test_a_fault_is_made_listed_and_undone(member: Any, outrider: Any) -> None:
    made = outrider("chaos", "cpu-load", "5", "digits", "--member", "worker-0")
    assert made.exit_code == 0, made.stderr
    assert "worker-0 of digits: " in made.stdout
    assert "busy for 5 % of the time" in made.stdout
    assert "until: outrider chaos undo digits" in made.stdout
    assert "worker-0: cpu-load=5: " in outrider("chaos", "list", "digits").stdout
    assert outrider("chaos", "undo", "digits").stdout == "worker-0 of digits: cpu-load=5 undone\n"
    assert outrider("chaos", "list", "digits").stdout == "no active fault in digits\n"
    assert outrider("chaos", "undo", "digits").stdout == "no active fault in digits\n"


def test_a_fault_says_when_it_ends(member: Any, outrider: Any) -> None:
    made = outrider("chaos", "bad-node", "--slow", "--for", "1m", "digits")
    assert made.stdout.endswith("the probe of the next node check takes five times as long, for 60 s\n"), made.stderr
    assert outrider("chaos", "undo", "--fault", "bad-node").stdout.endswith("bad-node=slow:60s undone\n")


@pytest.mark.parametrize("state", ["starting", "checking", "spare"])
def test_while_no_generation_runs_the_member_must_be_given(member: Any, outrider: Any, state: str) -> None:
    member.status["members"][0]["state"] = state
    refused = outrider("chaos", "freeze-member", "--for", "5s", "digits")
    assert refused.exit_code == 2
    assert refused.stderr == (
        "outrider: no running member of digits has a template or launcher; choose one with --member (candidates: "
        "worker-0)\n"
    )
    assert outrider("chaos", "bad-node", "digits", "--member", "worker-0").exit_code == 0
    outrider("chaos", "undo", "digits")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cpu-load", "110"], "an integer from 1 to 100"),
        (["fill-memory", "half"], '"fill-memory=half": must be fill-memory=PERCENT'),
        (["cpu-load", "5", "--for", "0s"], "--for 0s: must be greater than 0"),
        (["hang", "--for", "5s"], "no worker process runs here now"),
        (["bad-node", "--member", "worker-9"], "--member worker-9: must be a member of digits; it has worker-0"),
    ],
)
def test_an_impossible_fault_is_refused(member: Any, outrider: Any, words: list[str], said: str) -> None:
    refused = outrider("chaos", *words)
    assert refused.exit_code == 2
    assert said in " ".join(refused.stderr.split())
