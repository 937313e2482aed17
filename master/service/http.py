"""The user's HTTP API of a job: status, events, recording, scale, restart, stop, stacks (docs/contracts.md §7).

Requests are validated here and become events of the core. An order is answered with 202 at once; the job's events
report what then happens.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import Any

from aiohttp import web

from outrider.master.core import job_kinds
from outrider.master.core.events import (
    Asked,
    Event,
    RestartRejected,
    RestartRequested,
    ScaleRequested,
    ScalingAsked,
    StopAsked,
)
from outrider.master.core.job_kinds import Job
from outrider.master.core.scaling import rehearsal
from outrider.master.core.state.job import ENDED
from outrider.master.recording import recorder, vocabulary
from outrider.master.service.effects import Answers
from outrider.master.service.status_files import Records
from outrider.runtime.http import failure
from outrider.runtime.journal import Journal, Taken
from outrider.wire.messages.diagnostics import REHEARSAL

COLLECT_SECONDS = 9.0
REHEARSAL_SECONDS = 150.0
"""Time-out of a rehearsal in seconds; the core answers within 140 s (`outrider.master.core.hangs.diagnostics`)."""
BODY_BYTES = 64 * 1024


class WrongRequest(Exception):
    """The request is invalid; the message names the field and its allowed values."""


class Api:
    """The handlers of the API; `state` is only read."""

    def __init__(
        self,
        state: Job,
        now: Callable[[], float],
        put: Callable[[Event], None],
        records: Records,
        askers: dict[str, Callable[[Answers], None]],
        journal: Journal,
    ) -> None:
        self._state = state
        self._now = now
        self._put = put
        self._records = records
        self._askers = askers
        self._journal = journal

    def application(self) -> web.Application:
        application = web.Application(client_max_size=BODY_BYTES, middlewares=[_refusals])
        application.add_routes(
            [
                web.get("/v1/status", self._status),
                web.get("/v1/events", self._events),
                web.get("/v1/history", self._history),
                web.get("/v1/recording", self._recording),
                web.post("/v1/scale", self._scale),
                web.post("/v1/restart", self._restart),
                web.post("/v1/stop", self._stop),
                web.get("/v1/stacks", self._collect),
                web.get("/v1/collectives", self._collect),
                web.get("/healthz", self._healthy),
                web.get("/readyz", self._ready),
                web.get("/metrics", self._metrics),
            ]
        )
        return application

    # -- reading ----------------------------------------------------------------------------------------------------
    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(job_kinds.document(self._state, self._now()))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        after = _whole_number(request.query.get("after", "0"), "after")
        follow = request.query.get("follow", "0")
        response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
        await response.prepare(request)
        if follow == "1":
            async for line in self._records.follow(after):
                await response.write(json.dumps(line).encode() + b"\n")
        else:
            for line in self._records.after(after):
                await response.write(json.dumps(line).encode() + b"\n")
        await response.write_eof()
        return response

    async def _history(self, request: web.Request) -> web.Response:
        return web.json_response(job_kinds.history(self._state, self._now()))

    async def _recording(self, request: web.Request) -> web.StreamResponse:
        return await recording_response(request, self._journal.taken())

    async def _healthy(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, request: web.Request) -> web.Response:
        if self._state.listed:
            return web.Response(text="ok\n")
        return failure(503, "not ready: the platform has not listed the members yet")

    async def _metrics(self, request: web.Request) -> web.Response:
        # imported only if scraped: it takes 3 MB and 30 ms
        from outrider.master.service import metrics

        text = metrics.Scrape([self._state], self._now()).text()
        return web.Response(body=text, headers={"Content-Type": metrics.CONTENT_TYPE})

    # -- requests ---------------------------------------------------------------------------------------------------
    async def _scale(self, request: web.Request) -> web.Response:
        body = await _body(request, {"replicas"})
        replicas, spec = body.get("replicas"), self._state.spec
        if replicas == "auto":
            if not spec.scaling:
                return failure(409, "replicas: Forbidden: auto: the job was started without a scaling policy")
            return self._accept(ScalingAsked())
        if type(replicas) is not int or not spec.min_members <= replicas <= spec.max_members:
            what = f"must be from {spec.min_members} to {spec.max_members}"
            return failure(422, f"replicas: Invalid value: {replicas!r}: {what}")
        return self._accept(ScaleRequested(replicas))

    async def _restart(self, request: web.Request) -> web.Response:
        body = await _body(request, {"at_checkpoint", "check"})
        at_checkpoint = _flag(body, "at_checkpoint")
        if _flag(body, "check") and not self._is_over():
            answers = list((await self._ask(REHEARSAL, REHEARSAL_SECONDS))["members"].values())
            if why := rehearsal.refusal(answers):
                self._put(RestartRejected(why))
                return failure(409, f"the restart is refused, and no rank was stopped: {why}")
            return self._accept(RestartRequested(at_checkpoint), unchecked=rehearsal.unchecked(answers))
        return self._accept(RestartRequested(at_checkpoint))

    async def _stop(self, request: web.Request) -> web.Response:
        body = await _body(request, {"hard", "reason"})
        reason = body.get("reason", "The user requested it.")
        if not isinstance(reason, str) or len(reason) > 1000:
            return failure(422, "reason: Invalid value: must be a text of at most 1000 characters")
        return self._accept(StopAsked(reason, _flag(body, "hard")))

    async def _collect(self, request: web.Request) -> web.Response:
        if self._is_over():
            return failure(409, "the job is over")
        try:
            return web.json_response(await self._ask(request.path.rpartition("/")[2], COLLECT_SECONDS))
        except TimeoutError:
            return failure(504, f"the members did not answer within {COLLECT_SECONDS:g} s")

    async def _ask(self, what: str, seconds: float) -> Answers:
        request = secrets.token_hex(8)
        answers: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self._askers[request] = lambda found: None if answers.done() else answers.set_result(found)
        self._put(Asked(request, what))
        try:
            async with asyncio.timeout(seconds):
                return await answers
        finally:
            self._askers.pop(request, None)

    def _accept(self, event: Event, **more: str) -> web.Response:
        if self._is_over():
            return failure(409, "the job is over")
        self._put(event)
        return web.json_response({"accepted": True, **{key: value for key, value in more.items() if value}}, status=202)

    def _is_over(self) -> bool:
        return self._state.stage == ENDED


async def recording_response(request: web.Request, taken: Taken | None) -> web.StreamResponse:
    """The recording of what was taken of a journal, in pieces between which other tasks run."""
    await asyncio.to_thread(vocabulary.words)
    response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
    await response.prepare(request)
    for line in recorder.lines(taken):
        if line:
            await response.write(line)
        else:
            await asyncio.sleep(0)
    await response.write_eof()
    return response


@web.middleware
async def _refusals(request: web.Request, handler: Any) -> web.StreamResponse:
    """Answers every error, also those of aiohttp, with `{"error": sentence}`."""
    try:
        answer: web.StreamResponse = await handler(request)
        return answer
    except WrongRequest as error:
        return failure(422, str(error))
    except web.HTTPException as error:
        return failure(error.status, f"{request.method} {request.path}: {error.reason}")


async def _body(request: web.Request, known: set[str]) -> dict[str, Any]:
    raw = await request.read()
    try:
        body = json.loads(raw or b"{}")
    except (ValueError, RecursionError) as error:
        raise WrongRequest(f"the body must be a JSON object: {error}") from error
    if not isinstance(body, dict):
        raise WrongRequest("the body must be a JSON object")
    unknown = sorted(set(body) - known)
    if unknown:
        supported = ", ".join(f'"{each}"' for each in sorted(known))
        raise WrongRequest(f"unknown field {', '.join(unknown)[:100]}: supported fields: {supported}")
    return body


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise WrongRequest(f"{name}: Invalid value: {value!r}: must be true or false")
    return value


def _whole_number(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise WrongRequest(f"{name}: Invalid value: {text[:40]!r}: must be a whole number, 0 or greater")
    return int(text)
