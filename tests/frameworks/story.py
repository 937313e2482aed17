"""One job per way of saving, hurt three times and judged by its ranks' own traces: a rank is killed, a member is lost,
and the world gets another size."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.lines import whole_lines
from tests.local.training import Training, until

SCRIPTS = Path(__file__).parent / "scripts"
STEPS = 50
KILL, LOSS, RESIZE = "rank killed", "member lost", "resized"
HOLDS = {KILL: 13, LOSS: 23, RESIZE: 33}
"""Behind which step all ranks stand still when it happens: between two saves."""
LAST_HOLD, NO_HOLD = 42, 1 << 30
OUTCOMES = ("Recovered", "CaughtUp", "StartedOver", "ResumeUnknown")
PATIENCE = 60.0
"""Seconds for what has to be said of a generation in which every rank has made a step; 10 of them are the master's."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A line of a rank's trace."""

    rank: int
    generation: int
    step: int
    time: float
    pid: int


@dataclass(slots=True)
class Chapter:
    """What came of one fault: by the traces, and by what was told."""

    first: int
    """The first step of the new generation."""
    repeated: int
    """Steps that it made again."""
    seconds_lost: float
    """From the last step before to the first one beyond it."""
    seconds_to_first: float
    """The same to the first step of all ranks of the new generation, whichever it is."""
    told_repeated: int
    told_seconds_lost: float | None
    told: list[str] = field(default_factory=list)
    """Kinds of events that say what it goes on from, in order."""
    goes_on_from: str = ""


class Story(Training):
    """The job, from its command to its end."""

    def __init__(self, name: str, arguments: str, *, waits_for_saves: bool) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="or-"))
        self.waits_for_saves = waits_for_saves
        self.chapters: dict[str, Chapter] = {}
        self.failure: BaseException | None = None
        self.code: int | None = None
        work = self.home / "work"
        work.mkdir()
        shutil.copy(SCRIPTS / "noting.py", work)
        self._work = work
        self._hold(HOLDS[KILL])
        script = (SCRIPTS / f"{name}.py").read_text()
        super().__init__(work, self.home, "--nnodes", "1:2", "--spares", "1", script=script, arguments=arguments)

    # -- what happens -------------------------------------------------------------------------------------------------
    def play(self) -> None:
        self._begin()
        self._chapter(KILL, self._kill_rank_0, HOLDS[LOSS], 2)
        until(lambda: "spare" in [each["state"] for each in self.status()["members"]], self.story)
        self._chapter(LOSS, lambda: self.outrider("chaos", "kill-member", self.job), HOLDS[RESIZE], 2)
        self._chapter(RESIZE, self._resize, LAST_HOLD, 1)
        self._hold(NO_HOLD)
        self.code = self.process.wait(120)

    def _begin(self) -> None:
        """On a busy machine the first world may be of one member."""
        until(lambda: self.assert_goes_on() or self.noted(), self.story)
        until(lambda: {0, 1} <= self._ready_for_world(), self.story)
        until(lambda: self._are_held(-1, HOLDS[KILL], 2) or self._are_held(-1, HOLDS[KILL], 1), self.story)
        if not self._are_held(-1, HOLDS[KILL], 2):
            self.outrider("restart", self.job)
        self._until_held(-1, HOLDS[KILL], 2)
        until(self._is_all_told, self.story)

    def _is_all_told(self) -> bool:
        """Of all worlds up to now; where one goes on from is not always known."""
        status = self.status()
        return bool(status["resumed_from"]) and (
            status["steps_repeated"] == self.repeated() or status["resumed_from"] == "unknown"
        )

    def repeated(self) -> int:
        """Steps that were made again, in all generations."""
        high, repeated = 0, 0
        by_generation: dict[int, set[int]] = {}
        for each in self.noted():
            by_generation.setdefault(each.generation, set()).add(each.step)
        for _, steps in sorted(by_generation.items()):
            repeated += len([step for step in steps if step <= high])
            high = max(high, *steps)
        return repeated

    def _ready_for_world(self) -> set[int]:
        """Rank indices whose members can be in a world."""
        return {m["rank_index"] for m in self.status()["members"] if m["state"] in ("ready", "running")}

    def _chapter(self, name: str, happens: Callable[[], object], next_hold: int, world: int) -> None:
        mark, repeated_before = self.mark(), self.status()["steps_repeated"]
        before = self.noted()
        generation = max(each.generation for each in before)
        happens()
        if name == RESIZE and self.waits_for_saves:
            self._hold(next_hold)
        until(lambda: self.assert_goes_on() or max(each.generation for each in self.noted()) > generation, self.story)
        self._hold(next_hold)
        self._until_held(generation, next_hold, world)
        self.chapters[name] = self._told_of(generation, mark, repeated_before, is_fault=name != RESIZE)

    def _told_of(self, generation: int, mark: int, repeated_before: int, *, is_fault: bool) -> Chapter:
        old = [each for each in self.noted() if each.generation <= generation]
        new = [each for each in self.noted() if each.generation > generation]
        high = max(each.step for each in old)
        repeated = {each.step for each in new if each.step <= high}
        beyond = min(each.time for each in new if each.step > high)
        left = max(each.time for each in old if each.step == high)
        first = {each.rank: each.time for each in reversed(new)}

        def is_told() -> bool:
            status, told = self.status(), self._told(mark)
            counts = status["steps_repeated"] - repeated_before == len(repeated)
            return bool(status["resumed_from"] and (told or not is_fault) and (counts or "ResumeUnknown" in told))

        try:
            until(is_told, seconds=PATIENCE)
        except AssertionError:
            pass  # what is told is compared by the tests
        ends = [each["detail"] for each in self.events(mark) if "seconds_lost" in each["detail"]]
        status = self.status()
        return Chapter(
            first=min(each.step for each in new),
            repeated=len(repeated),
            seconds_lost=beyond - left,
            seconds_to_first=max(first.values()) - left,
            told_repeated=status["steps_repeated"] - repeated_before,
            told_seconds_lost=sum(float(each["seconds_lost"]) for each in ends) if ends else None,
            told=self._told(mark),
            goes_on_from=status["resumed_from"],
        )

    def _told(self, mark: int) -> list[str]:
        return [each["kind"] for each in self.events(mark) if each["kind"] in OUTCOMES]

    def _kill_rank_0(self) -> None:
        os.kill(next(each.pid for each in reversed(self.noted()) if each.rank == 0), signal.SIGKILL)

    def _resize(self) -> None:
        self.outrider("scale", self.job, "1")
        if not self.waits_for_saves:  # no save is seen, so it would wait a minute for one
            self.outrider("restart", self.job)

    # -- the traces ---------------------------------------------------------------------------------------------------
    def _hold(self, step: int) -> None:
        beside = self._work / ".hold"
        beside.write_text(str(step))
        beside.rename(self._work / "hold")

    def noted(self) -> list[Noted]:
        found = []
        for path in self._work.glob("trace-*"):
            for line in whole_lines(path):
                generation, step, at, pid = line.split()
                found.append(Noted(int(path.name[6:]), int(generation), int(step), float(at), int(pid)))
        return sorted(found, key=lambda each: each.time)

    def _until_held(self, after: int, step: int, world: int) -> None:
        """All ranks of a generation behind `after` stand still behind this step."""

        def are_held() -> bool:
            self.assert_goes_on()
            return self._are_held(after, step, world)

        until(are_held, lambda: f"{world} ranks behind step {step}: {self.story()}")

    def _are_held(self, after: int, step: int, world: int) -> bool:
        """In the newest world, which nobody is about to end."""
        noted = [each for each in self.noted() if each.generation > after]
        newest = max((each.generation for each in noted), default=0)
        reached = {each.rank for each in noted if each.generation == newest and each.step >= step}
        status = self.status()
        runs = status["phase"] == "running" and status["generation"].rpartition(".")[2] == str(newest + 1)
        return runs and reached == set(range(world))

    def ended_at(self) -> dict[int, int]:
        """The last step of every rank of the last generation."""
        newest = max(each.generation for each in self.noted())
        return {each.rank: each.step for each in self.noted() if each.generation == newest}

    def chapter(self, name: str) -> Chapter:
        assert name in self.chapters, self.failure
        return self.chapters[name]

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.home)
