"""The steps that a job's processes made, read from their traces while the job runs.

Processes that began together share a number, `run`, which their rank 0 drew. The world that follows a fault is the
first such group without any process seen before it in which every rank has made a step: that holds for every launcher
and needs no word of any of them (torchrun's restart count differs between its agents, so it cannot tell).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a trace."""

    time: float
    rank: int
    world: int
    pid: int
    step: int
    restart_count: int
    loaded: int
    """The step of the checkpoint that this process resumed from, 0 where there was none."""
    loss: float
    run: int


@dataclass(slots=True)
class Trace:
    """Every step so far, by pid in the order they were made. `read` adds what was written since the last call."""

    folder: Path
    by_pid: dict[int, list[Step]] = field(default_factory=dict)
    _offsets: dict[Path, int] = field(default_factory=dict)

    def read(self) -> None:
        for path in sorted(self.folder.glob("*.jsonl")):
            for line in self._new_lines(path):
                step = Step(**json.loads(line))
                self.by_pid.setdefault(step.pid, []).append(step)

    def _new_lines(self, path: Path) -> Iterator[bytes]:
        """The whole lines behind the last offset; a line that is still being written waits for its end."""
        offset = self._offsets.get(path, 0)
        with path.open("rb") as file:
            file.seek(offset)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._offsets[path] = offset + len(whole) + 1
            yield from whole.split(b"\n")

    def steps(self) -> Iterator[Step]:
        for steps in self.by_pid.values():
            yield from steps

    def highest(self, pids: Iterable[int] | None = None) -> int:
        """The highest step that any of the processes made, 0 where none did."""
        chosen = self.by_pid if pids is None else set(pids) & self.by_pid.keys()
        return max((steps[-1].step for pid in chosen if (steps := self.by_pid[pid])), default=0)


def first_world(trace: Trace, old_pids: set[int], world: int | None = None) -> list[Step] | None:
    """The first step of each rank, by rank, of the first complete world (of `world` ranks) without any old process."""
    worlds: dict[int, dict[int, Step]] = {}
    for pid, (first, *_) in trace.by_pid.items():
        if pid not in old_pids and world in (None, first.world):
            worlds.setdefault(first.run, {})[first.rank] = first
    complete = [ranks for ranks in worlds.values() if len(ranks) == ranks[min(ranks)].world]
    if not complete:
        return None
    ranks = min(complete, key=lambda ranks: max(step.time for step in ranks.values()))
    return [ranks[rank] for rank in sorted(ranks)]


def time_beyond(trace: Trace, new_pids: Iterable[int], high: int) -> float | None:
    """When the first step beyond `high` was made on every one of the new processes: repeated steps are lost time."""
    moments = [next((s.time for s in trace.by_pid[pid] if s.step > high), None) for pid in new_pids]
    return None if None in moments else max(m for m in moments if m is not None)


def loss_differences(trace: Trace, old_pids: set[int], firsts: list[Step]) -> list[float]:
    """How far the loss of each rank's first step is from that of the same step made by the same rank before the fault.

    Empty where no step was repeated. The data of a step depends on step and rank alone, so in a world of the same size
    anything but rounding means that the state was not restored.
    """
    before = {(s.rank, s.step): s for pid in old_pids & trace.by_pid.keys() for s in trace.by_pid[pid]}
    pairs = [(before.get((s.rank, s.step)), s) for s in firsts]
    return [abs(old.loss - new.loss) for old, new in pairs if old is not None and old.world == new.world]
