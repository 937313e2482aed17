"""A browser, and a dashboard of jobs in a folder of their own, with the server in the test's process."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from outrider.cli.dashboard.server import Server
from outrider.cli.dashboard.sources import Local
from tests.unit.cli.conftest import NOBODY, held
from tests.unit.report.documents import at
from tests.waiting import DEADLINE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 1000 * DEADLINE
"""Milliseconds until a wait for the page is a failure."""


def events(count: int = 3) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"seq": n, "time": at(10.0 * n), "kind": "CheckpointSaved", "severity": "normal", "member": "worker-0",
         "generation": "1.1", "reason": f"Step {n} is saved.", "detail": {}}
        for n in range(1, count + 1)
    )  # fmt: skip


class Watched:
    """A page, and what it has said to the console and asked of other servers."""

    def __init__(self, page: Any, address: str, end_server: Callable[[], None]) -> None:
        self.page, self.address, self.end_server = page, address, end_server
        self.origin = address.partition("/?")[0]
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._asked(request.url))

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        if not url.startswith((self.origin, "data:")):
            self.complaints.append(f"asked {url}")

    def open(self, hash_: str = "") -> Any:
        self.page.goto(self.address)
        if hash_:
            self.page.goto(f"{self.origin}/{hash_}")
        return self.page

    def shows(self, selector: str, text: str) -> None:
        """Waits until an element has this text."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector)).to_contain_text(text, timeout=PATIENCE)

    def is_empty(self, selector: str) -> None:
        """Waits until an element has no text."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector)).to_be_empty(timeout=PATIENCE)

    def has(self, count: int, selector: str) -> None:
        """Waits until there are so many elements."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector)).to_have_count(count, timeout=PATIENCE)

    def is_quiet(self) -> None:
        assert not self.complaints


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Ends with the module: while playwright's blocking API is in use, no other test of the process may run a loop."""
    if CHROMIUM is None:
        pytest.skip("no chromium (Debian: apt install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


class Jobs:
    """Folders of jobs, as a dashboard finds them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.locks: list[IO[str]] = []

    def add(self, name: str, status: Any, *parts: Any, events: tuple[Any, ...] = (), lines: str = "") -> Path:
        folder = self.home / "jobs" / name
        folder.mkdir(parents=True)
        (folder / "lock").write_text(NOBODY)
        (folder / "status.json").write_text(json.dumps(status))
        for part in parts:
            (folder / f"history-{part['term']}.json").write_text(json.dumps(part))
        (folder / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
        if lines:
            log = folder / "logs" / "1" / "0" / "stdout.log"
            log.parent.mkdir(parents=True)
            log.write_text(lines)
        return folder

    def runs(self, name: str) -> None:
        """Holds the lock of a job as its command would, although no master answers."""
        self.locks.append(held(self.home / "jobs" / name))


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path / "home"))
    made = Jobs(tmp_path / "home")
    yield made
    for lock in made.locks:
        lock.close()


class Serving:
    """A dashboard on a thread of its own."""

    def __init__(self, job: str | None = None, port: int = 0) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self._listening = Server(Local(), job).listening(port)
        self.address: str = self._wait(self._listening.__aenter__())

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(DEADLINE)

    def close(self) -> None:
        if self.thread.is_alive():
            self._wait(self._listening.__aexit__(None, None, None))
            self._wait(self.loop.shutdown_default_executor())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.loop.close()


Opening = Callable[..., Watched]


@pytest.fixture
def opening(browser: Any) -> Iterator[Opening]:
    """Opens a page of a dashboard of this machine's jobs, or of another one's address."""
    closing: list[Callable[[], None]] = []

    def opened(job: str | None = None, address: str = "", width: int = 1280, scheme: str = "light") -> Watched:
        if not address:
            serving = Serving(job)
            closing.append(serving.close)
            address = serving.address
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        closing.append(context.close)
        return Watched(context.new_page(), address, closing[0])

    yield opened
    for close in reversed(closing):
        close()
