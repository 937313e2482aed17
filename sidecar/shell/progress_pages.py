"""Reads the ranks' progress from their progress pages, without involving the ranks.

The worker process writes its page. A read is consistent only if the sequence number is even and two reads give the same
bytes, because a step is written without changing the number. Pages are read with system calls, not mapped, so that a
reader can neither harm the writer nor be harmed by a short file.
"""

from __future__ import annotations

import os
import statistics
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from outrider.wire.ids import Generation
from outrider.wire.messages.report import RankProgress, Spent
from training_hooks.abi import progress_page as layout
from training_hooks.abi import rank_files

WORDS = struct.Struct(f"<{layout.OPENED + 1}Q")
PAGE = struct.Struct(f"<{layout.SIZE // 8}Q")
TRIES = 4
RECENT = 15


@dataclass(frozen=True, slots=True)
class Page:
    """Content of one page; times are in nanoseconds of time.monotonic_ns, 0 if there is none."""

    generation: Generation
    pid: int
    step: int
    base: int
    last_step_at: int
    step_before_at: int
    samples: int
    phase: str
    source: int
    saves: int
    forked_at: int
    is_stuck: bool
    opened: bool


def whole(path: Path, length: int, at: int = 8) -> bytes | None:
    """The first `length` bytes of a page, consistent from the sequence number at `at` on.

    None if the page does not exist, is shorter, or was being written at each try.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        for _ in range(TRIES):
            raw, after = os.pread(descriptor, length, 0), os.pread(descriptor, length, 0)
            if len(raw) < length:
                return None
            if raw[at:] == after[at:] and not raw[at] & 1:
                return raw
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def read_page(path: Path) -> Page | None:
    """The page; None if no consistent one can be read, or it has another version."""
    raw = whole(path, WORDS.size)
    return None if raw is None else _parsed(raw)


def _parsed(raw: bytes) -> Page | None:
    words = WORDS.unpack_from(raw)
    if raw[:4] != layout.MAGIC or words[0] >> 32 != layout.VERSION:
        return None
    phase, behind = words[layout.PHASE] & 0xFFFFFFFF, words[layout.BEHIND]
    if phase == layout.CHECKPOINT and behind:  # the save is done: the phase behind it counts
        phase = behind - 1
    return Page(
        generation=Generation(words[layout.TERM], words[layout.NUMBER]),
        pid=words[layout.PID],
        step=words[layout.STEPS],
        base=words[layout.BASE],
        last_step_at=words[layout.LAST],
        step_before_at=words[layout.BEFORE],
        samples=words[layout.SAMPLES],
        phase=layout.PHASES[phase if phase < len(layout.PHASES) else layout.STEP],
        source=words[layout.PHASE] >> 32,
        saves=words[layout.SAVES],
        forked_at=words[layout.FORKED],
        is_stuck=bool(words[layout.STUCK]),
        opened=bool(words[layout.OPENED]),
    )


@dataclass(slots=True)
class _Recent:
    pid: int
    last: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))


class PageReader:
    """Reads all pages of a member and remembers how long the recent steps took."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(rank_files.page_folder(str(folder)))
        self._recent: dict[int, _Recent] = {}

    def read(self, generation: Generation) -> tuple[RankProgress, ...]:
        """Progress of this generation's ranks in the order of local ranks, without those that have no page yet."""
        found = (self.read_rank(generation, rank) for rank in self._local_ranks())
        return tuple(progress for progress in found if progress is not None)

    def read_rank(self, generation: Generation, local_rank: int) -> RankProgress | None:
        page = read_page(self._folder / str(local_rank))
        if page is None or page.generation != generation:
            return None
        since = page.last_step_at or page.forked_at
        return RankProgress(
            local_rank=local_rank,
            step=page.step,
            step_age=max(0.0, (time.monotonic_ns() - since) / 1e9) if since else 0.0,
            phase=page.phase,
            step_seconds=self._step_seconds(local_rank, page),
            samples=page.samples,
            is_stuck=page.is_stuck,
            base=page.base,
            opened=page.opened,
        )

    def spent(self, generation: Generation, local_rank: int) -> Spent | None:
        """What this rank has spent its time on; None if it has no page of this generation, or its hooks are older."""
        raw = whole(self._folder / str(local_rank), PAGE.size)
        page = None if raw is None else _parsed(raw)
        if raw is None or page is None or page.generation != generation:
            return None
        return _spent(PAGE.unpack(raw), page)

    def _local_ranks(self) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(self._folder) if name.isdigit())
        except OSError:
            return []

    def _step_seconds(self, local_rank: int, page: Page) -> float:
        recent = self._recent.get(local_rank)
        if recent is None or recent.pid != page.pid:
            recent = self._recent[local_rank] = _Recent(page.pid)
        if page.step_before_at and page.last_step_at > max(recent.last, page.step_before_at):
            recent.last = page.last_step_at
            recent.seconds.append((page.last_step_at - page.step_before_at) / 1e9)
        return statistics.median(recent.seconds) if recent.seconds else 0.0


def _spent(words: tuple[int, ...], page: Page) -> Spent | None:
    born, now = words[layout.BORN], time.monotonic_ns()
    if not born:
        return None

    def since(at: int) -> float:
        return max(0, now - at) / 1e9

    importing, rendezvous, loading, checkpoint, data, evaluation = (
        took / 1e9 for took in words[layout.SPENT + 1 : layout.SPENT + len(layout.ACTIVITIES)]
    )
    doing = words[layout.DOING]
    ended = max(page.last_step_at, 0 if doing else words[layout.DOING_SINCE])
    return Spent(
        since(born),
        since(words[layout.FIRST_END]) if words[layout.FIRST_END] else -1.0,
        since(ended or born),
        importing,
        rendezvous,
        loading,
        checkpoint,
        data,
        evaluation,
        layout.ACTIVITIES[doing if doing < len(layout.ACTIVITIES) else 0],
        since(words[layout.DOING_SINCE]) if doing else 0.0,
    )
