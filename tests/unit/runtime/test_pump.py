"""Events before deadlines, stalls after arrived events, failure as an event, and an exit code that means restart."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from outrider.runtime.journal import Journal
from outrider.runtime.pump import CORE_FAILED, Core, Pump


@dataclass(frozen=True)
class Note:
    """Event and action of the core below: it writes each event down and does what the event's text says."""

    text: str


@dataclass
class Written:
    handled: list[str] = field(default_factory=list)
    deadline: float | None = None


def step(state: Written, event: Note, now: float) -> list[Note]:
    state.handled.append(event.text)
    if event.text.startswith("woke"):
        state.deadline = None
    if event.text.startswith("break"):
        raise ValueError("a bug")
    return [event] if event.text.startswith("do") else []


CORE: Core[Written, Note, Note] = Core(
    step=step,
    next_deadline=lambda state: state.deadline,
    woke=lambda: Note("woke"),
    stalled=lambda seconds: Note(f"stalled {seconds:.1f}"),
    failed=lambda action, error: Note(f"failed {action.text}: {error}"),
    describe=lambda state: str(len(state.handled)),
)


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Effects:
    def __init__(self, pump: Pump[Written, Note, Note]) -> None:
        self.pump = pump

    def perform(self, action: Note) -> Coroutine[object, object, None] | None:
        match action.text:
            case "do stop":
                self.pump.stop(7)
            case "do fail":
                raise OSError("the disk is full")
            case "do fail later":
                return self._later()
        return None

    async def _later(self) -> None:
        await asyncio.sleep(0)
        self.pump.put(Note("do stop"))
        raise ConnectionError("refused")


def made(clock: Clock, journal: Journal | None = None) -> tuple[Pump[Written, Note, Note], Effects]:
    pump = Pump(CORE, Written(), journal or Journal(), clock)
    return pump, Effects(pump)


def stop_behind(pump: Pump[Written, Note, Note], word: str) -> None:
    """Stops the pump as soon as it has handled this event."""
    if any(text.startswith(word) for text in pump.state.handled):
        pump.put(Note("do stop"))
    else:
        asyncio.get_running_loop().call_later(0.01, stop_behind, pump, word)


async def test_arrived_events_are_handled_before_a_deadline_that_has_passed() -> None:
    clock = Clock()
    pump, effects = made(clock)
    pump.state.deadline = 50.0
    waiting = ["report 1", "report 2"]

    def source() -> int:
        if not waiting:
            pump.put(Note("do stop")) if "woke" in pump.state.handled else None
            return 0
        pump.put(Note(waiting.pop(0)))
        return 1

    pump.drain_before_judging(source)
    stop_behind(pump, "woke")
    assert await pump.run(effects) == 7
    assert pump.state.handled[:3] == ["report 1", "report 2", "woke"]


async def test_a_stall_is_handled_after_arrived_events_and_before_the_deadline() -> None:
    clock = Clock()
    pump, effects = made(clock)

    def thaw() -> None:
        clock.now += 30.0
        pump.state.deadline = 110.0
        pump.put(Note("report"))

    asyncio.get_running_loop().call_later(0.02, thaw)
    stop_behind(pump, "woke")
    await pump.run(effects)
    assert [text.split()[0] for text in pump.state.handled] == ["report", "stalled", "woke", "do"]


async def test_an_action_that_fails_at_once_or_later_becomes_an_event() -> None:
    pump, effects = made(Clock())
    for text in ("do fail", "do fail later"):
        pump.put(Note(text))
    assert await pump.run(effects) == 7
    assert "failed do fail: OSError: the disk is full" in pump.state.handled


async def test_a_core_that_raises_leaves_its_journal_and_a_code_that_means_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.txt")
    pump, effects = made(Clock(), journal)
    pump.put(Note("fine"))
    pump.put(Note("break it"))
    pump.put(Note("never handled"))
    assert await pump.run(effects) == CORE_FAILED
    written = (tmp_path / "journal.txt").read_text()
    assert "> Note text='break it'" in written
    assert "= 0 -> 1" in written
    assert "never handled" not in written
