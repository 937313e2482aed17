"""How long training waits for a checkpoint in memory, by our functions and by torch.save to a marked path, and how fast
it comes back, beside files of torch's and a peer.

    python benchmarks/memory_checkpoints.py                                     # 1 GiB, 7 rounds
    python benchmarks/memory_checkpoints.py --dlrover /tmp/dlrover/bin/python    # beside its flash checkpoint

One rank saves the same tensors by each way in turn. The memory lies under /dev/shm, as a pod's volume does. It fails
where a save takes more than 1.3 × a clone of the tensors, or a load less than half of a clone's speed: both copy the
tensors into new memory, whose pages cost more than the copy itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure.report import machine, table, write

from training_hooks import HOOKS_PATH
from training_hooks.abi import arena

PROBE = str(Path(__file__).parent / "memory_checkpoint_probe.py")
MOST_OF_A_CLONE, LEAST_OF_MEMCPY = 1.3, 0.5
Seconds = dict[str, list[float]]


def probe(python: str, environment: dict[str, str], *arguments: str) -> Seconds:
    with tempfile.TemporaryFile("w+") as said:
        environment = {**os.environ, **environment}
        process = subprocess.Popen(
            [python, PROBE, *arguments], env=environment, stdout=said, stderr=said, start_new_session=True
        )
        process.wait(1800)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a peer's saver process does not end by itself
        said.seek(0)
        lines = said.read().splitlines()
    for line in lines:
        if line.startswith("FOUND "):
            found: Seconds = json.loads(line.removeprefix("FOUND "))
            return found
    raise SystemExit("\n".join(["the probe failed:", *lines[-20:]]))


def measured(who: str, mebibytes: int, rounds: int, disk: Path) -> Seconds:
    volume = Path(tempfile.mkdtemp(prefix="outrider-", dir="/dev/shm"))
    size = (2 * mebibytes + 8) << 20
    try:
        arena.allot(arena.path_of(str(volume)), size)
        environment = {"OUTRIDER_DIR": str(volume), "OUTRIDER_HOOKS": HOOKS_PATH, "PYTHONPATH": HOOKS_PATH}
        environment |= {"OUTRIDER_CHECKPOINT_MEMORY": str(size), "OUTRIDER_GENERATION": "1.1", "RANK": "0"}
        place = str(disk / "state.pt")
        environment |= {"OUTRIDER_CHECKPOINT_PATH": place} if who == "marked" else {}
        return probe(sys.executable, environment, who, str(mebibytes), str(rounds), place)
    finally:
        shutil.rmtree(volume)


def ratio(mine: list[float], other: list[float]) -> float:
    """The median over the rounds, in each of which both took their turn."""
    return statistics.median(one / two for one, two in zip(mine, other, strict=True))


def rows_of_marked(found: Seconds, gibibytes: float) -> list[tuple[str, ...]]:
    rows = [
        ("torch.save to a marked path: training waits", "save"),
        ("then in the background, until storage has it", "stored"),
        ("torch.load of it", "load"),
        ("torch.load of it, and into the model", "restore"),
        ("torch.save to another path", "torch.save"),
        ("torch.load of that, and into the model", "torch.load"),
    ]
    return [row(what, found[name], found, gibibytes) for what, name in rows]


def rows_of(found: Seconds, peer: Seconds | None, gibibytes: float) -> list[tuple[str, ...]]:
    rows = [
        ("clone of the tensors", "clone"),
        ("memcpy, into tensors that are there", "memcpy"),
        ("checkpoint.save: training waits", "save"),
        ("then in the background, until it counts", "sealed"),
        ("checkpoint.load", "load"),
        ("checkpoint.load, and into the model", "restore"),
        ("torch.save to a file, fsync", "torch.save"),
        ("torch.load, and into the model", "torch.load"),
    ]
    shown = [row(what, found[name], found, gibibytes) for what, name in rows]
    if peer:
        beside = {"clone": peer["clone"], "memcpy": found["memcpy"]}
        shown.append(row("DLRover: save to memory", peer["save"], beside, gibibytes))
        shown.append(row("DLRover: load, and into the model", peer["restore"], beside, gibibytes))
    return shown


def row(what: str, seconds: list[float], beside: Seconds, gibibytes: float) -> tuple[str, ...]:
    middle = statistics.median(seconds)
    ratios = [f"{ratio(seconds, beside[name]):.2f}" for name in ("clone", "memcpy")]
    return what, f"{middle:.2f} s", f"{max(seconds):.2f} s", f"{gibibytes / middle:.2f} GiB/s", *ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--dlrover", help="the Python of an environment that has torch and dlrover")
    chosen = parser.parse_args()
    begun = machine()
    folder = Path(tempfile.mkdtemp(dir=chosen.disk))
    try:
        found = measured("ours", chosen.mebibytes, chosen.rounds, folder)
        marked = measured("marked", chosen.mebibytes, chosen.rounds, folder)
        peer = None
        if chosen.dlrover:
            clean = {"PYTHONPATH": "", "DLROVER_LOG_LEVEL": "ERROR"}
            arguments = ("dlrover", str(chosen.mebibytes), str(chosen.rounds), str(folder))
            peer = probe(chosen.dlrover, clean, *arguments)
    finally:
        shutil.rmtree(folder)
    rows = rows_of(found, peer, chosen.mebibytes / 1024) + rows_of_marked(marked, chosen.mebibytes / 1024)
    print(table(("what", "median", "max", "speed", "× a clone", "× a memcpy"), rows))
    ways = {"ours": found, "marked": marked, "dlrover": peer}
    write("memory_checkpoints", {"begun": begun, "mebibytes": chosen.mebibytes, **ways})
    slow_save = any(ratio(each["save"], each["clone"]) > MOST_OF_A_CLONE for each in (found, marked))
    slow_load = any(ratio(each["load"], each["clone"]) > 1 / LEAST_OF_MEMCPY for each in (found, marked))
    return 1 if slow_save or slow_load else 0


if __name__ == "__main__":
    sys.exit(main())
