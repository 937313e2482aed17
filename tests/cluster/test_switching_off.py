"""A running job is switched off and on again: its ranks train through both, and off nothing of it is mended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.cluster import SYSTEM, ClusterJob, kubectl, rolled_out, until
from tests.cluster.conftest import folder_of
from tests.lines import whole_lines
from tests.local.chapters import live_through

ALONE = """
import json, os, pathlib, sys, time
folder, step = pathlib.Path(sys.argv[1]), 0
file = open(folder / f"alone-{os.environ['RANK']}-{os.getpid()}", "w", buffering=1)
while not (folder / "end").exists():
    print(json.dumps({"step": step, "generation": os.environ["OUTRIDER_GENERATION"]}), file=file)
    step, _ = step + 1, time.sleep(0.1)
"""
"""A rank that needs no other one: what becomes of it when another one dies is not torch's doing."""
MORE = 30


class Alone(ClusterJob):
    def __init__(self, *arguments: Any, **spec: Any) -> None:
        super().__init__(*arguments, script=ALONE, **spec)

    def lines(self, generation: int) -> dict[tuple[int, int], int]:
        """By rank and pid, the lines that were written in this generation (its number)."""
        found = {}
        for path in self.folder.glob("alone-*"):
            _, rank, pid = path.name.split("-")
            said = [json.loads(line) for line in whole_lines(path)]
            if said and said[-1]["generation"].endswith(f".{generation}"):
                found[int(rank), int(pid)] = len(said)
        return found

    def runs(self, generation: int, ranks: int = 4) -> dict[tuple[int, int], int]:
        return until(lambda: found if len(found := self.lines(generation)) == ranks else None, self.story)

    def goes_on(self, before: dict[tuple[int, int], int], but: tuple[int, ...] = (), generation: int = 1) -> None:
        """Every rank writes on, in the process that it had."""
        those = {who: lines for who, lines in before.items() if who[0] not in but}
        now = self.lines
        until(lambda: all(now(generation).get(who, 0) > lines + MORE for who, lines in those.items()), self.story)
        assert now(generation).keys() == before.keys()

    def annotate(self, note: str) -> None:
        self.kubectl("annotate", "--overwrite", "elasticjob", self.name, f"outrider.dev/{note}")

    def supervised(self, status: str, reason: str = "") -> None:
        def holds() -> bool:
            found = [c for c in self.status().get("conditions") or () if c["type"] == "Supervised"]
            return bool(found) and found[0]["status"] == status and found[0]["reason"] in (reason, "Supervised")

        until(holds, self.story)


@pytest.fixture
def alone(namespace: str) -> Alone:
    return Alone(namespace, "alone", folder_of(namespace, "alone"))


def test_switching_off(alone: Alone, subtests: pytest.Subtests) -> None:
    live_through(
        subtests,
        alone,
        switched_off_it_trains_on_and_a_rank_that_dies_is_mended_when_it_is_on_again,
        what_would_be_done_is_said_while_a_job_is_observed_and_done_when_it_is_not,
    )


def switched_off_it_trains_on_and_a_rank_that_dies_is_mended_when_it_is_on_again(alone: Alone) -> None:
    before, pods = alone.runs(1), alone.uids()
    alone.annotate("supervise=off")
    alone.supervised("False", "SupervisionOff")
    alone.goes_on(before)
    alone.annotate("supervise-")
    alone.supervised("True")
    alone.event("GenerationAdopted")
    before = alone.lines(1)
    alone.goes_on(before)

    alone.annotate("supervise=off")
    alone.supervised("False", "SupervisionOff")
    alone.execute(alone.pod("worker-1"), f"kill -9 {alone.pid_of(alone.pod('worker-1'), 'rank 3')}")
    before = alone.lines(1)
    alone.goes_on(before, but=(3,))
    assert alone.keeps(pods)
    assert len(alone.pods()) == 2
    alone.annotate("supervise-")
    alone.runs(2)
    assert alone.keeps(pods), "as after any crash: in place"


@pytest.mark.exhaustive
@pytest.mark.ends_masters
def test_one_setting_of_the_master_leaves_all_jobs_alone_and_takes_them_over_again(alone: Alone) -> None:
    before, pods = alone.runs(1), alone.uids()
    try:
        _set("OUTRIDER_MODE=off")
        alone.supervised("False", "SupervisionOff")
        alone.goes_on(before)
    finally:
        _set("OUTRIDER_MODE-")
    alone.supervised("True")
    alone.goes_on(alone.lines(1))
    assert alone.lines(1).keys() == before.keys()
    assert alone.keeps(pods)


def _set(variable: str) -> None:
    kubectl("-n", SYSTEM, "set", "env", "deployment", "--all", variable)
    rolled_out("outrider-master")


def what_would_be_done_is_said_while_a_job_is_observed_and_done_when_it_is_not(alone: Alone) -> None:
    alone.runs(2)
    alone.annotate("mode=observe")
    alone.supervised("False", "Observed")
    pods = alone.uids()
    alone.execute(alone.pod("worker-1"), f"kill -9 {alone.pid_of(alone.pod('worker-1'), 'rank 3')}")
    alone.event("DryRun", "stop generation", "killed by SIGKILL")
    alone.goes_on(alone.lines(2), but=(3,), generation=2)
    assert alone.keeps(pods)
    alone.annotate("mode-")
    alone.runs(3)
    assert alone.keeps(pods)
