"""Trains on real digits with four members, kills a process and a whole member, and shows that the job recovers.

    python examples/digits/demo.py          (or: make demo)

It uses only the command line, as a user would: `outrider run` for an unmodified script, `outrider chaos` for the two
faults, `outrider events`, `status` and `plot` for the output at the end. Each fault comes when the loss file shows that
the training has made enough steps. The demo fails if the job fails, if the status has no record of a fault, or if the
model did not learn.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OUTRIDER = str(Path(sys.executable).parent / "outrider")
MEMBERS = 4
FAULTS = (("kill-process", "worker-1"), ("kill-member", "worker-3"))
LEAST_ACCURACY = 0.9
"""The least accuracy of a successful demo. A run without faults reaches 0.97 to 0.98, one of 30 epochs with both faults
at least 0.947, and a model that has learnt nothing 0.10."""
STEPS_BETWEEN = 120
"""The step of the first fault. The second fault comes at twice this step, or when the first one is over: on a busy
machine the job could end before that."""
LOG_EVERY = 10
"""Steps between two lines with a loss, from which the plot is made."""
LIMIT = 180.0
"""The most seconds of each wait."""

Losses = list[tuple[float, int, float]]
"""(time, step, loss) for each step."""


class Failure(Exception):
    """The demo did not show what it should."""


def main() -> int:
    args = parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    try:
        faults = train_with_faults(args)
        return show(args, faults)
    except Failure as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", default="digits-demo")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", type=Path, default=HERE.parent.parent / "demo-out")
    args = parser.parse_args()
    args.out = args.out.absolute()
    return args


def train_with_faults(args: argparse.Namespace) -> int:
    """Run the job and inject the faults; returns the number of faults."""
    with running(args) as run:
        for number, (fault, member) in enumerate(FAULTS, 1):
            wait_for_step(run, args.out, number * STEPS_BETWEEN)
            print(f"demo: outrider chaos {fault} {args.job} --member {member}", flush=True)
            outrider("chaos", fault, args.job, "--member", member)
            wait_for_recovery(run, args.job, number)
        if code := run.wait(timeout=LIMIT):
            raise Failure(f"the job ended with exit code {code}")
    return len(FAULTS)


@contextlib.contextmanager
def running(args: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    """The running job, which always ends with the demo."""
    script = [str(HERE / "train.py"), "--epochs", str(args.epochs), "--out", str(args.out)]
    script += ["--checkpoint", str(args.out / "digits.pt"), "--log-every", str(LOG_EVERY)]
    command = [OUTRIDER, "run", "--job", args.job, "--nnodes", str(MEMBERS), *script]
    print("demo: outrider", *command[1:], flush=True)
    run = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield run
    except subprocess.TimeoutExpired as late:
        raise Failure(f"the job did not end within {late.timeout:.0f} s") from None
    finally:
        if run.poll() is None:
            run.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(timeout=15)
            run.kill()
            run.wait()


def outrider(*arguments: str) -> str:
    """The output of a command."""
    try:
        done = subprocess.run([OUTRIDER, *arguments], capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise Failure(f"outrider {' '.join(arguments)} did not end within {LIMIT:.0f} s") from None
    if done.returncode:
        raise Failure(f"outrider {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def losses(out: Path) -> Losses:
    """(time, step, loss) as written by the script; repeated steps appear again. An unfinished last line is skipped."""
    try:
        lines = (out / "loss.csv").read_text().rpartition("\n")[0].splitlines()
    except FileNotFoundError:
        return []
    return [(float(row[0]), int(row[1]), float(row[2])) for row in csv.reader(lines) if len(row) == 3]


def highest(out: Path) -> int:
    return max((step for _, step, _ in losses(out)), default=0)


def wait_for_step(run: subprocess.Popen[bytes], out: Path, step: int) -> None:
    wait(run, lambda: highest(out) >= step, f"step {step}")


def wait_for_recovery(run: subprocess.Popen[bytes], job: str, faults: int) -> None:
    """Wait until the status has this number of faults with the time that each cost."""
    wait(run, lambda: len(recovered(job)) >= faults, f"the recovery from fault {faults}")


def recovered(job: str) -> list[dict[str, Any]]:
    """The faults from which training has recovered so far."""
    faults = json.loads(outrider("status", job, "--json"))["faults"]
    return [fault for fault in faults if fault["seconds_lost"] is not None]


def wait(run: subprocess.Popen[bytes], condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        if run.poll() is not None:
            raise Failure(f"the job ended with exit code {run.returncode} before {what}")
        if time.monotonic() > deadline:
            raise Failure(f"{what} was not reached within {LIMIT:.0f} s")
        time.sleep(0.05)


def show(args: argparse.Namespace, expected: int) -> int:
    """Print the timeline, the lost time and the accuracy, and draw the plot; returns the exit code."""
    faults = recovered(args.job)
    result = json.loads((args.out / "result.json").read_text())
    print(f"\nThe timeline (outrider events {args.job}, without its checkpoints):")
    print(*(line for line in outrider("events", args.job).splitlines() if "CheckpointSaved" not in line), sep="\n")
    print()
    for fault in faults:
        print(f"lost {fault['seconds_lost']:.2f} s: {fault['reason']}")
    print(f"lost in total: {sum(fault['seconds_lost'] for fault in faults):.2f} s")
    outrider("plot", args.job, "--output", str(args.out / "plot.png"))
    print(f"accuracy {result['accuracy']:.4f} after {result['steps']} steps")
    print(f"plot of loss, steps per second, members and faults: {args.out}/plot.png")
    if len(faults) < expected:
        raise Failure(f"{expected} faults were injected, but the status has {len(faults)}")
    if result["accuracy"] < LEAST_ACCURACY:
        raise Failure(f"the accuracy {result['accuracy']:.4f} is below {LEAST_ACCURACY}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
