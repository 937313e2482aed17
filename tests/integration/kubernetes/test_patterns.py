"""Users' patterns are compiled beside the master's loop: by the real process, for the real webhook and Fleet."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from outrider.master.core.k8s.elasticjob import spec as elasticjob_spec
from outrider.master.core.k8s.elasticjob import validation
from outrider.master.core.k8s.values.limits import MEMBERS, Limits
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.patterns import LONGEST, MOST, judge, of_job
from outrider.master.service.pattern_compiler import NotJudged, Patterns
from tests.integration.kubernetes.api_server import api_server
from tests.integration.kubernetes.served_fleet import healthy, served
from tests.integration.kubernetes.test_fences import condition
from tests.integration.kubernetes.webhook.test_webhook import review, serving
from tests.unit.master.core.k8s.documents import job
from tests.waiting import until

SLOW = "(?i)" + "[Ā-￿]" * 198
"""A second of processor time; half of one where it is fast."""
TOO_SLOW = "must compile within 0.1 s of CPU time; use smaller character sets, or leave out (?i)"


def with_rules(*patterns: str, metrics: str = "", name: str = "digits") -> Document:
    rules = [{"logPattern": pattern, "action": "restart"} for pattern in patterns]
    asked = {"metrics": {"logPattern": metrics}} if metrics else {}
    return job(name=name, recovery={"rules": rules}, **asked)


def problems(patterns: Patterns, document: Document) -> list[str]:
    return validation.problems(document, limits=Limits(MEMBERS, patterns.verdicts))


def compiled_here(work: Callable[[], object]) -> list[str]:
    """Modules in which `re.compile` was called meanwhile."""
    callers: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if (
            event == "call"
            and frame.f_code.co_name == "compile"
            and frame.f_code.co_filename.endswith("re/__init__.py")
        ):
            callers.append(frame.f_back.f_code.co_filename if frame.f_back else "")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return callers


async def test_a_pattern_that_takes_too_long_is_refused_by_its_path_and_what_was_before_it_is_known() -> None:
    patterns, document = Patterns(), with_rules("OOM", "(", SLOW, "after it")
    assert patterns.unknown(document) == ["OOM", "(", SLOW, "after it"]
    await patterns.learn(document)
    wrong = problems(patterns, document)
    assert wrong[0].startswith('spec.recovery.rules[1].logPattern: Invalid value: "(": must be a regular expression: ')
    assert wrong[1].startswith('spec.recovery.rules[2].logPattern: Invalid value: "(?i)')
    assert wrong[1].endswith(TOO_SLOW)
    assert len(wrong) == 2
    assert patterns.unknown(document) == [], "it is refused anyway"


async def test_each_pattern_is_compiled_once_and_never_by_the_master() -> None:
    patterns, document = Patterns(), with_rules("a", "b", metrics=r"loss (?P<loss>\S+)")
    await patterns.learn(document)
    assert patterns.unknown(document) == []
    assert patterns.unknown(with_rules("b", "c")) == ["c"]
    assert compiled_here(lambda: problems(patterns, document)) == []
    assert compiled_here(lambda: judge("a")) != [], "else nothing would be seen here"


async def test_the_groups_of_a_pattern_for_metrics_are_known() -> None:
    patterns, document = Patterns(), with_rules(metrics=r"(?P<lost>\S+)")
    await patterns.learn(document)
    assert problems(patterns, document)[0].startswith('spec.metrics.logPattern: Unsupported value: "(?P<lost>...)"')


async def test_two_who_ask_at_once_for_the_same_have_it_compiled_once() -> None:
    patterns = Patterns()
    started = 0
    begin = patterns._started

    async def counted() -> asyncio.subprocess.Process:
        nonlocal started
        started += 1
        return await begin()

    patterns._started = counted  # type: ignore[method-assign]
    await asyncio.gather(*(patterns.learn(with_rules("a", "b")) for _ in range(3)))
    assert (started, patterns.unknown(with_rules("a", "b"))) == (1, [])


async def test_a_process_that_cannot_be_run_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    patterns = Patterns()
    with pytest.raises(NotJudged, match="the process that compiles patterns could not be started"):
        await patterns.learn(with_rules("a"))
    assert patterns.unknown(with_rules("a")) == ["a"]


def test_of_a_job_so_many_patterns_are_compiled_and_none_that_is_too_long() -> None:
    texts = [f"pattern {number}" for number in range(MOST + 100)]
    assert of_job(with_rules("x" * (LONGEST + 1), "", *texts, texts[0])) == texts[:MOST]
    assert of_job({"spec": {"recovery": {"rules": {"logPattern": "a"}}, "metrics": ["a"]}}) == []


async def test_the_webhook_answers_others_while_a_pattern_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that compiles waits until the other review, which was sent behind the slow one's, is answered."""
    gate, python = tmp_path / "gate", tmp_path / "python"
    os.mkfifo(gate)
    python.write_text(f'#!/bin/sh\nread opened <"{gate}"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    patterns = Patterns()

    async def validate(document: Document, old: Document | None) -> list[str]:
        await patterns.learn(document)
        return problems(patterns, document)

    with gate.open("r+b", buffering=0) as opened:
        async with serving(lambda pod, *_: (None, []), elasticjob_spec.with_defaults, validate, seconds=60.0) as asked:
            reviewed = partial(asked.decide, "/validate-elasticjobs")
            slow = asyncio.ensure_future(reviewed(review(with_rules(SLOW, name="slow"))))
            await until(patterns._turn.locked)
            plain = await reviewed(review(with_rules(name="plain")))
            assert not slow.done()
            opened.write(b"open\n")
            refused = await slow
    assert (plain["allowed"], refused["allowed"]) == (True, False)
    assert TOO_SLOW in refused["status"]["message"]


async def test_a_stored_job_with_a_slow_pattern_is_refused_and_others_begin(tmp_path: Path) -> None:
    hostile = with_rules(SLOW, name="hostile")
    hostile["metadata"] |= {"namespace": "team-b", "uid": "hostile-uid", "generation": 1}
    fine = with_rules("CUDA error", name="fine")
    fine["metadata"] |= {"namespace": "team-c", "uid": "fine-uid", "generation": 1}
    async with api_server() as (server, api):
        path, others = server.put_job(hostile), [server.put_job(healthy()), server.put_job(fine)]
        async with served(server, api, tmp_path) as master:
            valid = await server.until(lambda: condition(server.documents[path], "Valid"), lambda: "no verdict")
            assert valid["message"].startswith("spec.recovery.rules[0].logPattern: ")
            assert valid["message"].endswith(f"{TOO_SLOW}")
            for other in others:
                await server.until(
                    lambda other=other: server.documents[other].get("status"), lambda: "it did not begin"
                )
            master.assert_lives()


async def test_an_edit_with_a_slow_pattern_leaves_the_job_as_it_was(tmp_path: Path) -> None:
    async with api_server() as (server, api):
        path = server.put_job(healthy())
        async with served(server, api, tmp_path) as master:
            await server.until(lambda: server.documents[path].get("status"), lambda: "it did not begin")
            edited = {**server.documents[path], "metadata": {**server.documents[path]["metadata"], "generation": 2}}
            edited["spec"] = {**edited["spec"], "recovery": {"rules": [{"logPattern": SLOW, "action": "restart"}]}}
            server.put(path, edited)
            valid = await server.until(
                lambda: (found := condition(server.documents[path], "Valid")).get("status") == "False" and found,
                lambda: "the edit was not refused",
            )
            assert TOO_SLOW in valid["message"]
            master.assert_lives()
