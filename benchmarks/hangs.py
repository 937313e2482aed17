"""Measures how real hangs and healthy slowness are reported, and after how many seconds.

Each kind of `hangs_probe.py` is a job of three members by `outrider run` with its default limits. For a hang it
measures when it is ended, the reported culprit, and when all ranks make steps again. A slow but working kind must not
be ended earlier than an evaluation would be, so it is watched until the user would get a warning, and some time longer.
Results are appended to a file; kinds with a result are not run again.

    python benchmarks/hangs.py [--kinds stopped lock] [--repeats 5] [--side-by-side 4] [--results hangs.jsonl]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

PROBE = Path(__file__).with_name("hangs_probe.py")
BEYOND, UNCLEAR, INIT, WORKS, HEALTHY = "beyond doubt", "unclear", "init", "works", "healthy"
LIMITS = {BEYOND: (0.0, 15.0), UNCLEAR: (55.0, 85.0), INIT: (595.0, 660.0), WORKS: (600.0, 640.0)}
"""Seconds from the fault to HangDetected; for an unclear hang, from the last look that saw work."""
WATCHED = 110.0
"""Seconds for which a working kind is watched."""
EXPECTED = {
    "stopped": (BEYOND, "rank 1"), "other_order": (BEYOND, "rank 1"), "branch": (BEYOND, "rank 1"),
    "barrier_in_a_branch": (BEYOND, "rank 0"), "holds_the_gil": (UNCLEAR, "rank 1"), "lock": (UNCLEAR, "rank 1"),
    "sleeps": (UNCLEAR, "rank 1"), "stuck_loader": (UNCLEAR, "rank 1"), "storage": (UNCLEAR, "rank 1"),
    "skipped": (UNCLEAR, "rank 1"), "two_groups": (UNCLEAR, ""), "two_barriers": (UNCLEAR, ""),
    "spins": (WORKS, "rank 1"), "init_waits": (INIT, "rank 1"),
}  # fmt: skip
SLOW = (
    "evaluates", "samples", "uploads", "compiles", "indexes_data", "saves", "joins_a_save", "tries_again", "grows",
    "collects_garbage", "reads_pages", "has_little_cpu", "waits_for_a_stopped_child", "runs_programs",
)  # fmt: skip


@dataclass
class Result:
    kind: str
    repeat: int
    expected: str
    said: str = ""
    """The sentence of HangDetected."""
    ended_after: float | None = None
    waits_after: float | None = None
    """Seconds from the fault to HangDetected and to SlowStep."""
    steps_after: float | None = None
    code: int | None = None
    load: float = 0.0
    wrong: str = ""


def run(kind: str, repeat: int) -> Result:
    verdict, culprit = EXPECTED.get(kind, (HEALTHY, ""))
    result = Result(kind, repeat, verdict, load=round(os.getloadavg()[0], 1))
    folder = Path(tempfile.mkdtemp(prefix="oh-"))
    name = f"h{os.getpid()}-{kind}-{repeat}".replace("_", "-")
    command = [sys.executable, "-m", "outrider", "run", "--nnodes", "3", "--nproc-per-node", "1", "--job", name]
    environment = {**os.environ, "OUTRIDER_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log:
        job = subprocess.Popen(
            [*command, str(PROBE), kind, str(folder)],
            stderr=log, stdout=subprocess.DEVNULL, env=environment, cwd=PROBE.parents[1],
        )  # fmt: skip
        try:
            _follow(job, result, folder)
        finally:
            job.terminate()
    _judge(result, verdict, culprit)
    if not result.wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _follow(job: subprocess.Popen[bytes], result: Result, folder: Path) -> None:
    fault = folder / "fault"
    while job.poll() is None:
        time.sleep(0.1)
        text = (folder / "log").read_text()
        began = float(fault.read_text() or 0) if fault.exists() else 0.0
        if not began:
            continue
        passed = time.time() - began
        if result.waits_after is None and "SlowStep" in text:
            result.waits_after = round(passed, 1)
        if result.ended_after is None and (found := re.search(r"HangDetected:? ([^\n]*)", text)):
            result.ended_after, result.said = round(passed, 1), found[1]
        stepped = folder / "stepped"
        if result.ended_after is not None and result.steps_after is None:
            at = float(stepped.read_text() or 0) if stepped.exists() else 0.0
            result.steps_after = round(at - began, 1) if at - began > result.ended_after else None
        if result.expected == WORKS and passed > WATCHED:
            job.send_signal(signal.SIGINT)
            job.wait()
    result.code = job.returncode


def _judge(result: Result, verdict: str, culprit: str) -> None:
    if verdict in (HEALTHY, WORKS):
        if result.ended_after is not None:
            result.wrong = "it was ended, and worked"
        elif verdict == WORKS and result.waits_after is None:
            result.wrong = "no warning said that it works"
        elif verdict == HEALTHY and result.code != 0:
            result.wrong = f"it ended with code {result.code}"
        return
    least, most = LIMITS[verdict]
    if result.ended_after is None:
        result.wrong = "it was not seen"
    elif not least <= result.ended_after <= most:
        result.wrong = f"it was ended after {result.ended_after} s, and {verdict} means {least:.0f} to {most:.0f} s"
    elif culprit and f"{culprit} on worker" not in result.said.split("waits for")[0]:
        result.wrong = f"{culprit} is to blame"
    elif result.code != 0:
        result.wrong = f"the job ended with code {result.code}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=[*EXPECTED, *SLOW], default=[*EXPECTED, *SLOW])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--side-by-side", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path("hangs.jsonl"))
    args = parser.parse_args()
    known = [json.loads(line) for line in args.results.read_text().splitlines()] if args.results.exists() else []
    there = {(each["kind"], each["repeat"]) for each in known}
    wanted = [(kind, n) for n in range(args.repeats) for kind in args.kinds if (kind, n) not in there]
    with ThreadPoolExecutor(args.side_by_side) as pool, args.results.open("a") as file:
        for future in as_completed([pool.submit(run, *each) for each in wanted]):
            result = future.result()
            known.append(asdict(result))
            file.write(json.dumps(known[-1]) + "\n")
            file.flush()
            print(f"{result.kind:26} {result.expected:13} ended {result.ended_after or '-':>6}  steps "
                  f"{result.steps_after or '-':>6}  warned {result.waits_after or '-':>6}  load {result.load:4}  "
                  f"{'WRONG: ' + result.wrong if result.wrong else 'as expected'}", flush=True)  # fmt: skip
    return int(any(each["wrong"] for each in known))


if __name__ == "__main__":
    sys.exit(main())
