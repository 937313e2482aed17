"""How long the report of a large job takes, and how large it is.

    python benchmarks/report.py --members 512 --faults 20

The documents are made up: each rank index has a row of its own, and the evidence of each fault is as long as a master
writes at most. Prints the median and the longest of `--repeats` runs, without and with the start of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from outrider.report.job import Sources  # noqa: E402
from outrider.report.page import report  # noqa: E402
from tests.unit.report.documents import BEGAN, fault, hang, part, spans, status  # noqa: E402

SECONDS = 20_000.0


def documents(members: int, faults: int) -> tuple[dict[str, Any], dict[str, Any]]:
    apart = SECONDS / (faults + 1)
    noted = [fault(apart * n, n * 25 % members) if n % 3 else hang(apart * n, min(16, members), 1)
             for n in range(1, faults + 1)]  # fmt: skip
    for number, each in enumerate(noted):
        for row in each["evidence"]:
            row |= {"stack": [f"frame {number} {'x' * 380}"] * 12, "traceback": f"{number} " + "y" * 3990}
    most = 20_000 // members
    tracks = [
        {"seats": [[n, n]], "spans": spans([apart * m for m in range(1, faults + 1)], SECONDS, late=n % 97)[:most],
         "end": round(10 * SECONDS)}
        for n in range(members)
    ]  # fmt: skip
    return status(members, SECONDS), part(members, noted, SECONDS, tracks=tracks)


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--members", type=int, default=512)
    flags.add_argument("--faults", type=int, default=20)
    flags.add_argument("--repeats", type=int, default=5)
    chosen = flags.parse_args()
    held_status, held_part = documents(chosen.members, chosen.faults)
    took, size = [], 0
    for _ in range(chosen.repeats):
        began = time.monotonic()
        size = len(report(Sources(held_status, [("history-1.json", held_part)]), BEGAN + SECONDS).encode())
        took.append(time.monotonic() - began)
    commands = [_command(held_status, held_part) for _ in range(chosen.repeats)]
    print(f"{chosen.members} members, {chosen.faults} faults: {size / 1000:.0f} kB")
    print(f"the page: {statistics.median(took):.2f} s, max {max(took):.2f} s")
    print(f"outrider report: {statistics.median(commands):.2f} s, max {max(commands):.2f} s")
    print(f"load {os.getloadavg()[0]:.1f}")


def _command(held_status: Any, held_part: Any) -> float:
    with tempfile.TemporaryDirectory(prefix="or-") as home:
        folder = Path(home) / "jobs" / "digits"
        folder.mkdir(parents=True)
        (folder / "lock").write_text("4999999")
        (folder / "status.json").write_text(json.dumps(held_status))
        (folder / "history-1.json").write_text(json.dumps(held_part))
        began = time.monotonic()
        command = [sys.executable, "-P", "-m", "outrider", "report", "digits", "-o", str(Path(home) / "r.html")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OUTRIDER_HOME": home})
        return time.monotonic() - began


if __name__ == "__main__":
    main()
