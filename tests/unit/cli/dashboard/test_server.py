"""What the dashboard tells its page of jobs that run, have ended, or are not there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from outrider.cli.dashboard import page
from outrider.cli.dashboard.feed import JobFeed
from outrider.cli.dashboard.sources import Local
from tests.unit.cli.conftest import document
from tests.unit.cli.dashboard.conftest import Visit, until
from tests.unit.report.documents import part
from tests.waiting import DEADLINE

Visiting = Callable[..., None]
MARKUP = "<img src=x onerror=alert(1)>\"'&\x1b[31m\u202e"


def test_all_jobs_and_what_becomes_of_them(visiting: Visiting, running_job: Any, ended_job: Any) -> None:
    job = running_job("digits")
    ended_job("old", phase="failed")

    async def story(visit: Visit) -> None:
        await visit.opened()
        assert (await visit.get("/api/start"))[1] | {"release": ""} == {
            "version": 1, "where": "this machine", "job": "digits", "release": "",
        }  # fmt: skip
        async with visit.stream("/api/jobs") as messages:
            first = await until(messages, "jobs")
            assert [(each["job"], each["phase"]) for each in first["jobs"]] == [
                ("digits", "running"),
                ("old", "failed"),
            ]
            assert first["jobs"][0]["sentence"].startswith("digits is running, generation 1.2, 2 ranks, step 1,240")
            job.status = document(step=1300)
            await until(messages, "jobs", lambda found: found["jobs"][0]["step"] == 1300)

    visiting(story, "digits")


def test_a_running_job_is_followed(visiting: Visiting, running_job: Any) -> None:
    job = running_job("digits", time={"productive": 30.0, "importing": 10.0})

    async def story(visit: Visit) -> None:
        await visit.opened()
        async with visit.stream("/api/jobs/digits") as messages:
            first = await until(messages, "job")
            assert [each["id"] for each in first["members"]] == ["worker-0", "worker-1"]
            assert [(each["name"], each["share"]) for each in first["account"]] == [
                ("productive", 0.75), ("importing", 0.25),
            ]  # fmt: skip
            assert [each["kind"] for each in first["faults"]] == ["WorkerExited"]
            assert first["may"] == {"stop": True, "restart": True, "scale": True}
            job.status = document(phase="restarting", message="waiting for worker-4")
            later = await until(messages, "job", lambda found: found["phase"] == "restarting")
            assert later["message"] == "waiting for worker-4"

    visiting(story)


@pytest.mark.parametrize(("spec", "sizes", "may"), [
    ({"min_members": 2, "max_members": 2}, [2, 2], False),
    ({"min_members": 2, "max_members": 4}, [2, 4], True),
    ({"min_members": [], "max_members": 4}, [None, None], True),
])  # fmt: skip
def test_a_job_of_one_size_is_not_scaled(
    spec: dict[str, Any], sizes: list[int | None], may: bool, visiting: Visiting, running_job: Any
) -> None:
    (running_job("digits").folder / "spec.json").write_text(json.dumps(spec))

    async def story(visit: Visit) -> None:
        await visit.opened()
        async with visit.stream("/api/jobs/digits") as messages:
            job = await until(messages, "job")
            assert (job["sizes"], job["may"]["scale"]) == (sizes, may)

    visiting(story)


def test_an_ended_job_has_its_timeline_faults_and_no_orders(visiting: Visiting, ended_job: Any) -> None:
    folder = ended_job("digits", phase="failed", exit_code=1)
    (folder / "history-1.json").write_text(json.dumps(part(4)))
    line = {"seq": 1, "time": "2026-11-21T03:00:00Z", "kind": "JobFailed", "severity": "warning", "member": None,
            "generation": "1.2", "reason": MARKUP, "detail": {}}  # fmt: skip
    (folder / "events.jsonl").write_text(json.dumps(line) + "\n")

    async def story(visit: Visit) -> None:
        await visit.opened()
        async with visit.stream("/api/jobs/digits") as messages:
            job = await until(messages, "job")
            assert job["may"] == {"stop": False, "restart": False, "scale": False}
            assert job["to_do"].startswith("Mend ") or job["to_do"].startswith("Read why it failed")
            assert any(each["exits"] for each in job["faults"])
            timeline = await until(messages, "timeline")
            assert timeline["rows"]
            assert timeline["faults"]
            (event,) = (await until(messages, "events"))["events"]
            assert event["kind"] == "JobFailed"
            assert "\x1b" not in event["reason"]
            assert "\u202e" not in event["reason"]
            assert event["reason"].startswith("<img src=x onerror=alert(1)>")  # the page shows it as text

    visiting(story)


def test_a_page_that_takes_its_messages_slowly_misses_no_reading(
    ended_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ended_job("digits")
    (folder / "history-1.json").write_text(json.dumps(part(4)))
    monkeypatch.setattr(Local, "every", 1e6)  # there is no second reading
    monkeypatch.setattr(Local, "events", lambda _source, _job: [{"kind": "JobFailed"}])

    async def story() -> None:
        feed = JobFeed(Local(), "digits")
        slow, quick = feed.messages(), feed.messages()
        async with asyncio.timeout(DEADLINE):
            names = [(await anext(slow))[0]]
            async for _name, text in quick:
                if "JobFailed" in text:
                    break
            names += [(await anext(slow))[0] for _ in range(4)]
        assert names == ["trouble", "events", "job", "timeline", "events"]
        await feed.close()

    asyncio.run(story())


def test_a_job_that_is_not_there_is_a_sentence_until_it_is(visiting: Visiting, ended_job: Any) -> None:
    ended_job("old")

    async def story(visit: Visit) -> None:
        await visit.opened()
        async with visit.stream("/api/jobs/digits") as messages:
            trouble = await until(messages, "trouble", lambda found: bool(found["sentence"]))
            assert "job 'digits' not found" in trouble["sentence"]
            ended_job("digits")
            assert (await until(messages, "job"))["job"] == "digits"
            await until(messages, "trouble", lambda found: not found["sentence"])

    visiting(story)


def test_documents_that_break_the_page_are_a_sentence(
    visiting: Visiting, ended_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_job("digits")

    def broken(*_arguments: object) -> Any:
        raise KeyError("faults")

    monkeypatch.setattr(page, "document", broken)

    async def story(visit: Visit) -> None:
        await visit.opened()
        async with visit.stream("/api/jobs/digits") as messages:
            trouble = await until(messages, "trouble", lambda found: bool(found["sentence"]))
            assert trouble["sentence"] == "reading digits failed: KeyError: 'faults'."

    visiting(story)


def test_a_master_that_goes_away_makes_the_data_old_and_the_page_is_told(visiting: Visiting, running_job: Any) -> None:
    job = running_job("digits")
    (job.folder / "status.json").write_text(json.dumps(document(step=1200)))

    async def story(visit: Visit) -> None:
        await visit.opened()
        async with visit.stream("/api/jobs/digits") as messages:
            await until(messages, "job", lambda found: found["step"] == 1240)
            (job.folder / "master.sock").unlink()
            trouble = await until(messages, "trouble", lambda found: bool(found["sentence"]))
            assert "the master of digits does not answer" in trouble["sentence"]
            assert (await until(messages, "job", lambda found: found["step"] == 1200))["phase"] == "running"

    visiting(story)


def test_stacks_and_the_last_collective_of_a_member(visiting: Visiting, running_job: Any) -> None:
    job = running_job("digits")
    call = {"op": "all_reduce", "seq": 14, "group": "", "state": "started", "frame": "train.py:33 main", "age": 2.0}
    rank = {"rank": 0, "pid": 13, "step": 7, "phase": "step"}
    both = rank | {"stack": "main (train.py:33)\n<b>x</b>", "collective": call}
    job.answers = {"worker-0": {"ranks": [both]}}

    async def story(visit: Visit) -> None:
        await visit.opened()
        status, found = await visit.get("/api/jobs/digits/members/worker-0/stack")
        assert status == 200
        (shown,) = found["ranks"]
        assert shown["stack"] == ["main (train.py:33)", "<b>x</b>"]
        assert shown["collective"] == "all_reduce number 14 of group default: started at train.py:33 main"
        status, found = await visit.get("/api/jobs/digits/members/worker-9/stack")
        assert (status, found["ranks"], found["problem"]) == (200, [], "worker-9 did not answer.")
        assert "job 'old' not found" in (await visit.get("/api/jobs/old/members/worker-0/stack"))[1]["problem"]

    visiting(story)


def test_the_last_200_lines_of_a_member(visiting: Visiting, ended_job: Any) -> None:
    folder = ended_job("digits", world=2, members=[
        {"id": f"worker-{n}", "rank_index": n, "state": "gone", "role": "worker"} for n in range(2)
    ])  # fmt: skip
    for rank in (0, 1):
        log = folder / "logs" / "1" / str(rank) / "stdout.log"
        log.parent.mkdir(parents=True)
        log.write_text("".join(f"rank {rank} line {number} {MARKUP}\n" for number in range(300)))

    async def story(visit: Visit) -> None:
        await visit.opened()
        _status, found = await visit.get("/api/jobs/digits/members/worker-1/lines")
        assert len(found["lines"]) == 200
        assert {each["rank"] for each in found["lines"]} == {1}
        assert found["lines"][-1]["text"].startswith("rank 1 line 299 <img")
        assert "\x1b" not in found["lines"][-1]["text"]
        _status, found = await visit.get("/api/jobs/digits/members/worker-7/lines")
        assert found["problem"] == "worker-7 has written nothing that is kept."

    visiting(story)


def test_orders_reach_the_master_and_refusals_the_page(visiting: Visiting, running_job: Any) -> None:
    job = running_job("digits")

    async def story(visit: Visit) -> None:
        await visit.opened()
        assert await visit.post("/api/jobs/digits/scale", {"members": 3}) == (
            200, {"sentence": "3 members are requested."},
        )  # fmt: skip
        assert (await visit.post("/api/jobs/digits/stop"))[0] == 200
        assert [what for what, _body in job.posted] == ["scale", "stop"]
        for body in ({}, {"members": "3"}, [], b"nonsense"):
            assert (await visit.post("/api/jobs/digits/scale", body))[0] == 422
        assert (await visit.post("/api/jobs/digits/delete"))[0] == 404
        job.refusal = "replicas: Invalid value: 3"
        status, answer = await visit.post("/api/jobs/digits/scale", {"members": 3})
        assert (status, "Invalid value: 3" in answer["problem"]) == (409, True)

    visiting(story)


def test_a_job_that_has_just_ended_is_not_old(visiting: Visiting, running_job: Any) -> None:
    """Its master is gone, and its command holds the lock for some moments more."""
    job = running_job("digits")

    async def story(visit: Visit) -> None:
        await visit.opened()
        async with visit.stream("/api/jobs/digits") as messages:
            await until(messages, "job")
            (job.folder / "status.json").write_text(json.dumps(document(phase="succeeded", exit_code=0)))
            (job.folder / "master.sock").unlink()
            async for name, found in messages:
                assert name != "trouble" or not found["sentence"]
                if name == "job" and found["phase"] == "succeeded":
                    return

    visiting(story)


@pytest.mark.parametrize("path", ["/assets/" + "a" * 5000 + ".js", "/assets/..%2fserver.py", "/assets/x%00.js"])
def test_any_name_of_a_file_is_answered(visiting: Visiting, ended_job: Any, path: str) -> None:
    async def story(visit: Visit) -> None:
        await visit.opened()
        assert (await visit.get(path))[0] == 404

    visiting(story)


def test_requests_that_cannot_be_read_make_no_lines_in_the_terminal(
    visiting: Visiting, ended_job: Any, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(visit: Visit) -> None:
        await visit.opened()
        assert (await visit.post("/api/jobs/digits/stop", b"[" * 3000))[0] == 422
        assert (await visit.post("/api/jobs/digits/stop", b"no gzip", **{"Content-Encoding": "gzip"}))[0] == 400
        for raw in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", visit.address.port)
            writer.write(raw)
            assert await reader.read()
            writer.close()

    visiting(story)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_a_fault_of_our_own_is_a_sentence_on_the_page_and_a_line_in_the_terminal(
    visiting: Visiting, running_job: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running_job("digits")
    monkeypatch.setattr(Local, "stack", lambda *_: 1 // 0)

    async def story(visit: Visit) -> None:
        await visit.opened()
        status, answer = await visit.get("/api/jobs/digits/members/worker-0/stack")
        assert (status, answer) == (500, {"problem": "The dashboard failed: ZeroDivisionError."})

    visiting(story)
    assert "a bug in Outrider" in caplog.text
