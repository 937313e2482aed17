"""Master processes over one saved status: crash and restart, a paused one that is superseded, one that the API server
does not hear while it has its members on their links, fencing by term."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from outrider.master.core import actions as do
from outrider.master.core import events as told
from outrider.master.core import job_kinds
from outrider.master.core.k8s.values.leases import DURATION, HELD
from outrider.master.core.membership import past_lease
from outrider.master.core.ps.state import PsState
from outrider.master.core.state.job import State
from outrider.master.core.status import invariants
from outrider.wire.messages.membership import Hello, Refused
from tests.simulation.inside import MasterInside
from tests.simulation.network import Link
from tests.simulation.pods import UNIX
from tests.simulation.processes import Process
from tests.unit.master.core.ps.tally import assert_tallied
from tests.unit.master.core.stage.driving import check_waits

if TYPE_CHECKING:
    from tests.simulation.world import World


WRONG = (0.0, 0.0, -3600.0, 3600.0)
"""Seconds by which the wall clock of a master's machine is ahead. Its other clock is its own anyway."""


def _check(state: State | PsState, actions: list[do.Action]) -> None:
    if isinstance(state, PsState):
        job_kinds.check(state)
        assert_tallied(state)
        return
    invariants.check(state)
    check_waits(state)
    if actions:
        invariants.check_actions(state, actions)


CORE = SimpleNamespace(
    step=lambda *a: job_kinds.step(*a), next_deadline=lambda s: job_kinds.next_deadline(s), check=_check
)


class Master(MasterInside, Process):
    stalled = told.Stalled
    woke = told.Woke

    def __init__(self, world: World, term: int) -> None:
        super().__init__(world, f"master-{term}", *world.master_core(term))
        self.host, self.term = f"master-{term}", term
        self.watching = False
        self.request_at = 0.0
        self.links: dict[str, Link] = {}
        self.saved_generation: Any = None
        self.saved_version = 0
        self.is_lapsed = self.has_read_lapsed = False
        """It holds its Lease no more; and its core has been told so, which lags behind where it was frozen."""
        self.unread_losses: dict[str, Link] = {}
        """By session, the broken links of which its core has not been told."""
        self.record: Any = None
        """What it has saved last."""
        saved = world.masters.store
        wall_clock = UNIX + world.time.now + random.Random(f"wall clock {world.seed} {term}").choice(WRONG)
        self.post(told.Began(term, world.scenario.spec, json.loads(saved) if saved else None, wall_clock))
        world.time.after(0.05, world.platform.list_for, self)
        self._look_at_watch()

    def _look_at_watch(self) -> None:
        if self.alive:
            if not self.watching and self.paused_at is None:
                self.world.platform.list_for(self)
            self.world.time.after(5.0, self._look_at_watch)

    def hear(self, link: Link, message: Any) -> None:
        if self.alive and self.is_ended and isinstance(message, Hello):  # as `Fleet.inbox`
            link.send(False, Refused(f"job {self.world.scenario.spec.name!r} is over", -1.0))
        elif self.alive:
            self.links[link.session] = link
            self.post(told.SidecarSaid(link.session, message))

    def lost(self, link: Link) -> None:
        if self.alive and self.links.pop(link.session, None) is not None and not link.forgotten:
            self.unread_losses[link.session] = link
            self.post(told.SidecarDisconnected(link.session))

    def thawed(self) -> None:
        """One that was superseded finds that out when it looks at its lease again."""
        if self.world.masters.term > self.term:
            self.world.time.after(self.world.rng.uniform(0.0, 10.0), self.die)
            for link in self.world.network.links:  # a Service's endpoints flap: some come back to this one
                if link.master is not self and self.world.rng.random() < 0.3:
                    link.break_()

    def die(self) -> None:
        self.end()
        for link in self.world.network.links:
            if link.master is self:
                link.break_()

    def reads(self, event: Any) -> None:
        if isinstance(event, told.PodSeen):
            self.world.platform.shown.add(event.member)
        elif isinstance(event, told.PodsListed):
            self.world.platform.shown.update(pod.member for pod in event.pods)
        elif isinstance(event, told.SidecarDisconnected):
            self.unread_losses.pop(event.session, None)
        elif isinstance(event, told.LeaseLost | told.LeaseRegained):
            self.has_read_lapsed = isinstance(event, told.LeaseLost)

    def perform(self, action: do.Action) -> None:
        if self.is_lapsed and not past_lease.may_be_done(action):
            self.post(told.ActionFailed(action, "the Lease has run out"))
            return
        match action:
            case do.Send(session, member, message):
                link = self.links.get(session)
                self.world.laws.sent(self, member, message)
                if link is not None and not link.forgotten:
                    link.send(False, message)
            case do.CloseSession(session):
                link = self.links.pop(session, None)
                if link is not None:
                    link.forgotten = True
            case do.DeletePod() | do.CreatePod():
                if isinstance(action, do.DeletePod):
                    self.world.laws.deleted(self, action)
                else:
                    self.world.laws.creation_asked(self, action)
                self.world.platform.request(self, action)
            case do.ProbeMember(member, address):
                reached = self.world.platform.answers(address, self.host)
                self.world.time.after(0.4, self.post, told.MemberProbed(member, reached))
            case do.Announce(kind, member=member):
                self.world.hangs.announced(self, action)
                self.world.links.announced(self, action)
                self.world.lines.announced(self, action)
                self.world.memories.announced(action)
                self.world.checking.announced(kind, member)
                if kind == "Straggler":
                    self.world.laws.named(action)
            case do.SaveStatus():
                self.world.laws.saved(self)
                text = json.dumps(action.status)
                self.world.time.after(self.world.rng.choice((0.001, 0.01, 0.3)), self._save, action, text)
            case do.EndJob(exit_code, _, reason):
                if self.world.masters.term == self.term:
                    self.world.laws.ended(self)
                    self.world.ended(exit_code, reason)
                else:  # the job is no longer its own: it only ends itself
                    self.world.time.after(0.0, self.die)
            case _:
                pass

    def _save(self, action: do.SaveStatus, text: str) -> None:
        if not self.alive or (self.paused_at is not None):
            return
        if self.is_lapsed or self.world.network.is_cut(self.world.platform.host, self.host):
            self.post(told.ActionFailed(action, "the API server was not reached"))
            return
        if self.world.masters.store_term > self.term:
            self.post(told.ActionFailed(action, "a newer term holds the status"))
            return
        if action.version > self.saved_version:  # one write is on its way at a time: an older one never comes later
            self.world.masters.store, self.world.masters.store_term = text, self.term
            self.saved_version, self.record = action.version, action.status["saved"]
        self.saved_generation = max(action.generation, self.saved_generation or action.generation)
        self.post(told.StatusSaved(action.version))


