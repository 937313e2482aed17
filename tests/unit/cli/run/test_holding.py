"""Which tracebacks are shown: only the culprit's, or all of them if the master names no culprit."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from outrider.cli.run import traceback_hold
from outrider.cli.run.traceback_hold import Holding
from tests.unit.cli.run.test_narration import EFFECT, TOO, event, exited

NAN, CLOSED = "failed with ValueError: nan", "failed with RuntimeError: Connection closed by peer"


class Terminal(Holding):
    def __init__(self) -> None:
        self.shown: list[str] = []
        super().__init__(lambda stream, line: self.shown.append(line.decode().strip()))

    def rank(self, rank: int, *lines: str, stream: int = 2) -> None:
        for line in lines:
            self.line(stream, f"[{rank}]: {line}\n".encode())

    def fails(self, rank: int, error: str) -> None:
        self.rank(rank, "Traceback (most recent call last):", "  File x", error)


def began(seq: int, generation: str, after: float = 1.0) -> dict[str, object]:
    moment = datetime.now(UTC) + timedelta(seconds=after)
    return event(seq, "GenerationStarted", "worker-0", generation) | {"time": moment.isoformat()}


def test_the_culprits_traceback_alone_is_shown() -> None:
    terminal = Terminal()
    terminal.fails(0, "RuntimeError: Connection closed by peer")
    terminal.rank(1, "epoch 1", stream=1)
    terminal.fails(1, "ValueError: nan")
    assert terminal.shown == ["[1]: epoch 1"]
    terminal.event(exited(1, 1, NAN))
    terminal.event(exited(2, 0, CLOSED, EFFECT))
    terminal.close()
    assert terminal.shown[1:] == ["[1]: Traceback (most recent call last):", "[1]:   File x", "[1]: ValueError: nan"]
    assert terminal.others() == 1
    assert terminal.others() == 0


def test_an_effect_that_is_reported_before_its_cause_is_not_shown_either() -> None:
    terminal = Terminal()
    terminal.fails(0, "RuntimeError: Connection closed by peer")
    terminal.event(exited(1, 0, CLOSED))
    terminal.event(exited(2, 1, "was killed by SIGKILL"))
    terminal.event(began(3, "1.2"))
    assert terminal.shown == []
    assert terminal.others() == 1


def test_an_error_of_the_network_that_has_no_other_cause_is_shown_when_the_next_generation_begins() -> None:
    terminal = Terminal()
    terminal.fails(0, "RuntimeError: Connection closed by peer")
    terminal.event(exited(1, 0, CLOSED))
    terminal.event(began(2, "1.2"))
    assert terminal.shown[-1] == "[0]: RuntimeError: Connection closed by peer"


def test_ranks_that_fail_alike_at_the_same_moment_are_shown_once() -> None:
    terminal = Terminal()
    for rank in range(3):
        terminal.fails(rank, "ValueError: nan")
    terminal.event(exited(1, 2, NAN))
    terminal.event(exited(2, 0, NAN, TOO))
    terminal.event(exited(3, 1, "failed with KeyError: 'x'", TOO))
    assert [line[:3] for line in terminal.shown] == ["[2]"] * 3 + ["[1]"] * 3


def test_a_traceback_of_the_next_generation_is_kept_if_it_comes_before_the_event_of_its_start() -> None:
    terminal = Terminal()
    terminal.fails(0, "RuntimeError: Connection closed by peer")
    terminal.event(exited(1, 1, NAN))
    terminal.event(began(2, "1.2", after=-60.0))
    terminal.event(exited(3, 0, NAN, generation="1.2"))
    assert len(terminal.shown) == 3


def test_a_traceback_without_an_event_is_shown_after_a_while_and_its_rank_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    terminal.fails(0, "caught: ValueError")
    terminal.rank(0, "continuing")
    terminal.look()
    assert terminal.shown == []
    later = time.monotonic() + traceback_hold.PATIENCE
    monkeypatch.setattr(traceback_hold.time, "monotonic", lambda: later)
    terminal.look()
    terminal.rank(0, "still here")
    assert terminal.shown[-2:] == ["[0]: continuing", "[0]: still here"]


def test_without_a_culprit_everything_is_shown_at_the_end() -> None:
    terminal = Terminal()
    terminal.fails(0, "KeyboardInterrupt")
    terminal.close()
    assert len(terminal.shown) == 3


def test_a_rank_that_writes_without_end_is_not_held() -> None:
    terminal = Terminal()
    terminal.rank(0, "Traceback (most recent call last):", *["x" * 1000] * 300)
    assert len(terminal.shown) == 301


def test_lines_without_a_rank_pass() -> None:
    terminal = Terminal()
    terminal.line(2, b"Traceback (most recent call last):\n")
    assert terminal.shown == ["Traceback (most recent call last):"]


def test_the_traceback_of_a_culprit_is_shown_if_it_comes_after_the_event() -> None:
    terminal = Terminal()
    terminal.event(exited(1, 1, NAN))
    terminal.event(exited(2, 0, CLOSED, EFFECT))
    terminal.fails(1, "ValueError: nan")
    terminal.fails(0, "RuntimeError: Connection closed by peer")
    terminal.close()
    assert terminal.shown == ["[1]: Traceback (most recent call last):", "[1]:   File x", "[1]: ValueError: nan"]


def test_the_last_output_of_a_job_that_has_recovered_is_shown() -> None:
    terminal = Terminal()
    terminal.event(exited(1, 1, NAN))
    terminal.event(began(2, "1.2"))
    terminal.fails(0, "caught: ValueError")
    terminal.rank(0, "FINAL accuracy 93.1 %")
    terminal.close()
    assert terminal.shown[-1] == "[0]: FINAL accuracy 93.1 %"
    assert terminal.others() == 0


def test_a_rank_that_ended_because_a_member_was_lost_is_shown_in_the_next_generation() -> None:
    terminal = Terminal()
    terminal.event(began(1, "1.1"))
    terminal.event(event(2, "MemberLost", "worker-1"))
    terminal.event(exited(3, 0, CLOSED, EFFECT))
    terminal.fails(0, "RuntimeError: Connection closed by peer")
    terminal.event(began(4, "1.2"))
    terminal.event(began(5, "1.2"))
    terminal.fails(0, "caught: ValueError")
    terminal.rank(0, "epoch 2")
    terminal.close()
    assert [line for line in terminal.shown if "Connection" in line] == []
    assert terminal.shown[-2:] == ["[0]: caught: ValueError", "[0]: epoch 2"]
