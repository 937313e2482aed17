"""The dashboard's page of one job, in `make test` if there is a browser."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Jobs, Opening, events
from tests.unit.report.documents import fault, hang, part, status

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


def test_a_job_with_its_time_timeline_members_faults_and_events(jobs: Jobs, opening: Opening) -> None:
    jobs.add("digits", status(4), part(4, [fault(1000.0), hang(2000.0, ranks=4)]), events=events(), lines="loss 0.5\n")
    seen = opening("digits")
    page = seen.open()
    seen.shows("#sentence", "digits has succeeded")
    assert page.locator("#account-rows tr").count() == 4
    assert page.locator("#member-rows tr").count() == 4
    assert page.locator("details.fault").count() == 2
    page.wait_for_selector("#timeline canvas")
    assert page.locator("#event-rows tr").count() == 3
    page.locator("details.fault").first.locator("summary").click()
    assert "ALLREDUCE number 812" in page.locator("details.fault").first.inner_text()
    page.get_by_role("button", name="worker-0", exact=True).click()
    seen.shows("#lines", "loss 0.5")
    assert "worker-0" in page.locator("#panel-title").inner_text()
    assert page.evaluate("document.activeElement.id") == "panel-title"
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
    assert page.evaluate("document.activeElement.textContent") == "worker-0"
    seen.is_quiet()
