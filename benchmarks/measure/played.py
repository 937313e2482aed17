"""Simulated sidecars over real ZeroMQ with CURVE: they carry out orders, and report each second."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace

import zmq

from outrider.runtime.dealer import Dealer
from outrider.runtime.sockets import Unreachable
from outrider.wire.codec import decode_from_master, encode
from outrider.wire.ids import NO_GENERATION, Generation
from outrider.wire.messages.directions import FromSidecar
from outrider.wire.messages.generation import Acknowledged, Ready, Start, Started, Stepped, Stop, Stopped
from outrider.wire.messages.links import Probe, Probed
from outrider.wire.messages.membership import Finish, Hello, Welcome
from outrider.wire.messages.report import RankProgress, Report, Spent

STEP_SECONDS = 0.1


@dataclass
class Member:
    """One simulated sidecar, on a socket of its own."""

    hello: Hello
    dealer: Dealer | None = None
    running: Generation = NO_GENERATION
    since: float = 0.0
    base: int = 0
    port: int = 20000
    reports: int = 0

    def say(self, message: FromSidecar) -> None:
        assert self.dealer is not None
        with contextlib.suppress(Unreachable):  # what still counts is said again
            self.dealer.send(encode(message))

    def greet(self) -> None:
        self.say(replace(self.hello, running=self.running))

    def step(self) -> int:
        return self.base + int((time.monotonic() - self.since) / STEP_SECONDS) if self.running != NO_GENERATION else 0

    def heard(self, payload: bytes) -> None:
        message = decode_from_master(payload)
        match message:
            case Welcome():
                self.say(Ready(self.port, 1, "T0", "simulated", 1))
            case Start():
                self.running, self.since, self.base = message.generation, time.monotonic(), message.high_step
                self.say(Started(message.order, message.generation, (2,)))
                self.say(Stepped(message.generation, message.high_step + 1, 0.0))
            case Stop():
                step, self.running = self.step(), NO_GENERATION
                self.say(Stopped(message.order, message.generation, step, 0.1))
                self.port += 1
                self.say(Ready(self.port, 1, "T0", "simulated", 1, message.generation))
            case Probe():
                self.say(Probed(message.order, message.member, True))
            case Finish():
                self.say(Acknowledged(message.order))
            case _:
                pass

    def spent(self) -> Spent | None:
        """As a sidecar of a large job says it: with every tenth report."""
        self.reports += 1
        age = time.monotonic() - self.since
        if self.running == NO_GENERATION or age < 2 * STEP_SECONDS or self.reports % 10:
            return None
        return Spent(age, age - STEP_SECONDS, 0.01, 0.02, 0.03, 0.0, age / 20, age / 10)

    def report(self) -> None:
        state = "running" if self.running != NO_GENERATION else "ready"
        step = self.step()
        ranks = (RankProgress(0, step, 0.01, "step", STEP_SECONDS, base=self.base),) if step > self.base else ()
        self.say(Report(self.running, state, step, STEP_SECONDS, 1.0, 500.0, 0, (2,), ranks, 3, spent=self.spent()))


async def play(members: list[Member], endpoint: str, key: str, until: asyncio.Event) -> None:
    """Connect the sidecars, carry out orders, and report once a second, evenly spread."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    for member in members:
        member.dealer = Dealer(context, key, member.heard, member.greet, lambda: None)
        member.dealer.connect(endpoint)
    try:
        while not until.is_set():
            for member in members:
                member.report()
                await asyncio.sleep(1.0 / len(members))
    finally:
        for member in members:
            if member.dealer is not None:
                member.dealer.close()
        context.term()
