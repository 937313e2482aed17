"""What each key changes."""

from __future__ import annotations

from outrider.cli.top.view import EVENTS, HELP, JOB, JOBS, MEMBER, STACKS, View, pressed

NAMES = [f"worker-{number}" for number in range(30)]


def after(view: View, *keys: str, entries: list[str] = NAMES, rows: int = 10) -> View:
    for key in keys:
        changed = pressed(view, key, entries, rows)
        assert changed is not None
        view = changed
    return view


def test_a_member_is_chosen_and_shown_and_stays_chosen() -> None:
    view = after(View((JOB,), "digits"), "down", "j", "enter")
    assert (view.page, view.member) == (MEMBER, "worker-2")
    assert (after(view, "q").page, after(view, "q").member) == (JOB, "worker-2")


def test_the_first_and_the_last_member_are_the_ends() -> None:
    view = View((JOB,), "digits")
    assert after(view, "up").member == "worker-0"
    assert after(view, "G", "down").member == "worker-29"
    assert after(view, "pagedown").member == "worker-10"
    assert after(view, "G", "g").member == "worker-0"
    assert after(View((JOB,), "digits", member="gone"), "down").member == "worker-1"
    assert after(view, "down", "enter", entries=[]) == view


def test_escape_closes_the_last_page_and_then_the_view() -> None:
    view = after(View((JOBS,)), "down", "enter", entries=["one", "two"])
    assert (view.page, view.job) == (JOB, "two")
    for page, key in ((STACKS, "s"), (EVENTS, "e"), (HELP, "?")):
        assert after(view, key).page == page
        assert after(view, key, "escape") == after(view, key, "q")
    assert after(view, "escape").page == JOBS
    assert pressed(View((JOBS,)), "q", [], 10) is None


def test_the_order_comes_around() -> None:
    view = View((JOB,), "digits")
    assert [after(view, *"o" * times).sort for times in range(6)] == [
        "index",
        "step",
        "cpu",
        "memory",
        "state",
        "index",
    ]


def test_stacks_are_requested_again_on_the_same_page() -> None:
    view = after(View((JOB,), "digits"), "s", "s")
    assert (view.pages, view.asked) == ((JOB, STACKS), 2)


def test_a_text_scrolls_within_its_lines() -> None:
    view = View((JOB, EVENTS), "digits")
    assert after(view, "up").scroll == 0
    assert after(view, "G", "down").scroll == 20
    assert after(view, "G", entries=NAMES[:5]).scroll == 0
