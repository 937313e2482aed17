"""The dashboard answers a browser that was given its address, on its own page; nothing and nobody else."""

from __future__ import annotations

from collections.abc import Callable

import aiohttp
import pytest

from outrider.cli.dashboard.access import OTHER_HOST, OTHER_SITE, OVER
from tests.unit.cli.dashboard.conftest import Visit

Visiting = Callable[..., None]


def test_the_token_of_the_address_becomes_a_cookie_that_scripts_and_other_sites_do_not_have(visiting: Visiting) -> None:
    async def story(visit: Visit) -> None:
        assert await visit.get("/api/start") == (401, {"problem": OVER})
        async with visit.session.get(visit.address, allow_redirects=False) as answer:
            cookie = answer.headers["Set-Cookie"]
            assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
            assert answer.headers["Location"] == "/"
            assert visit.address.query["token"] not in cookie
        assert (await visit.get("/api/start"))[0] == 200

    visiting(story)


@pytest.mark.parametrize("query", ["", "?token=", "?token=x", "?token=%F0%9F%98%80", f"?token={'x' * 43}"])
def test_another_token_is_a_sentence(visiting: Visiting, query: str) -> None:
    async def story(visit: Visit) -> None:
        assert await visit.get(f"/{query}") == (401, f"{OVER}\n")
        assert (await visit.get("/assets/timeline.js"))[0] == 401

    visiting(story)


def test_a_cookie_of_another_dashboard_does_not_count(visiting: Visiting) -> None:
    async def story(visit: Visit) -> None:
        for name in (f"outrider-{visit.address.port}", "outrider-1"):
            visit.session.cookie_jar.update_cookies({name: "x" * 43})
            assert await visit.get("/api/start") == (401, {"problem": OVER})

    visiting(story)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost.evil.example", "0.0.0.0"])
def test_another_host_is_refused_even_with_the_cookie(visiting: Visiting, host: str) -> None:
    async def story(visit: Visit) -> None:
        await visit.opened()
        assert await visit.get("/api/start", Host=host) == (403, {"problem": OTHER_HOST})
        assert (await visit.get("/api/start", Host=f"localhost:{visit.address.port}"))[0] == 200

    visiting(story)


def test_other_sites_get_nothing_and_order_nothing(visiting: Visiting) -> None:
    async def story(visit: Visit) -> None:
        await visit.opened()
        refusal = (403, {"problem": OTHER_SITE})
        assert await visit.get("/api/start", Origin="http://evil.example") == refusal
        assert await visit.get("/api/start", **{"Sec-Fetch-Site": "cross-site"}) == refusal
        assert await visit.get("/assets/timeline.js", **{"Sec-Fetch-Site": "same-site"}) == refusal
        assert (await visit.get("/api/start", **{"Sec-Fetch-Site": "same-origin"}))[0] == 200
        assert await visit.post("/api/jobs/digits/stop", Origin="null") == refusal
        assert await visit.post("/api/jobs/digits/stop", **{"X-Outrider": ""}) == refusal
        url, own = f"{visit.origin}/api/jobs/digits/stop", {"X-Outrider": "1"}
        async with visit.session.post(url, data="{}", headers=own) as answer:
            assert answer.status == 403

    visiting(story)


def test_every_answer_forbids_scripts_of_others_frames_and_caches(visiting: Visiting) -> None:
    async def story(visit: Visit) -> None:
        for path in ("/", "/api/start", "/nothing", "/assets/timeline.js"):
            async with visit.session.get(f"{visit.origin}{path}") as answer:
                assert _is_strict(answer), path
        await visit.opened()
        for path in ("/", "/api/start", "/nothing", "/assets/timeline.js", "/api/jobs"):
            async with visit.session.get(f"{visit.origin}{path}") as answer:
                assert _is_strict(answer), path

    visiting(story)


def _is_strict(answer: aiohttp.ClientResponse) -> bool:
    policy = answer.headers["Content-Security-Policy"]
    return (
        "default-src 'none'" in policy
        and "frame-ancestors 'none'" in policy
        and "unsafe" not in policy
        and answer.headers["X-Content-Type-Options"] == "nosniff"
        and answer.headers["Cache-Control"] == "no-store"
    )


def test_only_the_pages_own_files_are_served(visiting: Visiting) -> None:
    async def story(visit: Visit) -> None:
        await visit.opened()
        names = ("..%2fserver.py", "%2e%2e%2f%2e%2e%2ftext.py", "report.html", "page.js", "x.css", "timeline.js%00")
        for name in names:
            assert (await visit.get(f"/assets/{name}"))[0] == 404, name
        status, text = await visit.get("/assets/timeline.js")
        assert status == 200
        assert "const Timeline" in text

    visiting(story)
