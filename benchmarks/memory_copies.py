"""How fast checkpoints go from one member's memory into another's, beside a plain socket copy, and what sidecars need.

    python benchmarks/memory_copies.py                      # 1 GiB, 7 rounds
    python benchmarks/memory_copies.py --mebibytes 256 --rounds 3

By turns, on this machine's loopback, between two processes: what sidecars do (`sidecar/shell/checkpoint_transfer.py`,
from file to file under /dev/shm, as pods' volumes are), and one that sends the same bytes out of its memory into
another's. Then a real job of two members, whose ranks save sharded states that each other's sidecar holds, one after
the other: the most that a sidecar has had in memory. It fails where copies reach less than 80 % of the plain one, or a
sidecar has more than 45 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import re
import shutil
import socket
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from measure.ours import OutriderJob
from measure.report import machine, table, write

from outrider.sidecar.shell import arena
from outrider.sidecar.shell.checkpoint_transfer import Giver, Taking
from outrider.wire.ids import Generation, MemberId, OrderId
from outrider.wire.messages.checkpoints import Fetch, Wanted
from training_hooks.abi import arena as layout

LEAST_OF_PLAIN, MOST_MB = 0.8, 45
PIECE = 1 << 20
MADE_IN = Generation(1, 1)
SCRIPT = """
import sys, time
import torch
from training_hooks import checkpoint
torch.distributed.init_process_group("gloo")
state = {"model": torch.ones(int(sys.argv[1]) << 18)}
for step in range(1, int(sys.argv[2]) + 1):
    checkpoint.save(state, step, sharded=True)
    checkpoint.wait()
    torch.distributed.barrier()
    time.sleep(1.0)  # as training does between two saves
torch.distributed.barrier()
print("SAVED", flush=True)
time.sleep(600)
"""


# -- copies -----------------------------------------------------------------------------------------------------------
def give(path: Path, pipe: Connection) -> None:
    """A sidecar's side of it, in a process of its own."""

    async def serve() -> None:
        giver = Giver("127.0.0.1", path)
        pipe.send((giver.port, giver.key))
        await asyncio.to_thread(pipe.recv)
        giver.close()

    asyncio.run(serve())


def send_plainly(length: int, pipe: Connection) -> None:
    state = memoryview(bytearray(b"x") * length)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        while pipe.recv():
            with listener.accept()[0] as connection:
                for at in range(0, length, PIECE):
                    connection.sendall(state[at : at + PIECE])


def plainly(port: int, state: memoryview, pipe: Connection) -> float:
    pipe.send(True)
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        at = 0
        while at < len(state):
            at += connection.recv_into(state[at : at + PIECE])
    return time.monotonic() - began


def ours(target: Path, wanted: Wanted, step: int) -> float:
    order = Fetch(OrderId(1), MADE_IN, step, MADE_IN, (wanted,), seconds=600.0)
    began = time.monotonic()
    answer = Taking(target, order, 1).run()
    assert not answer.error, answer.error
    return time.monotonic() - began


def filled(path: Path, length: int) -> None:
    """A member's memory with one copy in it."""
    layout.allot(str(path), 2 * length + (1 << 20))
    with arena.opened(path) as memory:
        division = memory.divide(layout.REPLICATED, 1)
        place = next(memory.places(division))
        with path.open("r+b") as file:
            for at in range(place.payload, place.payload + length, PIECE):
                file.seek(at)
                file.write(b"x" * min(PIECE, place.payload + length - at))
        made_in = MADE_IN.term << 32 | MADE_IN.number
        memory.put(place, layout.Head(1, 2, 7, made_in, 0, 2, layout.REPLICATED, 1, length, 0, 0))


def copies(folder: Path, length: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of each way, by turns."""
    source, target = folder / "source", folder / "target"
    filled(source, length)
    layout.allot(str(target), 2 * length + (1 << 20))
    context = multiprocessing.get_context("spawn")
    (to_giver, of_giver), (to_plain, of_plain) = context.Pipe(), context.Pipe()
    helpers = [
        context.Process(target=give, args=(source, of_giver)),
        context.Process(target=send_plainly, args=(length, of_plain)),
    ]
    for helper in helpers:
        helper.start()
    (port, key), plain_port = to_giver.recv(), to_plain.recv()
    wanted = Wanted(0, 0, MemberId("worker-1"), "127.0.0.1", port, key, False, length)
    state, mine, plain = memoryview(bytearray(length)), [], []
    for _ in range(rounds + 1):
        plain.append(plainly(plain_port, state, to_plain))
        mine.append(ours(target, wanted, 7))
    to_giver.send(None)
    to_plain.send(False)
    for helper in helpers:
        helper.join()
    return mine[1:], plain[1:]  # the first touches all pages for the first time


# -- sidecars ---------------------------------------------------------------------------------------------------------
def sidecars(folder: Path, mebibytes: int, saves: int) -> tuple[list[float], list[float]]:
    """MB that each sidecar had at the most, and the seconds of the copies that they took over."""
    script = folder / "saves.py"
    script.write_text(SCRIPT)
    flags = ["--checkpoint-memory", f"{4 * (mebibytes + 8)}Mi"]
    job = OutriderJob(2, [str(script), str(mebibytes), str(saves)], folder / "out.log", flags=flags)
    job.start()
    try:
        deadline = time.time() + 120 + 30 * saves
        while "SAVED" not in job.log.read_text() and time.time() < deadline and job.is_alive():
            time.sleep(0.5)
        pids = [member["pids"]["sidecar"] for member in job.status()["members"]]
        most = [_most_mb(pid) for pid in pids]
        logs = "".join(path.read_text(errors="replace") for path in job.home.rglob("*.log"))
    finally:
        job.stop()
    return most, [float(found) for found in re.findall(r"was fetched in ([0-9.]+) s", logs)]


def _most_mb(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    wishes = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="or-", dir="/dev/shm"))
    try:
        length = wishes.mebibytes << 20
        mine, plain = copies(folder, length, wishes.rounds)
        most, taken = sidecars(folder, wishes.mebibytes // 4, 5)
    finally:
        shutil.rmtree(folder)
    ratio = statistics.median(two / one for one, two in zip(mine, plain, strict=True))
    speeds = {name: length / 1e9 / statistics.median(each) for name, each in (("copies", mine), ("plain", plain))}
    rows = [(name, f"{speed:.2f} GB/s") for name, speed in speeds.items()]
    rows += [("copies / plain, median over rounds", f"{ratio:.2f}"), ("sidecars, at most", f"{max(most):.1f} MB")]
    print(table(("what", "found"), rows))
    where = machine()
    print(
        f"\n{wishes.mebibytes} MiB, {wishes.rounds} rounds; {len(taken)} copies in the job; load {where['load'][0]:.1f}"
    )
    write("memory_copies", {"copies": mine, "plain": plain, "ratio": ratio, "sidecar_mb": most, "taken": taken})
    missed = ratio < LEAST_OF_PLAIN or max(most) > MOST_MB or not taken
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
