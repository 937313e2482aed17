"""What the hooks cost a Python that starts: `python -c 0`, plain, as a descendant of a rank, and in a container.

    python benchmarks/python_start.py [--rounds 41] [--python /usr/bin/python3.11]

The hooks are copied as the init container copies them, without cached bytecode, and the Pythons write none, as in a
folder that the trainer may not write to. The ways take turns, so that a busy machine slows all of them alike; medians
of the wall clock and of the CPU time, which a busy machine disturbs less, in milliseconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOOKS = Path(__file__).resolve().parents[1] / "training_hooks"
MARKS = {"a Python that a rank starts": 10.0, "python -c 0 in a container": 40.0}
"""Milliseconds more than plain that each may take."""


def copied(folder: Path) -> Path:
    """The folder of hooks as it lies in the image (Dockerfile.sidecar)."""
    hooks = folder / "hooks"
    shutil.copytree(HOOKS, hooks / "training_hooks", ignore=shutil.ignore_patterns("__pycache__", "path"))
    shutil.copy(HOOKS / "path" / "sitecustomize.py", hooks)
    return hooks


def environments(hooks: Path, volume: Path) -> dict[str, dict[str, str]]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OUTRIDER", "PYTHON"))}
    plain["PYTHONDONTWRITEBYTECODE"] = "1"
    container = plain | {"PYTHONPATH": str(hooks), "OUTRIDER_DIR": str(volume), "OUTRIDER_HOOKS": str(hooks)}
    rank = container | {"OUTRIDER_WORKER": "1", "OUTRIDER_GENERATION": "1.1", "RANK": "0"}
    return {"plain": plain, **dict(zip(MARKS, (rank, container), strict=True))}


def started(python: str, environment: dict[str, str]) -> tuple[float, float]:
    """Milliseconds of the wall clock, and of CPU."""
    began = time.perf_counter()
    pid = os.posix_spawn(python, [python, "-c", "0"], environment)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{python} -c 0 ended with status {status}")
    return 1000 * (time.perf_counter() - began), 1000 * (usage.ru_utime + usage.ru_stime)


def measured(python: str, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """(wall, CPU) of each start."""
    with tempfile.TemporaryDirectory() as place:
        ways = environments(copied(Path(place)), Path(place))
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, environment in ways.items():
                found[name].append(started(python, environment))
    return found


def more(starts: list[tuple[float, float]], plain: list[tuple[float, float]], which: int) -> float:
    return statistics.median(each[which] - base[which] for each, base in zip(starts, plain, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--python", default=sys.executable)
    chosen = parser.parse_args()
    found = measured(chosen.python, chosen.rounds)
    version = subprocess.run([chosen.python, "-V"], capture_output=True, text=True, check=True).stdout.strip()
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{version}, {chosen.rounds} rounds, load {load}; milliseconds, medians")
    for name, starts in found.items():
        wall, cpu = (statistics.median(column) for column in zip(*starts, strict=True))
        line = f"{name:30} wall {wall:6.1f}  CPU {cpu:6.1f}"
        if name in MARKS:
            wall, cpu = (more(starts, found["plain"], which) for which in (0, 1))
            line += f"   more than plain: wall {wall:5.1f}, CPU {cpu:5.1f} (mark {MARKS[name]:.0f})"
        print(line)


if __name__ == "__main__":
    main()
