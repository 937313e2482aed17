"""What the pages show, in any terminal and with any names."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from outrider.cli.errors import Unreachable, UserError
from outrider.cli.top import screen
from outrider.cli.top.feed import Seen, asked, asked_for_stacks
from outrider.cli.top.view import EVENTS, HELP, JOB, JOBS, MEMBER, STACKS, View
from tests.unit.cli.conftest import document

EVENT = {"time": "2026-11-21T03:00:00Z", "kind": "Recovered", "member": "worker-0", "reason": "all is well"}
HOSTILE = "\x1b[2J[bold red]x[/]\x9b31m\x07\u202e\nsecond"


def seen(**changes: Any) -> Seen:
    return Seen(status=document(**changes), at=100.0, events=[EVENT])


def shown(seen: Seen, view: View, width: int = 100, height: int | None = 30, now: float = 100.0) -> str:
    return "\n".join(line.plain for line in screen.page(seen, view, width, height, now))


def view(*pages: str, **fields: Any) -> View:
    return View(pages or (JOB,), "digits", **fields)


def test_a_job_is_one_sentence_with_its_members_faults_and_events() -> None:
    page = shown(seen(message="waiting for worker-4", goodput_1h=0.99, mtbf_seconds=7200), view(), 150)
    for words in (
        "digits is running, generation 1.2, 2 ranks, step 1,240, 1 restart, goodput 96.2 %, last hour 99.0 %",
        "2 h 00 m 00 s between faults",
        "waiting for worker-4", "worker-0 running 1,240", "WorkerExited worker-0, 0.21 s lost", "all is well",
        "2 members by index",
    ):  # fmt: skip
        assert words in page


def test_where_the_time_went_is_shown_if_the_status_has_it() -> None:
    spent = {"training": 3600, "restarting": 40.5, "waiting_for_pods": 61, "hang": 5, "check": 1, "none": 0, "bad": "x"}
    account = "training 1 h 00 m 00 s, waiting_for_pods 1 m 01 s, restarting 40.50 s, hang 5.00 s, 1 more"
    assert f"time account: {account}" in shown(seen(time=spent), view(), 200)
    assert "time account" not in shown(seen(time=None), view())


def test_an_ended_job_says_how_it_ended() -> None:
    assert "digits has failed with exit code 3" in shown(seen(phase="failed", exit_code=3), view())
    assert "digits was stopped" in shown(seen(phase="stopped"), view())


@pytest.mark.parametrize("pages", [(JOBS,), (JOB,), (JOB, MEMBER), (JOB, STACKS), (JOB, EVENTS), (JOB, HELP)])
@pytest.mark.parametrize(("width", "height"), [(40, 12), (10, 4), (200, 60)])
def test_a_page_has_exactly_the_size_of_the_terminal(pages: tuple[str, ...], width: int, height: int) -> None:
    lines = screen.page(seen(message="word " * 100), view(*pages, member="worker-0"), width, height, 200.0)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)


def test_forty_columns_have_member_state_and_step() -> None:
    page = shown(seen(), view(), 40)
    assert "index member   state   step" in page
    assert "1,240" in page
    assert "mode" not in page.splitlines()[3]


def test_of_ten_thousand_members_only_the_visible_rows_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [{"id": f"worker-{number}", "rank_index": number, "state": "running"} for number in range(10_000)]
    made = []
    cell = screen.MEMBER_COLUMNS["member"]
    monkeypatch.setitem(screen.MEMBER_COLUMNS, "member", lambda *row: made.append(row) or cell(*row))  # type: ignore[func-returns-value]
    page = shown(seen(members=members, faults=[]), view(member="worker-5000"))
    assert "worker-5000" in page
    assert len(made) < 30


def test_no_name_or_message_reaches_the_terminal_as_an_order() -> None:
    hostile = {"id": HOSTILE, "rank_index": 0, "state": HOSTILE, "node": HOSTILE, "mode": HOSTILE, "extra": [HOSTILE]}
    fault = {"time": HOSTILE, "kind": HOSTILE, "member": HOSTILE, "reason": HOSTILE}
    network = {"down": [{"members": [HOSTILE, HOSTILE]}], "slow": [{"member": HOSTILE}]}
    everything = Seen(
        jobs=[{"job": HOSTILE, "phase": HOSTILE, "message": HOSTILE}],
        status=document(HOSTILE, phase=HOSTILE, generation=HOSTILE, message=HOSTILE, members=[hostile], faults=[fault],
                        network=network, late=HOSTILE, time={HOSTILE: 3}),
        at=1.0, problem=HOSTILE, events=[fault], events_problem="",
        stacks={"members": {HOSTILE: {"ranks": [{"rank": 0, "pid": 1, "stack": HOSTILE}]}, "b": {"error": HOSTILE}},
                "missing": [HOSTILE]},
    )  # fmt: skip
    for pages in ((JOBS,), (JOB,), (JOB, MEMBER), (JOB, STACKS), (JOB, EVENTS)):
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, width=300, color_system=None, highlight=False)
        for line in screen.page(everything, view(*pages, member=HOSTILE), 300, 60, 2.0):
            console.print(line)
        text = out.getvalue()
        assert "[bold red]x[/]" in text, "markup is text"
        for character in ("\x1b[2J", "\x9b", "\x07", "\u202e"):
            assert character not in text, pages


def test_orders_put_what_stands_out_first() -> None:
    rows = [("a", 0, 5, 0.1, 10.0), ("b", 1, 3, 0.9, 20.0), ("c", 2, 9, 0.5, 30.0)]
    members = [
        {"id": name, "rank_index": index, "step": step, "cpu": cpu, "memory_mib": memory, "state": "running"}
        for name, index, step, cpu, memory in reversed(rows)
    ]
    members.append({"id": "spare", "rank_index": None, "state": "spare"})

    def order(sort: str) -> list[str]:
        return [each["id"] for each in screen.members_of({"members": members}, sort)]

    assert order("index") == ["a", "b", "c", "spare"]
    assert order("step") == ["spare", "b", "a", "c"]
    assert order("cpu") == ["b", "c", "a", "spare"]
    assert order("memory") == ["c", "b", "a", "spare"]
    assert order("state") == ["a", "b", "c", "spare"]


def test_links_that_are_down_or_slow_are_named() -> None:
    members = [{"id": "a", "round_trip_ms": 0.31, "loss": 0.1}, {"id": "b"}, {"id": "c", "round_trip_ms": 9.0}]
    network = {"down": [{"members": ["a", "b"]}], "slow": [{"member": "c"}]}
    page = shown(seen(members=members, network=network), view())
    for words in ("down: b 0.31 ms 10.0 % lost", "down: a", "slow 9.00 ms"):
        assert words in page


def test_old_data_and_a_lost_connection_are_shown() -> None:
    assert "the data are 7.00 s old" in shown(seen(), view(), now=107.0)
    assert "the data are" not in shown(seen(), view(), now=101.0)


class Failing:
    every = 1.0

    def __init__(self, problem: str = "", events_problem: str = "") -> None:
        self.problem, self.events_problem = problem, events_problem

    def jobs(self) -> list[dict[str, Any]]:
        return [self.status("digits")]

    def status(self, job: str) -> dict[str, Any]:
        if self.problem:
            raise Unreachable(self.problem)
        return document(job, step=7)

    def events(self, job: str) -> list[dict[str, Any]]:
        if self.events_problem:
            raise UserError(self.events_problem)
        return [EVENT]

    def stacks(self, job: str) -> dict[str, Any]:
        raise Unreachable("no member answers")


def test_what_cannot_be_read_again_stays_with_the_reason() -> None:
    first = asked(Failing(), view(), Seen(), lambda: 1.0)
    later = asked(Failing("the master is away", "no right to events"), view(), first, lambda: 9.0)
    assert (later.at, later.status, later.events) == (1.0, first.status, [EVENT])
    page = shown(later, view(), now=9.0)
    assert "the data are 8.00 s old: the master is away" in page
    assert "events: no right to events" in page
    assert asked(Failing(), view(), later, lambda: 10.0).problem == ""
    assert "no answer yet: the master is away" in shown(asked(Failing("the master is away"), view(), Seen()), view())


def test_stacks_are_awaited_and_their_failure_is_shown() -> None:
    assert "asking every rank" in shown(seen(), view(JOB, STACKS))
    assert "no member answers" in shown(asked_for_stacks(Failing(), "digits", seen()), view(JOB, STACKS))


def test_without_a_height_everything_is_there() -> None:
    members = [{"id": f"worker-{number}", "rank_index": number, "state": "running"} for number in range(100)]
    assert "worker-99" in shown(seen(members=members), view(), height=None)
