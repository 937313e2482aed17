"""What a trainer writes on its way to the terminal."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from outrider.master.local.output import LinePipe, Log
from tests.waiting import DEADLINE


async def test_lines_that_a_full_disk_does_not_take_are_handed_on_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "trainer.log").symlink_to("/dev/full")
    log = Log(tmp_path / "trainer.log")
    lines: asyncio.Queue[bytes] = asyncio.Queue()

    def on_line(line: bytes) -> None:
        log.write(line)
        lines.put_nowait(line)

    pipe = LinePipe(on_line)
    os.write(pipe.write_end, b"one\ntwo\nth")
    os.write(pipe.write_end, b"ree\n")
    pipe.close_write_end()
    assert [await asyncio.wait_for(lines.get(), DEADLINE) for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]
    pipe.close()
    log.close()
