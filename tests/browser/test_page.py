"""The dashboard's page: what it shows of jobs, and what it makes of hostile, old, absent and very large ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Jobs, Opening, events
from tests.unit.report.documents import BEGAN, falling, fault, hang, part, status

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

CORPUS = (
    "<img src=x onerror=alert(1)>", "<script>alert(1)</script>", "\"><svg onload=alert(1)>", "'onmouseover='alert(1)",
    "javascript:alert(1)", "</textarea><script>alert(1)</script>", "<iframe src=javascript:alert(1)>", "&lt;b&gt;",
    "{{7*7}}", "${alert(1)}", "`${alert(1)}`", "\u202egnp.exe", "\x1b[31mred", "<style>*{display:none}</style>",
    "<base href=//evil.example/>", "<link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content=0>",
    "<a href=javascript:alert(1)>x</a>",
    "<math><mtext></form><form><mglyph><svg><mtext><style><path id='</style><img onerror=alert(1) src>'>",
    "<details open ontoggle=alert(1)>", "<video><source onerror=alert(1)>", "<body onload=alert(1)>", "<!--", "]]>",
    "<object data=javascript:alert(1)>", "<form action=javascript:alert(1)><button>", "<marquee onstart=alert(1)>",
    "\u0000", "%3Cscript%3Ealert(1)%3C/script%3E", "<template><script>alert(1)</script></template>",
)  # fmt: skip
"""Texts that a user of a job can choose: 30 ways to get markup or scripts into a page that is careless."""


def large(members: int) -> Any:
    """A history in which each rank index has 39 spans of its own."""
    tracks = [
        {"seats": [[m, m]], "spans": [[40 * n + m % 7, n % 16] for n in range(39)], "end": 1560} for m in range(members)
    ]
    return part(members, [], tracks=tracks)


def test_members_are_sorted_and_filtered(jobs: Jobs, opening: Opening) -> None:
    jobs.add("digits", status(12), part(12, []))
    seen = opening("digits")
    page = seen.open()
    page.wait_for_selector("#member-rows tr:nth-child(12)")
    first = "document.querySelector('#member-rows button').textContent"
    assert page.evaluate(first) == "worker-0"
    index = page.get_by_role("button", name="index", exact=True)
    index.click()
    assert page.evaluate(first) == "worker-11"
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.get_by_label("Filter").first.fill("node-3")
    seen.has(2, "#member-rows tr")
    seen.shows("#member-count", "2 of 12")


def test_all_jobs_lead_to_each(jobs: Jobs, opening: Opening) -> None:
    for name in ("one", "two"):
        jobs.add(name, status(2, job=name))
    seen = opening()
    page = seen.open()
    page.get_by_role("link", name="two").click()
    seen.shows("#sentence", "two has succeeded")
    page.get_by_role("link", name="Outrider").click()
    page.wait_for_selector("#job-rows tr:nth-child(2)")
    assert page.locator("#job").is_hidden()
    seen.is_quiet()


def test_no_text_of_a_job_is_markup(jobs: Jobs, opening: Opening) -> None:
    """Members, nodes, messages, reasons, errors, stacks, events, output, metrics: each is one of 30 attempts."""
    texts = list(CORPUS)
    members: list[dict[str, Any]] = [
        {"id": text, "rank_index": n, "state": text, "node": text, "mode": text, "blocked": text, "role": text}
        for n, text in enumerate(texts)
    ]
    faults = [
        fault(100.0 * n, 0) | {
            "kind": text, "member": text, "node": text, "reason": text, "stages": {text: 1.0},
            "decisions": [[BEGAN + 100.0 * n, text, text]],
            "evidence": [{"what": "exit", "member": text, "rank": 0, "sentence": text, "error": text, "frame": text,
                          "traceback": text},
                         {"what": "rank", "member": text, "rank": 0, "state": text, "stack": [text],
                          "collective": text},
                         {"what": "line", "member": text, "rank": 0, "line": text}],
        }
        for n, text in enumerate(texts, 1)
    ]  # fmt: skip
    told = tuple({**event, "kind": text, "reason": text, "member": text} for event, text in
                 zip(events(len(texts)), texts, strict=True))  # fmt: skip
    job = status(len(texts)) | {
        "message": " ".join(texts), "members": members, "metrics": {"loss": texts[0], texts[1]: 1},
        "stragglers": [{"member": text, "reason": text} for text in texts],
        "time": {**dict.fromkeys(texts, 1.0), "productive": 9.0},
    }  # fmt: skip
    history = part(len(texts), faults) | {"holders": [[40, n, text, text] for n, text in enumerate(texts)]}
    history["numbers"] = [falling() | {"name": text} for text in texts]
    jobs.add("digits", job, history, events=told, lines="\n".join(texts))
    seen = opening("digits")
    page = seen.open()
    page.wait_for_selector("details.fault")
    for summary in page.locator("details.fault summary").all():
        summary.click()
    page.locator("#member-rows button").first.click()
    seen.shows("#lines", "onerror")
    page.hover("canvas", position={"x": 200, "y": 60}, force=True)
    elements = "img, iframe, object, video, marquee, form:not(dialog form), base, math, script:not([src])"
    assert page.locator(f"main :is({elements}), aside :is({elements})").count() == 0
    assert (
        page.evaluate(
            "[...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => /^on/.test(a.name))).length"
        )
        == 0
    )
    assert page.evaluate("document.querySelectorAll('a[href^=\"javascript\"]').length") == 0
    seen.shows("main", CORPUS[0])
    seen.is_quiet()


def test_a_name_with_markup_an_old_token_and_a_job_that_is_not_there_are_sentences(
    jobs: Jobs, opening: Opening
) -> None:
    jobs.add("digits", status(2))
    seen = opening("digits")
    page = seen.open("#/job/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    seen.shows("#trouble", "not found")
    old = opening(address=f"{seen.origin}/?token=old")
    assert "session is over" in old.open().inner_text("body")
    page.goto(f"{seen.origin}/#/job/digits")
    seen.shows("#sentence", "digits has succeeded")
    page.context.clear_cookies()
    page.reload()
    assert "session is over" in page.inner_text("body")
    assert all("401" in each for each in seen.complaints), "the browser itself reports a refused request"


def test_a_server_that_ends_makes_the_page_old_and_it_comes_back(jobs: Jobs, opening: Opening) -> None:
    jobs.add("digits", status(2))
    seen = opening("digits")
    page = seen.open()
    seen.shows("#sentence", "digits has succeeded")
    page.context.set_offline(True)
    seen.end_server()
    seen.shows("#trouble", "lost since")
    assert "What is shown is as of" in page.inner_text("#trouble")
    seen.has(4, "#account-rows tr")


def test_a_running_job_whose_master_is_away_says_how_old_its_data_are(jobs: Jobs, opening: Opening) -> None:
    jobs.add("digits", status(2, phase="running", exit_code=None))
    jobs.runs("digits")
    seen = opening("digits")
    seen.open()
    seen.shows("#trouble", "does not answer")
    seen.shows("#sentence", "digits is running")


@pytest.mark.parametrize("members", [0, 1, 10_000])
def test_jobs_of_any_size_are_shown(jobs: Jobs, opening: Opening, members: int) -> None:
    empty = {"members": [], "time": {}, "step": 0, "goodput": None, "phase": "pending", "exit_code": None}
    jobs.add("digits", status(members) if members else status(1) | empty, *([part(4, [])] if members else []))
    seen = opening("digits")
    seen.open()
    seen.shows("#sentence", "digits")
    seen.shows("#member-count", "100 of 10,000" if members > 200 else str(members or "No members yet."))
    seen.has(min(members, 100), "#member-rows tr")
    seen.is_quiet()


def test_a_large_job_is_redrawn_as_it_changes(jobs: Jobs, opening: Opening) -> None:
    """512 members with 20,000 spans; how long a task takes is measured by benchmarks/dashboard.py."""
    folder = jobs.add("digits", status(512), large(512))
    seen = opening("digits")
    page = seen.open()
    page.wait_for_selector("#timeline canvas")
    page.wait_for_selector("#member-rows tr:nth-child(100)")
    (folder / "status.json").write_text(json.dumps(status(512, step=20_001)))
    seen.shows("#figures", "20,001")
    seen.has(100, "#member-rows tr")
    seen.is_quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_usable_by_keyboard_and_screen_readers_and_fits(
    jobs: Jobs, opening: Opening, scheme: str, width: int, tmp_path: Path
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the extra `browser` is not installed")
    jobs.add("digits", status(4, stragglers=[{"member": "worker-1", "reason": "worker-1 is a straggler"}]),
             part(4, [fault(1000.0), hang(2000.0, ranks=4)], numbers=[falling()]), events=events(),
             lines="loss 0.5\n")  # fmt: skip
    seen = opening("digits", width=width, scheme=scheme)
    page = seen.open()
    page.wait_for_selector("details.fault")
    page.locator("details.fault summary").first.click()
    page.wait_for_selector("#timeline canvas")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(path=str(tmp_path / f"page-{width}-{scheme}.png"), full_page=True)
    found = axe.Axe().run(page).response["violations"]
    page.get_by_role("button", name="worker-0", exact=True).click()
    found += axe.Axe().run(page).response["violations"]
    serious = [f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}" for each in found
               if each["impact"] in ("serious", "critical") for node in each["nodes"]]  # fmt: skip
    assert not serious, "\n".join(serious)
