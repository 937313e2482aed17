"""Measures the cost of a lost worker and a lost parameter server for the other members, and the model's final loss.

Jobs of 2 ps, a chief, 2 workers and an evaluator train examples/ps/click.py to its end. In every other one worker 0 is
lost with all of its processes, then a ps, several times; what each process prints is kept with its moment.

    python benchmarks/parameter_servers.py --repeats 2 --losses 5
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from measure.ours import OutriderJob, outrider
from measure.processes import load
from measure.report import seconds, spread, table, write

PROBE = str(Path(__file__).parent / "ps_probe.py")
PATIENCE, SETTLED = 240.0, 6.0
"""Seconds: for anything to come; of training before and between what is done to it."""
OTHERS = ("chief-0", "worker-0", "worker-1")
_STEP = re.compile(r"(?P<time>[\d.]+) global_step: (?P<step>\d+) ")
_BEGAN = re.compile(r"(?P<time>[\d.]+) \w+ \d+ of {")
_LOSS = re.compile(r"evaluated: (?P<step>\d+) loss: (?P<loss>[\d.]+)")


T = TypeVar("T")


class PsJob(OutriderJob):
    def start(self) -> None:
        command = outrider("run", "--job", self.job, *self.flags, *self.script)
        self.started = time.time()
        with self.log.open("ab") as log:
            self._run = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)

    def lines(self, seat: str) -> str:
        """Whole ones, of all processes that held it."""
        texts = (path.read_text() for path in sorted(self.log.parent.glob(f"{seat}.*.txt")))
        return "".join(text[: text.rfind("\n") + 1] for text in texts)

    def steps(self, seat: str, after: float = 0.0) -> list[float]:
        moments = (float(line["time"]) for line in _STEP.finditer(self.lines(seat)))
        return sorted(moment for moment in moments if moment > after)

    def began(self, seat: str, after: float) -> float | None:
        """When its newest script began, if that is after this time."""
        found = [float(line["time"]) for line in _BEGAN.finditer(self.lines(seat))]
        return max((moment for moment in found if moment > after), default=None)

    def wait(self, look: Callable[[], T | None], what: str) -> T:
        until = time.time() + PATIENCE
        while time.time() < until and self.is_alive():
            if (found := look()) is not None:
                return found
            time.sleep(0.05)
        raise TimeoutError(f"{what} did not come; the log: {self.log}")

    def count(self, kind: str) -> int:
        """The number of events of this kind."""
        text = (self.home / "jobs" / self.job / "events.jsonl").read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return sum(json.loads(line)["kind"] == kind for line in lines)

    def pid(self, seat: str) -> int | None:
        role, _, index = seat.partition("-")
        found = (m for m in self.status()["members"] if (m["role"], m["rank_index"]) == (role, int(index)))
        return next((m["pids"]["workers"][0] for m in found if m["pids"]["workers"]), None)

    def lose_seat(self, seat: str) -> tuple[float, float]:
        """When it was lost, and when the script in its place began."""
        at = self.lose(self.wait(lambda: self.pid(seat), f"a process of {seat}"))
        return at, self.wait(lambda: self.began(seat, at), f"another {seat}")


@dataclass(frozen=True, slots=True)
class Cost:
    worker_before: float
    """Steps a second of the other worker."""
    worker_without: float
    worker_worst: float
    """Its longest time between two steps while the lost one was away."""
    ps_steps: list[float]
    """Seconds from the beginning of the new ps's script to the first step of the last of those who train, each time."""
    ps_all: list[float]
    """The same from its loss."""
    stuck: int
    """How many sessions were stuck, and started again in place."""


def hurt(job: PsJob, losses: int) -> Cost:
    for seat in OTHERS:
        job.wait(lambda seat=seat: job.steps(seat)[20:] or None, f"steps of {seat}")
    time.sleep(SETTLED)
    at, back = job.lose_seat("worker-0")
    before = [moment for moment in job.steps("worker-1") if at - SETTLED < moment <= at]
    meanwhile = [moment for moment in job.steps("worker-1") if at < moment < back]
    gaps = [later - earlier for earlier, later in pairwise(meanwhile)]
    job.wait(lambda: job.steps("worker-0", back) or None, "the new worker's steps")
    after = [lose_ps(job, f"ps-{number % 2}") for number in range(losses)]
    stuck = job.count("SessionStuck")
    return Cost(len(before) / SETTLED, len(meanwhile) / (back - at), max(gaps, default=back - at),
                [begun for begun, _ in after], [lost for _, lost in after], stuck)  # fmt: skip


def lose_ps(job: PsJob, seat: str) -> tuple[float, float]:
    """Seconds to the first step of the last of those who train, from when its script began and from its loss."""
    time.sleep(SETTLED)
    lost, serves = job.lose_seat(seat)
    first = [job.wait(lambda one=one: job.steps(one, serves)[:1] or None, f"steps of {one}")[0] for one in OTHERS]
    return max(first) - serves, max(first) - lost


def run(steps: int, losses: int) -> tuple[float, Cost | None]:
    """The loss of the last checkpoint, as the evaluator has seen it. `losses`: of a ps; 0: nothing is lost."""
    with tempfile.TemporaryDirectory(prefix="ps-bench-") as name:
        folder = Path(name)
        script = [PROBE, name, "--model", f"{name}/model", "--steps", str(steps), "--pause", "0.02"]
        job = PsJob(5, script, folder / "log.txt", flags=["--ps", "2", "--workers", "2", "--chief", "--evaluator"])
        job.start()
        try:
            cost = hurt(job, losses) if losses else None
            while job.is_alive():
                time.sleep(0.5)
            losses = {int(found["step"]): float(found["loss"]) for found in _LOSS.finditer(job.lines("evaluator-0"))}
            assert losses, job.log.read_text()[-3000:]
            return losses[max(losses)], cost
        finally:
            job.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--steps", type=int, default=16000)
    parser.add_argument("--losses", type=int, default=5)
    asked = parser.parse_args()
    calm = [run(asked.steps, 0)[0] for _ in range(asked.repeats)]
    disturbed = [run(asked.steps, asked.losses) for _ in range(asked.repeats)]
    costs = [cost for _, cost in disturbed if cost is not None]
    begun = [each for cost in costs for each in cost.ps_steps]
    share = [cost.worker_without / cost.worker_before for cost in costs]
    rate = f"{statistics.median(share):.2f}, least {min(share):.2f}"
    longest = f"{max(begun):.1f} s, {sum(cost.stuck for cost in costs)}"
    rows = [
        ["worker lost: the other one's rate without it, of that before", rate],
        ["worker lost: the other one's longest wait for a step", spread([cost.worker_worst for cost in costs])],
        ["ps lost: its script begins → first step of all", spread(begun)],
        ["ps lost: kill → first step of all", spread([each for cost in costs for each in cost.ps_all])],
        ["ps lost: the longest, and how many sessions were stuck", longest],
        ["last loss, nothing lost", ", ".join(f"{loss:.4f}" for loss in calm)],
        ["last loss, worker and ps lost", ", ".join(f"{loss:.4f}" for loss, _ in disturbed)],
    ]  # fmt: skip
    print(table(["what", f"{asked.repeats} jobs each, load {load():.1f}"], rows))
    print(write("parameter_servers", {"calm": calm, "disturbed": [loss for loss, _ in disturbed],
                                      "costs": [seconds(each) for each in begun]}))  # fmt: skip


if __name__ == "__main__":
    main()
