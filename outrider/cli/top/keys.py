"""Keys of a terminal: its bytes as names, and the mode in which it sends each key at once.

Ctrl-C stays a signal. Ctrl-Z is off, because a stopped command would leave the terminal without its shell's modes.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import termios
import tty
from collections.abc import Iterator

NAMES = {
    b"A": "up", b"B": "down", b"C": "right", b"D": "left", b"H": "home", b"F": "end",
    b"1~": "home", b"4~": "end", b"5~": "pageup", b"6~": "pagedown", b"7~": "home", b"8~": "end",
}  # fmt: skip
PLAIN = {"\r": "enter", "\n": "enter", "\x06": "pagedown", "\x02": "pageup", "\x04": "q"}
SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~])")
MODIFIER = re.compile(rb"^(?:1|(\d+));\d+(.)$")
"""Shift, Alt or Ctrl, which change nothing here."""
BEGUN = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
REST_SECONDS = 0.1
"""Seconds within which a network brings the rest of a sequence; after them an Esc is the key of that name."""
LONGEST = 4096


def parsed(data: bytes) -> tuple[list[str], bytes]:
    """The keys in what a terminal has sent, and a sequence whose end has not come yet. Unknown ones are dropped."""
    keys = []
    while data:
        if found := SEQUENCE.match(data):
            name = NAMES.get(MODIFIER.sub(rb"\1\2", found.group()[2:]))
            keys += [name] if name else []
            data = data[found.end() :]
        elif BEGUN.match(data):
            return keys, data
        elif data[:1] == b"\x1b":
            keys.append("escape")
            data = data[1:]
        else:
            text, mark, rest = data.partition(b"\x1b")
            keys += [PLAIN.get(each, each) for each in text.decode(errors="ignore")]
            data = mark + rest
    return keys, b""


@contextlib.contextmanager
def each_key(terminal: int) -> Iterator[None]:
    """Have the terminal send each key at once and show none, until the end of the block."""
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        now = termios.tcgetattr(terminal)
        now[6][termios.VSUSP] = os.fpathconf(terminal, "PC_VDISABLE").to_bytes(1, "little")
        termios.tcsetattr(terminal, termios.TCSANOW, now)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def read(terminal: int) -> list[str] | None:
    """The keys that the terminal has sent; None if it has closed."""
    keys, rest, data = [], b"", os.read(terminal, LONGEST)
    if not data:
        return None
    while True:
        more, rest = parsed(rest + data)
        keys += more
        if not rest:
            return keys
        if not select.select((terminal,), (), (), REST_SECONDS)[0]:
            return [*keys, "escape"] if rest == b"\x1b" else keys
        data = os.read(terminal, LONGEST)
        if not data:
            return keys
