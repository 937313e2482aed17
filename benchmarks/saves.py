"""Whether a checkpoint survives kill -9 at every moment of its save, under Outrider and as a plain script.

Under Outrider one job of four ranks saves again and again; each time the ranks are killed together, a little later in
the save than the time before, and Outrider brings them back. The kills sweep from the beginning of a save to a tenth of
its duration beyond its end, so the rename is passed too. After every kill each rank's file has to load and to be of one
piece. The plain script meets the same sweep without Outrider, in a fresh process each time.

    python benchmarks/saves.py
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from measure.ours import OutriderJob
from measure.processes import load, send_all
from measure.report import table, write

PROBE = str(Path(__file__).parent / "save_probe.py")
RANKS = 4
SWEEP = 1.1
"""The last kill comes this many save durations after the beginning."""
PATIENCE = 60.0


class Listener:
    """Hears from the probes when their saves begin and end."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "listener.sock"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        self._socket.settimeout(PATIENCE)
        self.durations: list[float] = []

    def next(self) -> tuple[str, int, int]:
        """The next word: what, rank, pid."""
        what, rank, pid, _, seconds = json.loads(self._socket.recv(4096))
        if what == "end":
            self.durations.append(seconds)
        return what, rank, pid

    def next_saves(self, ranks: int, dead: set[int]) -> dict[int, int]:
        """When all ranks of living processes have begun one more save: their pids by rank."""
        begun: dict[int, int] = {}
        while len(begun) < ranks:
            what, rank, pid = self.next()
            if pid in dead:
                continue
            if what == "begin":
                begun[rank] = pid
            else:
                begun.pop(rank, None)
        return begun

    def typical(self) -> float:
        """How long a save takes, by those that ended."""
        return statistics.median(self.durations[-50:])

    def close(self) -> None:
        self._socket.close()


def defect(path: Path) -> str | None:
    """What is wrong with a saved file, None where it is whole: it loads, and all of it is of one save."""
    try:
        state = torch.load(path)
    except Exception as error:  # whatever a reader makes of a torn file
        return f"{type(error).__name__}: {str(error)[:80]}".replace("\n", " ")
    whole = bool((state["data"] == float(state["step"] % 1000)).all())
    return None if whole else "parts of two saves"


def kill_later(listener: Listener, pids: set[int], fraction: float) -> float:
    """Kill at that fraction of a save from now; the moment in seconds since."""
    began = time.perf_counter()
    while (late := fraction * listener.typical() - (time.perf_counter() - began)) > 0:
        time.sleep(min(late, 0.0005))
    send_all(pids, signal.SIGKILL)
    return time.perf_counter() - began


def sweep(kills: int) -> list[float]:
    return [SWEEP * number / (kills - 1) for number in range(kills)]


def under_outrider(kills: int, mib: int) -> tuple[int, list[str], list[str], float]:
    """Files examined, what was wrong with which, what else lies beside them, and the seconds of a save."""
    with tempfile.TemporaryDirectory(prefix="ob-") as name:
        folder = Path(name)
        listener, saves = Listener(folder), folder / "saves"
        saves.mkdir()
        script = [PROBE, "--folder", str(saves), "--listener", str(listener.path), "--mib", str(mib)]
        job = OutriderJob(RANKS, script, folder / "outrider.log", flags=["--max-restarts", str(kills + 10)])
        job.start()
        try:
            wrong = kill_often(listener, kills, lambda: [saves / f"rank-{rank}.pt" for rank in range(RANKS)])
        except TimeoutError:
            print(job.log.read_text()[-3000:])
            raise SystemExit(f"no save within {PATIENCE:.0f} s under Outrider") from None
        finally:
            job.stop()
        beside = sorted(path.name for path in saves.iterdir() if path.suffix != ".pt")
        listener.close()
        return kills * RANKS, wrong, beside, listener.typical()


def kill_often(listener: Listener, kills: int, files: Callable[[], list[Path]]) -> list[str]:
    """Kill all ranks in one save after the other; what was wrong with the files."""
    dead: set[int] = set()
    wrong = []
    for _ in range(10):  # a few whole saves, so that the files exist and the duration is known
        listener.next_saves(RANKS, dead)
    for number, fraction in enumerate(sweep(kills)):
        pids = set(listener.next_saves(RANKS, dead).values())
        kill_later(listener, pids, fraction)
        dead |= pids
        wrong += [f"{fraction:.3f}: {path.name}: {what}" for path in files() if (what := defect(path))]
        if (number + 1) % 20 == 0:
            print(f"{number + 1} kills, {len(wrong)} files not whole", flush=True)
    return wrong


def plain(kills: int, mib: int) -> tuple[int, list[str], float]:
    """The same sweep without Outrider: the second save of a fresh process is hit."""
    wrong = []
    with tempfile.TemporaryDirectory(prefix="ob-") as name:
        folder = Path(name)
        listener = Listener(folder)
        command = [sys.executable, PROBE, "--folder", name, "--listener", str(listener.path), "--mib", str(mib)]
        for fraction in sweep(kills):
            with subprocess.Popen(command) as run:
                while listener.next()[::2] != ("end", run.pid):
                    pass
                listener.next_saves(1, set())
                kill_later(listener, {run.pid}, fraction)
            if what := defect(folder / "rank-0.pt"):
                wrong.append(f"{fraction:.3f}: {what}")
        listener.close()
        return kills, wrong, listener.typical()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="under Outrider")
    parser.add_argument("--plain-kills", type=int, default=40, help="of the plain script")
    parser.add_argument("--mib", type=int, default=8, help="size of a save")
    args = parser.parse_args()
    rows, result, wrong = [], {"command": sys.argv}, []
    if args.plain_kills:
        files, torn, duration = plain(args.plain_kills, args.mib)
        rows.append(["plain script", str(args.plain_kills), str(files), str(len(torn)), f"{duration * 1000:.0f} ms"])
        result["plain"] = {"files": files, "torn": torn, "save_seconds": duration}
    if args.kills:
        files, wrong, beside, duration = under_outrider(args.kills, args.mib)
        rows.append(["Outrider", str(args.kills), str(files), str(len(wrong)), f"{duration * 1000:.0f} ms"])
        result["outrider"] = {"files": files, "torn": wrong, "left_beside": beside, "save_seconds": duration}
        print(f"left beside the files: {beside or 'nothing'}")
    print("\n" + table(["", "kills", "files read", "not whole", "a save takes"], rows), f"\nload {load():.1f}")
    print(*wrong[:10], sep="\n")
    print(f"written to {write('saves', result)}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
