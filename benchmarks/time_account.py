"""Does the time account add up, and does it say what the script itself says?

Runs jobs of two or three members that are killed, frozen and restarted at random (the seed is stated), and compares the
`time` of the status with the number of members times the age of the job, and with what the ranks wrote down themselves.

    python benchmarks/time_account.py --jobs 20
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from measure.ours import OutriderJob, outrider
from measure.own_account import SEEN, beyond, of_the_script

FAULTS = ("kill-process", "kill-launcher", "kill-member", "kill-sidecar", "hang", "restart")
SCRIPT = Path(__file__).with_name("time_probe.py")
WITHIN = 0.1
"""Seconds of each member by which the sum may differ from its age: the last status is written before the job ends."""
MOST_UNKNOWN = 0.01


def hurt(job: OutriderJob, kind: str) -> None:
    command = ("restart", job.job) if kind == "restart" else ("chaos", kind, job.job)
    subprocess.run(outrider(*command), env=job.environment, capture_output=True, timeout=60)


def played(number: int, seed: int, folder: Path, steps: int) -> dict[str, Any]:
    rng = random.Random(f"{seed} {number}")
    members = rng.choice((2, 3))
    faults = [rng.choice(FAULTS) for _ in range(rng.randint(1, 4))]
    script = [str(SCRIPT), str(folder), str(steps)]
    job = OutriderJob(members, script, folder / "log", flags=["--hang-after", "5"])
    job.start()
    status: dict[str, Any] = {}
    at = sorted(rng.randint(5, steps // 2) for _ in faults)
    left = list(zip(at, faults, strict=True))
    while job.is_alive():
        with contextlib.suppress(subprocess.SubprocessError, ValueError):
            status = job.status()
            if left and status["step"] >= left[0][0]:
                hurt(job, left.pop(0)[1])
        time.sleep(0.2)
    with contextlib.suppress(subprocess.SubprocessError, ValueError):
        status = job.status()
    parts = [json.loads(path.read_text()) for path in (job.home / "jobs" / job.job).glob("history-*.json")]
    newest = max(parts, key=lambda part: part["until"])
    wall = members * (newest["until"] - newest["began_at"])
    job.stop()
    ours = status["time"]
    return {
        "members": members,
        "faults": faults,
        "phase": status["phase"],
        "wall": wall,
        "off": abs(sum(ours.values()) - wall),
        "unknown": ours.get("unknown", 0.0) / wall,
        "beyond": beyond(ours, *of_the_script(folder, _ends(parts))),
        "goodput": status["goodput"],
    }


def _ends(parts: list[dict[str, Any]]) -> list[float]:
    """The unix times at which something may have been cut short: faults, and the beginnings of later generations."""
    faults = [fault["at"] for part in parts for fault in part["faults"]]
    return faults + [part["began_at"] + ds / 10 for part in parts for ds, *_ in part["generations"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    bad = 0
    print(f"compared with the script: {', '.join(SEEN)}")
    for number in range(options.jobs):
        with tempfile.TemporaryDirectory() as folder:
            found = played(number, options.seed, Path(folder), options.steps)
        is_bad = found["off"] > WITHIN * found["members"] or found["unknown"] > MOST_UNKNOWN or bool(found["beyond"])
        bad += is_bad
        differences = ", ".join(
            f"{cause} {ours:.2f} s, script {own:.2f} s" for cause, (ours, own) in found["beyond"].items()
        )
        print(
            f"{number:3} {'BAD' if is_bad else 'ok '} {found['members']} members, {'+'.join(found['faults'])}, "
            f"{found['phase']}: wall {found['wall']:.1f} s, sum off by {found['off']:.3f} s, "
            f"unknown {found['unknown']:.2%}, goodput {found['goodput'] or 0:.1%} {differences}",
            flush=True,
        )
    print(f"{options.jobs - bad} of {options.jobs} jobs within the limits")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
