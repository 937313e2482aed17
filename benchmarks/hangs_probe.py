"""A DDP script in which one rank hangs, or is only slow, at its 40th step; each kind is a function below.

Only the first generation does it. `run.fault()` reports the begin to the benchmark that started it (`hangs.py`).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
AT, STEPS, CULPRIT, NEVER = 40, 60, 1, 1e6


class Run:
    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self.rank, self.side = 0, None
        self.pairs: list[Any] = []

    def fault(self) -> None:
        (self.folder / "fault").write_text(str(time.time()))

    def spend(self, step: Callable[[], object], pause: float = 0.0) -> None:
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            step()
            time.sleep(pause)


HANGS: dict[str, Callable[[Run], None]] = {}
"""Kinds that only the culprit does at its 40th step."""
ALL: dict[str, Callable[[Run], None]] = {}
"""Kinds that all ranks do at their 40th step."""
SLOW: dict[str, Callable[[Run], None]] = {}
"""Kinds that the culprit does for some time."""
BEFORE: dict[str, Callable[[Run], None]] = {}
"""Kinds that the culprit does before its first rendezvous."""


def kind(of: dict[str, Callable[[Run], None]]) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    def known(function: Callable[[Run], None]) -> Callable[[Run], None]:
        of[function.__name__] = function
        return function

    return known


# -- hangs ----------------------------------------------------------------------------------------------------------
@kind(HANGS)
def stopped(run: Run) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@kind(HANGS)
def holds_the_gil(run: Run) -> None:
    mutex = ctypes.create_string_buffer(64)  # a signal ends a sleep, and no wait for a mutex
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)


@kind(HANGS)
def lock(run: Run) -> None:
    mutex = threading.Lock()
    mutex.acquire()
    mutex.acquire()


@kind(HANGS)
def sleeps(run: Run) -> None:
    time.sleep(NEVER)


@kind(HANGS)
def spins(run: Run) -> None:
    while True:
        pass


@kind(HANGS)
def stuck_loader(run: Run) -> None:
    class Data(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            time.sleep(NEVER)
            return index

    next(iter(torch.utils.data.DataLoader(Data(), num_workers=1)))


@kind(HANGS)
def storage(run: Run) -> None:
    """Read from a pipe to which no process ever writes."""
    path = run.folder / "pipe"
    os.mkfifo(path)
    path.open().read()


@kind(ALL)
def skipped(run: Run) -> None:
    if run.rank != CULPRIT:
        dist.all_reduce(torch.ones(3), group=run.side)


@kind(ALL)
def other_order(run: Run) -> None:
    calls = [lambda: dist.all_reduce(torch.ones(3)), lambda: dist.broadcast(torch.ones(3), 0)]
    for call in reversed(calls) if run.rank == CULPRIT else calls:
        call()


@kind(ALL)
def branch(run: Run) -> None:
    """It has left the loop, and waits for the others at the end."""
    if run.rank == CULPRIT:
        dist.barrier()


@kind(ALL)
def barrier_in_a_branch(run: Run) -> None:
    if run.rank == 0:
        dist.barrier()


@kind(ALL)
def two_groups(run: Run) -> None:
    for group in run.pairs if run.rank else reversed(run.pairs):
        dist.all_reduce(torch.ones(2), group=group)


@kind(ALL)
def two_barriers(run: Run) -> None:
    """The culprit meets the others in another group than they it."""
    dist.barrier(group=run.pairs[0] if run.rank == CULPRIT else run.side)


@kind(BEFORE)
def init_waits(run: Run) -> None:
    """The others wait for it in init_process_group."""
    time.sleep(NEVER)


# -- slow -----------------------------------------------------------------------------------------------------------
NET = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))


@kind(SLOW)
def evaluates(run: Run) -> None:
    with torch.no_grad():
        run.spend(lambda: NET(torch.randn(64, 64)))


@kind(SLOW)
def samples(run: Run) -> None:
    run.spend(lambda: sorted(hash((i, i + 1)) for i in range(1000)))


@kind(SLOW)
def uploads(run: Run) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=lambda: _swallow(server), daemon=True).start()
    with socket.create_connection(server.getsockname()) as connection:
        run.spend(lambda: connection.sendall(bytes(2000)), 1)


def _swallow(server: socket.socket) -> None:
    connection, _ = server.accept()
    while connection.recv(1 << 16):
        pass


@kind(SLOW)
def compiles(run: Run) -> None:
    code = f"import time\nuntil = time.time() + {run.seconds}\nwhile time.time() < until: sum(range(1000))"
    subprocess.run([sys.executable, "-c", code], check=True)


@kind(SLOW)
def indexes_data(run: Run) -> None:
    run.spend(Path(sys.executable).resolve().read_bytes, 1)


@kind(SLOW)
def saves(run: Run) -> None:
    """By means of its own."""
    with (run.folder / "state").open("wb") as file:
        run.spend(lambda: os.write(file.fileno(), bytes(1 << 16)), 0.5)


@kind(SLOW)
def joins_a_save(run: Run) -> None:
    thread = threading.Thread(target=saves, args=(run,))
    thread.start()
    thread.join()


@kind(SLOW)
def tries_again(run: Run) -> None:
    until, pause = time.monotonic() + run.seconds, 1.0
    while time.monotonic() < until:
        with socket.socket() as one:
            one.settimeout(5)
            one.connect_ex(("127.0.0.1", 9))
        sum(range(3_000_000))  # what it wants to send is made again
        time.sleep(pause)
        pause = min(2 * pause, 30)


@kind(SLOW)
def collects_garbage(run: Run) -> None:
    kept = [[i] for i in range(200_000)]
    run.spend(gc.collect)
    assert kept


@kind(SLOW)
def reads_pages(run: Run) -> None:
    """They come from the disk again and again, as of a process that is swapped."""
    with (run.folder / "pages").open("w+b") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

        def read() -> int:
            pages.madvise(mmap.MADV_DONTNEED)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return sum(pages[::4096])

        run.spend(read, 0.2)


@kind(SLOW)
def has_little_cpu(run: Run) -> None:
    """A hundredth of one, as under a CPU limit."""
    run.spend(lambda: sum(range(40_000)), 0.1)


@kind(SLOW)
def waits_for_a_stopped_child(run: Run) -> None:
    with subprocess.Popen(["sleep", "1"]) as child:
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(min(run.seconds, 45))
        os.kill(child.pid, signal.SIGCONT)


@kind(SLOW)
def grows(run: Run) -> None:
    """Each longer than all before."""
    time.sleep(min(run.seconds, 40))


@kind(SLOW)
def runs_programs(run: Run) -> None:
    """What another program does for it, again and again."""
    run.spend(lambda: subprocess.run(["true"], check=True), 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=[*HANGS, *ALL, *SLOW, *BEFORE])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=75)
    args = parser.parse_args()
    run = Run(args.folder, args.seconds)
    is_first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if args.kind in BEFORE and is_first and int(os.environ["RANK"]) == CULPRIT:
        run.fault()
        BEFORE[args.kind](run)
    dist.init_process_group("gloo")
    run.rank, run.side = dist.get_rank(), dist.new_group()
    run.pairs = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    if run.rank > 1 and args.kind == "two_groups":
        run.pairs = []
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        time.sleep(0.05)
        if step == AT and is_first:
            if run.rank == CULPRIT:
                run.fault()
            if args.kind in ALL:
                ALL[args.kind](run)
            elif run.rank == CULPRIT:
                (HANGS | SLOW)[args.kind](run)
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        if run.rank == 0:
            (run.folder / "stepped").write_text(str(time.time()))
    dist.barrier()
    del model


if __name__ == "__main__":
    main()
