"""What a stranger writes into names, log lines and numbers is shown as text, or becomes a sentence."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.report.documents import hang, made, part, status
from tests.unit.report.reader import Page

TEXTS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "--><img src=x onerror=alert(1)>",
    "\"><svg onload=alert(1)>",
    "' onmouseover='alert(1)",
    "</style><style>*{display:none}</style>",
    "</title><h1>pwned</h1>",
    "</pre></article></section>",
    "javascript:alert(1)",
    "{{ 7*7 }}{% raw %}",
    "${7*7}",
    "&lt;b&gt; &amp;#60;",
    "]]><![CDATA[",
    "<meta http-equiv=refresh content='0;url=http://example.invalid'>",
    "<base href=http://example.invalid/>",
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;http://example.invalid\x07link\x1b]8;;\x07",
    "\x1b[2J\x1b[H\x1bc",
    "\x00\x01\x02\x7f\x9b31m",
    "\ud800\udfff lone",
    "\u202egnp.exe \u2066x\u2069",
    "\ufeff\u200f\u2028\u2029",
    "a\r\nb\rc\n\td",
    "e\u0301" * 300,
    "x" * 2_000_000,
    " " * 10_000,
    "名前 🙂 مرحبا",
    "../../../../etc/passwd",
    "-1e999",
    "%s%n%x",
    "<a href='data:text/html,<script>1</script>'>",
)  # fmt: skip
VALUES = (
    None, True, False, -1, 0, 10**15, -(10**30), 2**63, math.nan, math.inf, 9e10, -9e10, -math.inf, 1e308, -5e-324, "7",
    [], {}, [[]], [None], {"a": {"b": []}}, [[[[[]]]]], [1, 2, 3], {"": ""}, b"bytes",
)  # fmt: skip


ELEMENTS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "section", "article", "footer", "h1", "h2",
    "h3", "h4", "p", "span", "small", "b", "ul", "ol", "li", "dl", "div", "dt", "dd", "table", "thead", "tbody", "tr",
    "th", "td", "svg", "rect", "path", "figure", "figcaption", "canvas", "button", "details", "summary", "pre", "code",
    "time", "script",
}  # fmt: skip


def documents() -> tuple[Any, Any]:
    """One job with everything that a document can have."""
    held = part(8, [hang(1000.0)])
    held["faults"][0]["evidence"].append({"what": "line", "member": "worker-1", "rank": 1, "line": "NCCL WARN"})
    held["faults"][0]["evidence"].append({"what": "exit", "member": "worker-1", "rank": 1, "sentence": "exit code 1",
                                          "error": "E: x", "frame": "f", "traceback": "T", "step": 1})  # fmt: skip
    listed = {"time": "2026-11-21T03:00:00Z", "kind": "MemberLost", "member": "worker-1", "reason": "gone",
              "seconds_lost": 1.0, "stages": {"wait": 3.0}}  # fmt: skip
    slow = [{"member": "worker-1", "reason": "worker-1 is slow"}]
    return status(8, faults=[listed], stragglers=slow, excluded_nodes=["n1"]), held


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value; of a list the first two."""
    yield path
    if isinstance(document, dict):
        for name in document:
            yield from places(document[name], (*path, name))
    elif isinstance(document, list):
        for number in range(min(2, len(document))):
            yield from places(document[number], (*path, number))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copied = copy.copy(document)
    copied[path[0]] = replaced(document[path[0]], path[1:], value)
    return copied


def texts_replaced(document: Any, text: str) -> Any:
    """Every text is another one; so are the names in maps of numbers."""
    if isinstance(document, str):
        return text
    if isinstance(document, list):
        return [texts_replaced(each, text) for each in document]
    if isinstance(document, dict):
        is_amounts = document and all(type(each) is float for each in document.values())
        return {
            (text[:50] + name if is_amounts else name): texts_replaced(each, text) for name, each in document.items()
        }
    return document


def check(html: str) -> Page:
    """Nothing but our own elements and scripts is in a page, and it is whole."""
    page = Page(html)
    tags = {tag for tag, _ in page.elements}
    assert tags <= ELEMENTS
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert [tag for tag, _ in page.elements].count("style") == 1
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "href", "style", "action")]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]", html)
    html.encode()
    json.loads(page.scripts[0])
    assert "<" not in page.scripts[0]
    assert page.text.rstrip().endswith("Times are in UTC.")
    assert len(html.encode()) < 600_000
    return page


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_markup_and_control_characters_are_text(text: str) -> None:
    held_status, held_part = documents()
    events = [{"time": "2026-11-21T03:00:00Z", "kind": text, "severity": text, "member": text, "reason": text}] * 3
    page = check(
        made(texts_replaced(held_status, text), texts_replaced(held_part, text), events=events, where=text[:99])
    )
    assert page.scripts[1] == Page(made()).scripts[1]
    if text.isascii() and text.isprintable() and text.strip() and len(text) < 100:
        shown = check(made(held_status, replaced(held_part, ("faults", 0, "reason"), text)))
        assert text in shown.text


@pytest.mark.parametrize("apart", [11, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_each_value_may_be_any_other_one(apart: int) -> None:
    held_status, held_part = documents()
    cases = [(0, path, value) for path in places(held_status) for value in VALUES]
    cases += [(1, path, value) for path in places(held_part) for value in VALUES]
    for document, path, value in cases[::apart]:
        changed = [held_status, held_part]
        changed[document] = replaced(changed[document], path, value)
        check(made(*changed))


def test_a_wrong_value_is_named_and_the_rest_is_shown() -> None:
    held_status, held_part = documents()
    held_part["faults"][0]["node"] = 7
    held_part["generations"].append(["late"])
    held_status["goodput"] = "high"
    text = Page(made(held_status, held_part)).text
    assert "history-1.json.faults[0].node is left out: Invalid value: 7: must be text." in text
    assert "history-1.json.generations: 1 of 3 entries are left out" in text
    assert "status.goodput is left out: Invalid value: 'high': must be a finite number." in text
    assert "Kind: HangDetected" in text


def test_a_document_that_is_none_is_a_sentence() -> None:
    text = Page(made("no map", ["not", "a", "map"])).text
    assert "status is left out: it is 'no map', and must be a map." in text
    assert "history-1.json is left out: it is an array, and must be a map." in text
    assert "A job without a name" in text


def test_the_policy_allows_the_page_s_own_script_and_style_alone() -> None:
    policy = next(found["content"] for tag, found in Page(made()).elements if found.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_many_wrong_parts_are_not_all_listed() -> None:
    held = part(4)
    held["faults"] = [{"at": "x", "kind": n, "member": {}, "ranks": 5} for n in range(100)]
    text = Page(made(status(), held)).text
    assert "more parts were wrong in the same or another way" in text


def test_a_text_too_long_is_cut() -> None:
    held = part(4)
    held["faults"][0]["reason"] = "y" * 10_000
    assert "y" * 600 not in Page(made(status(), held)).text
