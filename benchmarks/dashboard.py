"""How long does the dashboard's page keep a browser busy with a large job, and does its memory grow?

Serves a job of 512 members with 20,000 spans whose status and timeline change with every reading, opens its page in
chromium, and reads the longest task of the page and its heap (after a collection) as it redraws.

Run: python benchmarks/dashboard.py [--members 512] [--updates 30]     (needs the extra `browser` and chromium)
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Playwright, sync_playwright

from outrider.cli.dashboard.server import Server
from outrider.cli.dashboard.sources import Local
from outrider.report.words import CAUSES

JOB = "large"
WATCH = """() => {
  window.tasks = [];
  const note = (list) => { for (const each of list.getEntries()) window.tasks.push(each.duration); };
  new PerformanceObserver(note).observe({type: "longtask", buffered: true});
}"""


def job(members: int, step: int, began: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """A status and a history, both other ones with each step."""
    spans = 20_000 // members
    tracks = [
        {"seats": [[m, m]], "spans": [[40 * n + (m + step) % 7, (n + step) % 16] for n in range(spans)],
         "end": 40 * spans + step}
        for m in range(members)
    ]  # fmt: skip
    listed = [
        {"id": f"worker-{m}", "role": "worker", "rank_index": m, "state": "running", "node": f"node-{m // 8}",
         "mode": "fork", "step": step, "cpu": 1 + (m + step) % 9 / 10, "memory_mib": 4000 + (m * step) % 97,
         "own_seconds": 0.2 + (m + step) % 5 / 100, "others_seconds": 0.22, "round_trip_ms": 0.3, "loss": 0.0,
         "pids": {"sidecar": 1, "trainer": 2, "workers": [3]}}
        for m in range(members)
    ]  # fmt: skip
    status = {
        "version": 1, "job": JOB, "phase": "running", "generation": "1.1", "world": members, "step": step,
        "restarts": 0, "goodput": 0.9, "message": "", "exit_code": None, "faults": [], "members": listed,
        "time": {"productive": 9.0 * step, "data_wait": 1.0 * step},
    }  # fmt: skip
    part = {"version": 1, "job": JOB, "term": 1, "began_at": began, "since": began, "until": time.time(),
            "causes": list(CAUSES), "tracks": tracks, "faults": [], "generations": [], "holders": [], "events": [],
            "samples": []}  # fmt: skip
    return status, part


class Changing(Local):
    """One job, whose documents are other ones each time; it is read twice a second."""

    every = 0.5

    def __init__(self, members: int) -> None:
        super().__init__()
        self._members, self._step, self._began = members, 0, time.time() - 2000

    def status(self, job_: str) -> dict[str, Any]:
        self._step += 1
        status, part = job(self._members, self._step, self._began)
        folder = Path(os.environ["OUTRIDER_HOME"], "jobs", JOB)
        (folder / "history-1.json").write_text(json.dumps(part))
        return status


@contextlib.contextmanager
def served(source: Local) -> Iterator[str]:
    """The address of a dashboard on a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    listening = Server(source, JOB).listening(0)
    yield asyncio.run_coroutine_threadsafe(listening.__aenter__(), loop).result(60)
    asyncio.run_coroutine_threadsafe(listening.__aexit__(None, None, None), loop).result(60)


def heap_mib(devtools: CDPSession) -> float:
    devtools.send("HeapProfiler.collectGarbage")
    used: float = devtools.send("Runtime.getHeapUsage")["usedSize"] / 2**20
    return used


def watched(driver: Playwright, address: str, updates: int) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of tasks above 50 ms while the page opened, and in so many updates; MiB of its heap."""
    browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(f"({WATCH})()")
    page.goto(address)
    page.wait_for_selector("#timeline canvas")
    devtools = page.context.new_cdp_session(page)
    begun, heaps, steps = page.evaluate("window.tasks.splice(0)"), [heap_mib(devtools)], set[str]()
    page.evaluate("window.tasks.splice(0)")  # the collection was one
    tasks: list[float] = []
    for quarter in range(1, 5):
        while len(steps) < updates * quarter / 4:
            steps.add(page.locator("#figures dd").first.inner_text())
            page.wait_for_timeout(200)
        tasks += page.evaluate("window.tasks.splice(0)")
        heaps.append(heap_mib(devtools))
        page.evaluate("window.tasks.splice(0)")
    browser.close()
    return begun, tasks, heaps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, default=512)
    parser.add_argument("--updates", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, sync_playwright() as driver:
        os.environ["OUTRIDER_HOME"] = home
        folder = Path(home, "jobs", JOB)
        folder.mkdir(parents=True)
        (folder / "lock").write_text("4999999")
        with served(Changing(options.members)) as address:
            began = time.monotonic()
            begun, tasks, heaps = watched(driver, address, options.updates)
            seconds = time.monotonic() - began
    print(f"{options.members} members, {options.updates} updates")
    print(f"the longest task while it opened: {max(begun, default=0):.0f} ms")
    print(f"tasks above 50 ms: {len(tasks)}; the longest: {max(tasks, default=0):.0f} ms; "
          f"the median: {statistics.median(tasks) if tasks else 0:.0f} ms")  # fmt: skip
    quarters = ", ".join(f"{each:.1f}" for each in heaps[1:])
    print(f"heap after a collection: {heaps[0]:.1f} MiB, then {quarters} MiB after each quarter of {seconds:.0f} s")
    return 1 if max(tasks, default=0) > 100 else 0


if __name__ == "__main__":
    raise SystemExit(main())
