"""What one step of the master's core costs that creates so many new members: seconds of processor time, the best of
five, for each number; and the bytes that are written for the next master.

Run: python benchmarks/staffing.py [--members 1000 5000 20000]
"""

from __future__ import annotations

import argparse
import json
import time

from measure.report import table

from outrider.master.core.actions import CreatePod, SaveStatus
from outrider.master.core.events import Began, PodsListed
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.job import State
from outrider.master.core.step import step
from outrider.wire.ids import JobName

TRIES = 5


def seconds_and_bytes(members: int) -> tuple[float, int]:
    spec, state = JobSpec(JobName("bench/large"), members, members, members), State()
    step(state, Began(1, spec, None, 1_700_000_000.0), 0.0)
    began = time.process_time()
    actions = step(state, PodsListed(()), 1.0)
    took = time.process_time() - began
    assert sum(isinstance(action, CreatePod) for action in actions) == members
    (saved,) = (action.status["saved"] for action in actions if isinstance(action, SaveStatus))
    return took, len(json.dumps(saved))


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=[1000, 5000, 10_000, 20_000, 32_768])
    rows = []
    for members in parser.parse_args().members:
        found = [seconds_and_bytes(members) for _ in range(TRIES)]
        rows.append([str(members), f"{min(took for took, _ in found):.3f}", f"{found[0][1] / 1024:.0f}"])
    print(table(["new members", "s", "KiB saved"], rows))


if __name__ == "__main__":
    main()
