"""The dashboard's page of one job, in `make test` if there is a browser."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Jobs, Opening, events
from tests.unit.report.documents import falling, fault, hang, part, status

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


def test_a_job_with_its_time_timeline_members_faults_and_events(jobs: Jobs, opening: Opening) -> None:
    jobs.add(
        "digits",
        status(4),
        part(4, [fault(1000.0), hang(2000.0, ranks=4)], numbers=[falling()]),
        events=events(),
        lines="loss 0.5\n",
    )
    seen = opening("digits")
    page = seen.open()
    seen.shows("#sentence", "digits has succeeded")
    seen.has(4, "#account-rows tr")
    seen.has(4, "#member-rows tr")
    seen.has(2, "details.fault")
    page.wait_for_selector("#timeline canvas")
    seen.has(3, "#event-rows tr")
    page.wait_for_selector("#curves svg path")
    seen.shows("#curves figure", "loss 0.04 at last, 0.04 to 4")
    page.locator("details.fault").first.locator("summary").click()
    seen.shows("details.fault >> nth=0", "ALLREDUCE number 812")
    page.get_by_role("button", name="worker-0", exact=True).click()
    seen.shows("#lines", "loss 0.5")
    seen.shows("#panel-title", "worker-0")
    assert page.evaluate("document.activeElement.id") == "panel-title"
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
    assert page.evaluate("document.activeElement.textContent") == "worker-0"
    seen.is_quiet()
