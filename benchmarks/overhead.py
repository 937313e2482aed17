"""What Outrider costs a training that runs well: the steps of a 10 ms loop under torchrun and under Outrider, in turn,
and what a sidecar and the master take meanwhile.

One process, so that nothing but the launcher differs; the two take turns within one run, so that both meet the same
machine. The spread is the distance of the quartiles: a smaller difference of the medians may be noise.

    python benchmarks/overhead.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure.ours import OutriderJob
from measure.processes import cpu_seconds, load, memory_mib
from measure.report import table, write
from overhead_probe import train

PROBE = str(Path(__file__).parent / "overhead_probe.py")
WIDTHS = range(128, 4096, 64)
STEP = 0.010


def width_for(step: float) -> int:
    """The width at which a step takes about that long here."""
    return next(width for width in WIDTHS if statistics.median(train(25, width)) >= step)


def under_torchrun(width: int, steps: int, folder: Path) -> list[float]:
    out = folder / "times.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", PROBE]
    command += ["--steps", str(steps), "--width", str(width), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=60 + 20 * steps * STEP)
    return list(json.loads(out.read_text()))


def under_outrider(width: int, steps: int, folder: Path, usage: dict[str, list[float]]) -> list[float]:
    """The same, and meanwhile what sidecar and master use is added to `usage`."""
    out = folder / "times.json"
    script = [PROBE, "--steps", str(steps), "--width", str(width), "--out", str(out)]
    job = OutriderJob(1, script, folder / "outrider.log")
    job.start()
    try:
        watch_usage(job, steps * STEP / 2, usage)
        deadline = time.time() + 60 + 20 * steps * STEP
        while not out.exists():
            if time.time() > deadline or (not job.is_alive() and not out.exists()):
                raise SystemExit(f"no steps came from outrider; its log: {job.log}")
            time.sleep(0.1)
    finally:
        job.stop()
    return list(json.loads(out.read_text()))


def watch_usage(job: OutriderJob, seconds: float, usage: dict[str, list[float]]) -> None:
    """RSS and CPU of sidecar and master over some seconds of training."""
    pids = job.wait_for_pids()
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    for name, pid in pids.items():
        usage.setdefault(f"{name} MiB", []).append(memory_mib(pid))
        usage.setdefault(f"{name} cpu %", []).append((cpu_seconds(pid) - before[name]) / seconds * 100)


def quartiles(times: list[float]) -> tuple[float, float]:
    """Median and spread in milliseconds."""
    low, middle, high = statistics.quantiles(times, n=4)
    return middle * 1000, (high - low) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    width, times, usage = width_for(STEP), {"torchrun": [], "outrider": []}, dict[str, list[float]]()
    loads = []
    for number in range(args.rounds):
        with tempfile.TemporaryDirectory(prefix="ob-") as folder:
            times["torchrun"] += under_torchrun(width, args.steps, Path(folder))
        loads.append(load())
        with tempfile.TemporaryDirectory(prefix="ob-") as folder:
            times["outrider"] += under_outrider(width, args.steps, Path(folder), usage)
        print(f"round {number + 1} of {args.rounds}, load {load():.1f}", flush=True)
    return report(times, usage, width, loads)


def report(times: dict[str, list[float]], usage: dict[str, list[float]], width: int, loads: list[float]) -> int:
    """The table; fails where the medians differ by more than the spread of torchrun's own steps."""
    shown = {name: quartiles(values) for name, values in times.items()}
    rows = [[n, f"{middle:.3f} ms", f"{spread:.3f} ms", str(len(times[n]))] for n, (middle, spread) in shown.items()]
    print("\n" + table(["launcher", "median step", "spread (quartiles)", "steps"], rows))
    difference, spread = shown["outrider"][0] - shown["torchrun"][0], shown["torchrun"][1]
    print(f"\nOutrider's median differs by {difference:+.3f} ms ({difference / shown['torchrun'][0]:+.2%}), "
          f"the spread is {spread:.3f} ms; load {min(loads):.1f}–{max(loads):.1f}")  # fmt: skip
    print(table(["process", "median"], [[name, f"{statistics.median(v):.2f}"] for name, v in usage.items()]))
    result = {"median_and_spread_ms": shown, "usage": usage, "width": width, "loads": loads, "command": sys.argv}
    print(f"\nwritten to {write('overhead', result)}")
    return int(abs(difference) > spread)


if __name__ == "__main__":
    sys.exit(main())
