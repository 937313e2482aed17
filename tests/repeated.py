"""Runs a test command again and again beside a busy machine, and keeps a table of what came of it.

A test that fails once in ten runs is a bug, in the test or in us; this finds it. Each run is a line of the results
file; one that was cut off is run again, and what is there already is not.

    python -m tests.repeated --times 10 --stress 4 --results test.jsonl -- make test
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
CLOSING = re.compile(
    r"^(?:=+ )?((?:\d+ \w+, )*\d+ (?:passed|failed|error|errors)\b.* in [\d.]+s.*?)(?: =+)?$", re.MULTILINE
)


@contextlib.contextmanager
def busy(workers: int) -> Iterator[None]:
    """So many processes that compute, as long as it lasts."""
    if not workers:
        yield
        return
    stress = subprocess.Popen(["stress-ng", "--quiet", "--cpu", str(workers)])
    try:
        yield
    finally:
        stress.terminate()
        stress.wait()


def run(command: list[str], stress: int, log: Path) -> dict[str, Any]:
    """One run; its output is kept in `log` where it failed."""
    began = time.monotonic()
    with busy(stress), log.open("w+") as output:
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
        output.seek(0)
        said = output.read()
    if code == 0:
        log.unlink()
    return {
        "command": " ".join(command), "stress": stress, "code": code, "seconds": round(time.monotonic() - began),
        "load": round(os.getloadavg()[0], 1), "closing": CLOSING.findall(said), "failed": FAILED.findall(said),
    }  # fmt: skip


def table(results: list[dict[str, Any]]) -> str:
    """In Markdown, a row a run."""
    rows = ["| run | command | stress | s | load | exit | said | failed |", "| --- " * 8 + "|"]
    for number, each in enumerate(results, 1):
        said, failed = "; ".join(each["closing"]), ", ".join(each["failed"]) or "none"
        rows.append(
            f"| {number} | `{each['command']}` | {each['stress']} | {each['seconds']} | {each['load']} "
            f"| {each['code']} | {said} | {failed} |"
        )
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--stress", type=int, default=4, help="processes that compute beside it (stress-ng)")
    parser.add_argument("--results", type=Path, default=Path("repeated.jsonl"))
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    if args.stress and not shutil.which("stress-ng"):
        parser.error("stress-ng is missing: apt-get install stress-ng")
    results = [json.loads(line) for line in args.results.read_text().splitlines()] if args.results.exists() else []
    mine = [each for each in results if (each["command"], each["stress"]) == (" ".join(args.command), args.stress)]
    for number in range(len(mine), args.times):
        mine.append(run(args.command, args.stress, args.results.with_suffix(f".{number}.log")))
        with args.results.open("a") as file:
            file.write(json.dumps(mine[-1]) + "\n")
        print(table(mine[-1:]).splitlines()[-1], flush=True)
    print(table(mine))
    return int(any(each["code"] for each in mine))


if __name__ == "__main__":
    raise SystemExit(main())