class Masters:
    def __init__(self, world: World) -> None:
        self.world = world
        self.all: list[Master] = []
        self.store = ""
        self.store_term = 0
        self.term = 0

    @property
    def current(self) -> Master | None:
        return self.all[-1] if self.all and self.all[-1].alive else None

    def begin(self) -> None:
        if not self.world.over:
            self.term += 1
            self.store_term = self.term  # who takes the lease claims the status before it reads it
            self.all = [m for m in self.all if m.alive]
            self.all.append(Master(self.world, self.term))

    def to_connect(self) -> Master | None:
        """The newest that runs; sometimes an older one, because a Service's endpoints are late."""
        running = [m for m in self.all if m.alive and m.paused_at is None]
        if len(running) > 1 and self.world.rng.random() < 0.3:
            return running[0]
        return running[-1] if running else None

    def crash(self) -> None:
        if self.current is not None:
            self.world.trouble("master", 12.0)
            self.current.die()
            self.world.time.after(self.world.rng.uniform(0.2, 4.0), self.begin)

    def supersede(self, seconds: float) -> None:
        """The lease of a paused master goes to another one; its connections break as keep-alives run out."""
        old = self.current
        if old is None or old.paused_at is not None:
            return
        self.world.trouble("master", 30.0)
        old.pause(seconds)
        self.world.time.after(self.world.rng.uniform(1.0, 10.0), self._replace, old)

    # -- past the Lease ---------------------------------------------------------------------------------------------
    def cut_off(self, master: Master, seconds: float) -> None:
        """From the API server alone. Another one may take the Lease meanwhile, and tells the older if it finds it."""
        rng, time = random.Random(f"lease {self.world.seed} {self.world.time.now}"), self.world.time
        self.world.network.cut(self.world.platform.host, master.host, seconds)
        time.after(HELD, self._lapse, master)
        if rng.random() < 0.5:
            finds_it_after = rng.uniform(0.2, 3.0) if rng.random() < 0.8 else float("inf")
            time.after(DURATION + rng.uniform(0.0, 2.0), self._take_lease, master, finds_it_after)
        time.after(seconds + rng.uniform(0.01, 2.0), self._reached_again, master)

    def _is_cut_off(self, master: Master) -> bool:
        return self.world.network.is_cut(self.world.platform.host, master.host)

    def _lapse(self, master: Master) -> None:
        if master.alive and not master.is_lapsed and self._is_cut_off(master):
            master.is_lapsed = True
            master.post(told.LeaseLost("The API server is not reached."))

    def _take_lease(self, old: Master, finds_it_after: float) -> None:
        if old is self.current and old.is_lapsed and self._is_cut_off(old):
            self.begin()
            if finds_it_after < float("inf"):
                self.world.time.after(finds_it_after, self._end, old)

    def _reached_again(self, master: Master) -> None:
        if not master.is_lapsed or self._is_cut_off(master):
            return
        if self.term > master.term:
            self._end(master)
        else:
            master.is_lapsed = False
            master.post(told.LeaseRegained())

    def _end(self, master: Master) -> None:
        if master.alive:
            master.die()

    def _replace(self, old: Master) -> None:
        if old is self.current:
            self.begin()
            for link in self.world.network.links:
                if link.master is old:
                    self.world.time.after(self.world.rng.uniform(1.0, 15.0), link.break_)
