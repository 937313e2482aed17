"""What asking a process for its stack may do to it: by faulthandler's signal, or by a thread of its own (ADR 19).

    python benchmarks/stacks.py

Each way is tried `--dumps` times on a process of its own, twice. By signal: all threads while one of them runs Python,
the main thread while it runs, the main thread while it waits. By thread (`training_hooks.telemetry.stacks.text`): all
threads while the main one and another run. Prints how the process ended.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable

from training_hooks.telemetry import stacks

PAUSE = 0.0005
"""Seconds between two signals."""


def deep(depth: int) -> int:
    return depth if depth == 0 else deep(depth - 1)


def run_for_ever() -> None:
    """Frames come and go, deep enough that their memory does as well, and code is compiled and thrown away."""
    while True:
        deep(400)
        sorted(range(50), key=lambda number: -number)
        exec("def made(number):\n    return [each for each in range(number)]\nmade(9)", {})


def wait_for_ever() -> None:
    while True:
        signal.pause()


def by_signal(dumps: int, all_threads: bool, beside: bool, main: Callable[[], None]) -> None:
    """In the process that is asked."""
    with tempfile.TemporaryFile("w") as file:
        faulthandler.register(stacks.NUMBER, file=file, all_threads=all_threads, chain=False)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        if beside:
            threading.Thread(target=run_for_ever, daemon=True).start()
        asked, asker = os.getpid(), os.fork()
        if asker == 0:
            ask(asked, dumps)
        main()


def ask(asked: int, dumps: int) -> None:
    """Never returns."""
    try:
        for _ in range(dumps):
            os.kill(asked, stacks.NUMBER)
            time.sleep(PAUSE)
        os.kill(asked, signal.SIGTERM)
    except ProcessLookupError:
        pass
    os._exit(0)


def by_thread(dumps: int) -> None:
    def say() -> None:
        for _ in range(dumps):
            stacks.text()
        os._exit(0)

    threading.Thread(target=run_for_ever, daemon=True).start()
    threading.Thread(target=say, daemon=True).start()
    run_for_ever()


def how_it_ends(do: Callable[[], None]) -> str:
    pid = os.fork()
    if pid == 0:
        do()
        os._exit(1)
    status = os.waitpid(pid, 0)[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"code {os.WEXITSTATUS(status)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dumps", type=int, default=20_000)
    dumps: int = parser.parse_args().dumps
    ways: dict[str, Callable[[], None]] = {
        "signal, all threads, one runs": lambda: by_signal(dumps, True, True, wait_for_ever),
        "signal, main thread, which runs": lambda: by_signal(dumps, False, False, run_for_ever),
        "signal, main thread, which waits": lambda: by_signal(dumps, False, True, wait_for_ever),
        "thread, all threads, two run": lambda: by_thread(dumps),
    }
    for name, do in ways.items():
        print(f"{name:34} {', '.join(how_it_ends(do) for _ in range(2))}", flush=True)


if __name__ == "__main__":
    main()
