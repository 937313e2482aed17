"""Reads the windows of steps on the progress pages, which show each rank's own busy time.

Each window is passed on once, unchanged. The user's process writes the page, so its content is not trusted. Impossible
times are passed on too, so that the master can report whose they are; only values that do not fit a message are
dropped.
"""

from __future__ import annotations

import struct
from pathlib import Path

from outrider.sidecar.shell.progress_pages import whole
from outrider.wire.ids import Generation
from outrider.wire.messages.report import OwnTime
from training_hooks.abi import progress_page as layout
from training_hooks.abi import rank_files

WORDS = struct.Struct(f"<{layout.WINDOW + 1 + layout.WINDOW_NUMBERS}Q")
"""Layout of the page up to the end of its window."""
SOURCES = {1: "recorder and cpu", 2: "recorder", 3: "cpu", 4: "none"}
MOST_STEPS = 1 << 62


class WindowReader:
    """Remembers which window of each rank it has passed on."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(rank_files.page_folder(str(folder)))
        self._seen: dict[int, tuple[int, int]] = {}

    def read(self, generation: Generation, local_ranks: tuple[int, ...]) -> tuple[OwnTime, ...]:
        """The new windows of these ranks of this generation."""
        found = (self._read(generation, rank) for rank in local_ranks)
        return tuple(window for window in found if window is not None)

    def _read(self, generation: Generation, local_rank: int) -> OwnTime | None:
        raw = whole(self._folder / str(local_rank), WORDS.size, 8 * layout.WINDOW)
        if raw is None or raw[:4] != layout.MAGIC:
            return None
        words = WORDS.unpack(raw)
        pid, sequence = words[layout.PID], words[layout.WINDOW]
        if words[0] >> 32 != layout.VERSION or Generation(words[layout.TERM], words[layout.NUMBER]) != generation:
            return None
        if sequence in (0, self._last(local_rank, pid)):
            return None
        self._seen[local_rank] = (pid, sequence)
        return _parsed(local_rank, words[layout.WINDOW + 1 :])

    def _last(self, local_rank: int, pid: int) -> int:
        known, sequence = self._seen.get(local_rank, (0, 0))
        return sequence if known == pid else 0


def _parsed(local_rank: int, numbers: tuple[int, ...]) -> OwnTime | None:
    first, counted, gap, busy, step, shape, *parts = numbers
    source, steps = counted & 0xFFFFFFFF, counted >> 32
    if source not in SOURCES or first >= MOST_STEPS:
        return None
    cpu, waited, delayed, throttled, stolen = (part / 1e9 for part in parts)
    return OwnTime(local_rank, first, steps, SOURCES[source], gap / 1e9, busy / 1e9, step / 1e9, shape & 0xFFFFFFFF,
                   cpu, waited, delayed, throttled, stolen)  # fmt: skip
