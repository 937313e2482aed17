"""The bytes of a terminal as keys."""

from __future__ import annotations

import os
import pty
import tty

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.top import keys

SENT = {
    b"\x1b[A\x1b[B": ["up", "down"],
    b"\x1bOA": ["up"],
    b"\x1b[1;5A": ["up"],
    b"\x1b[5~\x1b[6~": ["pageup", "pagedown"],
    b"jk\rq": ["j", "k", "enter", "q"],
    b"\x1b\x1b[A": ["escape", "up"],
    b"\x1bj": ["escape", "j"],
    b"\x1b[<0;10;10Mj": ["j"],
    "é".encode() + b"\xff?": ["é", "?"],
}


@pytest.mark.parametrize(("data", "names"), SENT.items())
def test_known_keys_have_names_and_unknown_sequences_are_dropped(data: bytes, names: list[str]) -> None:
    assert keys.parsed(data) == (names, b"")


@pytest.mark.parametrize("part", [b"\x1b", b"\x1b[", b"\x1bO", b"\x1b[1;"])
def test_a_sequence_waits_for_its_end(part: bytes) -> None:
    assert keys.parsed(b"j" + part) == (["j"], part)


@given(st.binary(max_size=40))
def test_any_bytes_can_be_sent(data: bytes) -> None:
    _, rest = keys.parsed(data)
    assert rest == b"" or rest.startswith(b"\x1b")


def test_an_escape_alone_is_a_key_and_a_closed_terminal_is_none() -> None:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    os.write(ours, b"\x1b")
    assert keys.read(theirs) == ["escape"]
    os.close(ours)
    os.close(theirs)
    reading, writing = os.pipe()
    os.close(writing)
    assert keys.read(reading) is None
    os.close(reading)
