"""A rank on a GPU is killed: from there to the first step behind its checkpoint, under Outrider and under torchrun.

One rank over NCCL, forked from a template that has imported torch and never touched CUDA. It takes more than half of
the GPU's memory, so the next generation begins only if the killed one's is back. Each repeat kills the rank once.

    python benchmarks/gpu.py --gib 45 --repeats 5
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from measure.ours import OutriderJob
from measure.peer import TorchrunJob
from measure.report import middle, spread, table, write

PROBE = str(Path(__file__).parent / "gpu_probe.py")
LIMIT = 120.0


def worlds(folder: Path) -> list[list[dict[str, Any]]]:
    """What each process has written, the oldest first."""
    logs = [[json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
            for log in folder.glob("steps-*")]  # fmt: skip
    return sorted((log for log in logs if log), key=lambda log: float(log[0]["begun"]))


def wait_for(job: OutriderJob | TorchrunJob, folder: Path, number: int, steps: int) -> list[dict[str, Any]]:
    """The log of the process of this number, once it has made so many steps."""
    deadline = time.time() + LIMIT
    while time.time() < deadline:
        found = worlds(folder)
        if len(found) > number and len(found[number]) > steps:
            return found[number]
        time.sleep(0.01)
    raise SystemExit(f"process {number} made no {steps} steps within {LIMIT:.0f} s; the log: {job.log.read_text()}")


def recoveries(job: OutriderJob | TorchrunJob, folder: Path, repeats: int) -> list[float]:
    """Seconds from each kill to the next process's first step, which is the one behind the checkpoint."""
    found = []
    job.start()
    try:
        for number in range(repeats):
            killed = wait_for(job, folder, number, 25)
            at = time.time()
            os.kill(killed[0]["pid"], signal.SIGKILL)
            first = wait_for(job, folder, number + 1, 1)[1]
            made = {row["step"]: row["loss"] for log in worlds(folder)[: number + 1] for row in log[1:]}
            before = made[first["step"]] if first["step"] in made else first["loss"]
            assert first["step"] % 10 == 1, f"step {first['step']} is not behind a checkpoint"
            assert abs(before - first["loss"]) < 1e-4, f"step {first['step']} is another than before"
            found.append(first["time"] - at)
    finally:
        job.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=45.0, help="memory of the GPU that the rank takes")
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    rows, result = [], {}
    for name, kind in (("Outrider", OutriderJob), ("torchrun", TorchrunJob)):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            job = kind(1, [PROBE, str(asked.gib), place], folder / "log")
            result[name] = recoveries(job, folder, asked.repeats)
        rows.append([name, spread(result[name])])
    ratio = (middle(result["torchrun"]) or 0.0) / (middle(result["Outrider"]) or 1.0)
    print(table(["a killed rank on a GPU, to its first new step", "median and maximum"], rows), f"\n{ratio:.1f} ×")
    write("gpu", {"gib": asked.gib, **result})


if __name__ == "__main__":
    main()
