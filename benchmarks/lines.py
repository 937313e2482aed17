"""What it costs a rank that its lines are searched: the same lines printed into `| cat`, and into the reader with its
matcher, in turn. As fast as they can be printed, through Python's own buffer and one by one (python -u), and at 100,000
lines a second, where what counts is how far the rank falls behind its clock.

One line in a thousand matches a pattern, so the number of reported matches shows how many lines were searched.

    python benchmarks/lines.py
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure.processes import load
from measure.report import table, write

from training_hooks.logs.capture import Outlet
from training_hooks.process.worker_channel import Channel

PROBE = str(Path(__file__).parent / "lines_probe.py")
PATTERNS = ["uncorrectable ECC", r"NCCL WARN .* timed out", r"loss (?P<loss>nan|inf)", r"CUDA error: (?P<what>.+)"]
EVERY = 1000
WAYS = {"as fast as it can": (0, False), "as fast as it can, -u": (0, True), "100,000 lines/s": (100_000, False)}


def command(lines: int, rate: int, unbuffered: bool, out: Path) -> list[str]:
    return [sys.executable, *(["-u"] if unbuffered else []), PROBE, str(lines), str(rate), str(EVERY), str(out)]


def into_cat(lines: int, rate: int, unbuffered: bool, folder: Path) -> dict[str, Any]:
    out = folder / "cat.json"
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat:
        subprocess.run(command(lines, rate, unbuffered, out), stdout=cat.stdin, check=True)
        assert cat.stdin is not None
        cat.stdin.close()
    return dict(json.loads(out.read_text()))


def into_reader(lines: int, rate: int, unbuffered: bool, folder: Path) -> dict[str, Any]:
    """Run with the reader, whose own output goes to /dev/null like that of this process."""
    out, channel = folder / "reader.json", Channel(str(folder), "up")
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        outlet = Outlet({"OUTRIDER_DIR": str(folder)})
        outlet.follow(PATTERNS)
        streams = outlet.open((1, 1), 0)
        assert streams is not None
        with subprocess.Popen(command(lines, rate, unbuffered, out), stdout=streams[0], stderr=streams[1]) as rank:
            for stream in streams:
                os.close(stream)
            found = matches(channel, rank)
        outlet.finish(20)
        found += sum(message["count"] for message in iter(channel.hear, None))
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
        channel.close()
    return {**json.loads(out.read_text()), "searched": found * EVERY / lines}


def matches(channel: Channel, rank: subprocess.Popen[bytes]) -> int:
    """The number of matches reported until the rank has ended."""
    found = 0
    while rank.poll() is None:
        select.select([channel], [], [], 0.1)
        found += sum(message["count"] for message in iter(channel.hear, None))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lines", type=int, default=500_000)
    args = parser.parse_args()
    results: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {way: [] for way in WAYS}
    for _ in range(args.rounds):
        for way, (rate, unbuffered) in WAYS.items():
            with tempfile.TemporaryDirectory(prefix="ob-") as folder:
                given = (args.lines, rate, unbuffered, Path(folder))
                results[way].append((into_cat(*given), into_reader(*given)))
    report(results, args.lines)
    return 0


def report(results: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]], lines: int) -> None:
    rows = []
    for way, pairs in results.items():
        plain, ours = ([pair[side] for pair in pairs] for side in (0, 1))
        rows.append([
            way,
            *(f"{middle(each, 'seconds'):.2f} s, {1e6 * middle(each, 'cpu') / lines:.2f} µs" for each in (plain, ours)),
            f"{statistics.median(b['seconds'] / a['seconds'] for a, b in pairs):.2f}",
            f"{statistics.median(b['cpu'] / a['cpu'] for a, b in pairs):.2f}",
            f"{1000 * middle(plain, 'late'):.0f} ms, {1000 * middle(ours, 'late'):.0f} ms",
            f"{middle(ours, 'searched'):.0%}",
        ])  # fmt: skip
    head = ["a rank prints", "into `| cat`: time, CPU a line", "into the reader", "time", "CPU", "behind its clock",
            "searched"]  # fmt: skip
    print(table(head, rows))
    print(f"\nwritten to {write('lines', {'lines': lines, 'results': results, 'load': load(), 'command': sys.argv})}")


def middle(each: list[dict[str, Any]], what: str) -> float:
    return statistics.median(result[what] for result in each)


if __name__ == "__main__":
    sys.exit(main())
