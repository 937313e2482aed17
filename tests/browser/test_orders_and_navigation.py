"""What is clicked reaches the job that it was meant for, and the page follows its address."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from outrider.cli.dashboard.server import MOST_CONNECTIONS
from tests.browser.conftest import Jobs, Opening, Serving, events
from tests.unit.cli.conftest import ended_job as ended_job
from tests.unit.cli.conftest import home as home
from tests.unit.cli.conftest import running_job as running_job
from tests.unit.report.documents import BEGAN, fault, part, status
from tests.waiting import DEADLINE

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]


def hash_is(page: Any, hash_: str) -> None:
    page.evaluate(f"location.hash = {json.dumps(hash_)}")


# -- orders ---------------------------------------------------------------------------------------------------------
def test_an_order_is_for_the_job_that_it_was_asked_for(running_job: Any, opening: Opening) -> None:
    """The page may show another job by the time that it is confirmed."""
    one, two = running_job("one"), running_job("two")
    seen = opening()
    page = seen.open("#/job/one")
    seen.shows("#title", "one")
    hash_is(page, "#/job/two")
    seen.shows("#sentence", "two is running")
    page.get_by_role("button", name="Stop …").click()
    seen.shows("#confirm-title", "Stop two")
    page.go_back()
    seen.shows("#sentence", "one is running")
    assert page.locator("#confirm").is_hidden()
    page.get_by_role("button", name="Stop …").click()
    page.keyboard.press("Enter")
    assert page.locator("#confirm").is_hidden()
    assert (one.posted, two.posted) == ([], []), "Cancel has the focus"
    page.get_by_role("button", name="Stop …").click()
    page.get_by_role("button", name="Stop", exact=True).click()
    seen.shows("#ordered", "one is being stopped.")
    assert [what for what, _body in one.posted] == ["stop"]
    assert two.posted == []
    seen.is_quiet()


def test_a_size_is_given_by_the_keyboard_and_a_bad_one_can_be_cancelled(running_job: Any, opening: Opening) -> None:
    job = running_job("digits")
    (job.folder / "spec.json").write_text(json.dumps({"min_members": 2, "max_members": 4}))
    seen = opening("digits")
    page = seen.open()
    for bad in ("1", "5", "", "2.5"):
        page.get_by_role("button", name="Scale …").click()
        page.locator("#confirm-members").fill(bad)
        page.keyboard.press("Enter")
        assert page.locator("#confirm").is_visible()
        page.get_by_role("button", name="Cancel").click()
        assert page.locator("#confirm").is_hidden()
    assert job.posted == []
    page.get_by_role("button", name="Scale …").click()
    page.keyboard.press("Control+A")
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    seen.shows("#ordered", "3 members are requested.")
    assert job.posted == [("scale", {"replicas": 3})]
    job.status = job.status | {"generation": "1.9"}
    seen.is_empty("#ordered")
    seen.is_quiet()


# -- what is shown --------------------------------------------------------------------------------------------------
def test_a_page_of_another_job_has_nothing_of_the_one_before(jobs: Jobs, opening: Opening) -> None:
    jobs.add("digits", status(4), part(4, [fault(1000.0)]), events=events())
    jobs.add("other", status(2, job="other"), part(2, []))
    seen = opening("digits")
    page = seen.open()
    seen.shows("#sentence", "digits has succeeded")
    hash_is(page, "#/job/nope")
    seen.shows("#trouble", "nope")
    assert page.locator("#job").is_hidden()
    hash_is(page, "#/job/..")
    page.wait_for_selector("#job-rows tr:nth-child(2)")
    for width in range(1000, 1010):
        hash_is(page, "#/job/other")
        seen.shows("#sentence", "other has succeeded")
        seen.has(0, "details.fault")
        page.wait_for_selector("#timeline canvas")
        hash_is(page, "#/job/digits")
        seen.shows("#sentence", "digits has succeeded")
        seen.has(1, "details.fault")
        page.wait_for_selector("#timeline canvas")
        page.set_viewport_size({"width": width, "height": 900})
    seen.shows("#age", "ended")
    seen.is_quiet()


@pytest.mark.parametrize("hash_", ["#fault-1", "#main", "#nonsense"])
def test_any_address_shows_the_job(jobs: Jobs, opening: Opening, hash_: str) -> None:
    jobs.add("digits", status(4), part(4, [fault(1000.0)]))
    seen = opening("digits")
    page = seen.open(hash_)
    seen.shows("#sentence", "digits has succeeded")
    hash_is(page, "#fault-1")
    page.wait_for_selector("details.fault[open]")
    assert page.evaluate("location.hash") == "#/job/digits"
    page.reload()
    seen.shows("#sentence", "digits has succeeded")
    seen.is_quiet()


def test_the_timeline_is_read_by_the_keyboard(jobs: Jobs, opening: Opening) -> None:
    jobs.add("digits", status(4), part(4, [fault(1000.0, 2)]))
    seen = opening("digits")
    page = seen.open()
    page.focus("#timeline canvas")
    page.keyboard.press("ArrowDown")
    seen.shows("#readout", "Rank index 0–1")
    page.keyboard.press("ArrowDown")
    seen.shows("#readout", "Rank index 2 (2 is worker-2 on node-2): productive")
    page.keyboard.press("PageUp")
    seen.shows("#readout", "repeated_steps")
    page.keyboard.press("Enter")
    seen.shows("#details", "repeated_steps")
    seen.is_quiet()


def test_long_curves_and_the_end_of_long_tracebacks_are_whole(jobs: Jobs, opening: Opening) -> None:
    points = [[BEGAN + 3.7 * n, 0.123456 * (n % 13)] for n in range(1000)]
    trace = "".join(f'  File "train.py", line {n}, in step\n    loss.backward()\n' for n in range(60))
    long = fault(1000.0, evidence=[{"what": "exit", "rank": 0, "traceback": f"{trace}RuntimeError: the last line"}])
    jobs.add("digits", status(4), part(4, [long], numbers=[{"name": "loss", "points": points, "low": 0, "high": 9}]))
    seen = opening("digits")
    page = seen.open()
    page.wait_for_selector("#curves path")
    assert page.locator("#curves path").get_attribute("d").split()[-2] == "1000.0"
    seen.shows("#curves", "0 to 9")
    page.locator("details.fault summary").click()
    seen.shows("details.fault pre", "RuntimeError: the last line")
    seen.is_quiet()


# -- the session ----------------------------------------------------------------------------------------------------
def test_an_old_tab_says_that_its_session_is_over_and_lives_again_with_the_new_address(
    jobs: Jobs, opening: Opening
) -> None:
    jobs.add("digits", status(2))
    seen = opening("digits")
    page = seen.open()
    seen.shows("#sentence", "digits has succeeded")
    seen.end_server()
    seen.shows("#trouble", "lost since")
    again = Serving("digits", int(seen.origin.rpartition(":")[2]))
    try:
        seen.shows("#trouble", "session is over")
        other = page.context.new_page()
        other.goto(again.address)
        seen.shows("#age", "ended")
        assert page.locator("#trouble").is_hidden()
    finally:
        again.close()


def test_others_who_hold_all_connections_do_not_end_the_server(jobs: Jobs, opening: Opening) -> None:
    jobs.add("digits", status(2))
    seen = opening("digits")
    place = ("127.0.0.1", int(seen.origin.rpartition(":")[2]))
    held = [socket.create_connection(place, DEADLINE) for _ in range(MOST_CONNECTIONS + 100)]
    for each in held:
        each.close()
    seen.open()
    seen.shows("#sentence", "digits has succeeded")
    seen.is_quiet()
