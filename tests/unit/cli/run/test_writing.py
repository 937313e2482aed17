"""The ranks' output on its way to a terminal that may be slower than the ranks."""

from __future__ import annotations

import io
import os
import threading

from outrider.cli.run.output_thread import Writer
from outrider.cli.run.terminal import Screen
from tests.waiting import DEADLINE


class Gate(io.BytesIO):
    """A terminal that accepts nothing until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.open = threading.Event()

    def write(self, data: object) -> int:
        self.reached.set()
        self.open.wait(DEADLINE)
        return super().write(data)  # type: ignore[arg-type]


def test_everything_is_written_in_order() -> None:
    out = io.BytesIO()
    writer = Writer(Screen(out, io.BytesIO(), terminal=False))
    lines = [b"[%d]: line\n" % number for number in range(5000)]
    for line in lines:
        writer.put(1, line)
    writer.close()
    assert out.getvalue() == b"".join(lines)


def test_a_blocked_terminal_does_not_block_the_writer_and_left_out_lines_are_counted() -> None:
    gate, err = Gate(), io.BytesIO()
    writer = Writer(Screen(gate, err, terminal=False), most_bytes=30)
    writer.put(1, b"0123456789")
    assert gate.reached.wait(DEADLINE)
    for _ in range(5):
        writer.put(1, b"0123456789")
    gate.open.set()
    writer.close()
    assert gate.getvalue() == b"0123456789" * 3
    assert b"3 lines of the ranks" in err.getvalue()


def test_closing_does_not_wait_for_ever() -> None:
    gate = Gate()
    writer = Writer(Screen(gate, io.BytesIO(), terminal=False))
    writer.put(1, os.urandom(10))
    writer.close(patience=0.01)
    gate.open.set()
