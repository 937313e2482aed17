"""A terminal that ranks, Outrider's own lines and a progress line share."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from outrider.cli.run.terminal import ERASE, Screen
from tests.waiting import DEADLINE


def test_the_ranks_bytes_pass_unchanged_without_a_terminal() -> None:
    out, err = io.BytesIO(), io.BytesIO()
    screen = Screen(out, err, terminal=False)
    screen.progress("step 1")
    screen.ranks(1, b"[0]: \xff\x00 half")
    screen.ranks(2, b"[0]: warning\n")
    screen.say("a line")
    assert out.getvalue() == b"[0]: \xff\x00 half"
    assert err.getvalue().startswith(b"[0]: warning\n")
    assert b"step 1" not in err.getvalue()
    assert b"\x1b" not in err.getvalue()


def test_outriders_lines_never_go_to_the_ranks_standard_output() -> None:
    out, err = io.BytesIO(), io.BytesIO()
    Screen(out, err, terminal=False).say("a line")
    assert out.getvalue() == b""
    assert err.getvalue() == b"a line\n"


def test_the_progress_line_is_gone_before_anything_is_written_and_back_after() -> None:
    both = io.BytesIO()
    screen = Screen(both, both, terminal=True)
    screen.progress("step 1")
    screen.ranks(1, b"[0]: loss 1\n")
    screen.progress("step 2")
    screen.ranks(2, b"[1]: loss 2\n")
    screen.say("a fault")
    screen.progress("")
    screen.say("the end")
    written = both.getvalue()
    for text in (b"[0]: loss 1\n", b"[1]: loss 2\n", b"a fault"):
        before = written[: written.index(text)]
        assert before.endswith(ERASE), f"{text!r} was written behind a progress line"
    assert written.count(b"step 2") == 3
    assert written.endswith(b"the end\n")


def test_a_progress_line_is_not_drawn_after_an_unfinished_line() -> None:
    both = io.BytesIO()
    screen = Screen(both, both, terminal=True)
    screen.ranks(1, b"[0]: 10 %")
    screen.progress("step 1")
    assert b"step 1" not in both.getvalue()
    screen.ranks(1, b" done\n")
    assert b"[0]: 10 % done\n" in both.getvalue()
    assert b"step 1" in both.getvalue()


def test_an_own_line_does_not_continue_a_ranks_unfinished_one() -> None:
    both = io.BytesIO()
    screen = Screen(both, both, terminal=True)
    screen.ranks(1, b"[0]: 10 %")
    screen.say("a fault")
    assert both.getvalue() == b"[0]: 10 %\na fault\n"


def test_brackets_in_a_line_are_text() -> None:
    err = io.BytesIO()
    Screen(io.BytesIO(), err, terminal=False).say("local_ranks=[0] [bold]x[/bold]")
    assert err.getvalue() == b"local_ranks=[0] [bold]x[/bold]\n"


def test_a_reader_that_goes_away_does_not_end_the_job() -> None:
    out = io.BytesIO()
    screen = Screen(out, io.BytesIO(), terminal=False)
    out.close()
    screen.ranks(1, b"lost\n")
    screen.ranks(1, b"lost too\n")


def test_a_full_disk_does_not_end_the_job() -> None:
    err = io.BytesIO()
    with open("/dev/full", "wb", buffering=0) as full:
        screen = Screen(full, err, terminal=False)  # type: ignore[arg-type]
        screen.ranks(1, b"lost\n")
        screen.ranks(1, b"lost too\n")
        screen.say("the end")
    assert err.getvalue() == b"the end\n"


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">/dev/full", "2>/dev/full", "<&- >&- 2>&-", "2>&1 | exit 0"])
def test_broken_streams_do_not_change_the_exit_code(redirection: str) -> None:
    program = (
        "from outrider.cli.main import open_standard_descriptors as o; o()\n"
        "from outrider.cli.run.terminal import Screen\n"
        "screen = Screen()\n"
        "for _ in range(3): screen.ranks(1, b'x' * 100_000); screen.ranks(2, b'x' * 100_000); screen.say('a line')\n"
        "raise SystemExit(7)"
    )
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'"$0" -c "$1" {redirection}', sys.executable, program],
        capture_output=True,
        timeout=DEADLINE,
    )
    assert ran.returncode == 7
    assert b"Traceback" not in ran.stderr
    assert b"Exception" not in ran.stderr
