"""The network, as ZeroMQ shows it: a link is in order and lossless while it is connected; what is on its way when it
breaks is lost; a cut or a stall first only holds things up. A forgotten session is silent to the sidecar.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from outrider.wire.messages.membership import Hello

if TYPE_CHECKING:
    from tests.simulation.masters import Master
    from tests.simulation.pods import Sidecar
    from tests.simulation.world import World

KEEPALIVE = (8.0, 25.0)
"""Seconds of a cut after which a connection breaks (TCP_KEEPALIVE, TCP_MAXRT)."""


class Link:
    """One connection of a sidecar to a master; `session` is its name at the master's end."""

    def __init__(self, network: Network, session: str, sidecar: Sidecar, master: Master) -> None:
        self.session, self.sidecar, self.master, self._network = session, sidecar, master, network
        self.up = True
        self.since = network.world.time.now
        self.forgotten = False
        self.stalled_until = 0.0
        self._held: deque[tuple[bool, Any]] = deque()
        self._last = [0.0, 0.0]

    @property
    def is_held(self) -> bool:
        network = self._network
        return self.stalled_until > network.world.time.now or network.is_cut(self.sidecar.pod.member, self.master.host)

    def send(self, to_master: bool, message: Any) -> None:
        if not self.up:
            return
        if self._held or self.is_held:
            self._held.append((to_master, message))
            return
        time, rng = self._network.world.time, self._network.world.rng
        when = max(self._last[to_master], time.now + 0.0003 + 0.002 * rng.random())
        self._last[to_master] = when
        time.at(when, self._deliver, to_master, message)

    def _deliver(self, to_master: bool, message: Any) -> None:
        if not self.up:
            return
        if to_master:
            if self.forgotten and isinstance(message, Hello):  # the shell takes it for a new session
                self.session, self.forgotten = self._network.new_session(), False
            if not self.forgotten:
                self.master.hear(self, message)
        else:
            self.sidecar.hear(self, message)

    def release(self) -> None:
        if self.up and self._held and not self.is_held:
            held, self._held = self._held, deque()
            for to_master, message in held:
                self.send(to_master, message)

    def break_(self) -> None:
        """Both ends learn of it; what was on its way is lost."""
        if self.up:
            self.up = False
            self._held.clear()
            self._network.world.time.after(0.005, self.master.lost, self)
            self._network.world.time.after(0.005, self.sidecar.lost_link, self)


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self._cut: dict[frozenset[str], float] = {}
        self.links: list[Link] = []
        self._sessions = 0

    def new_session(self) -> str:
        self._sessions += 1
        return f"s{self._sessions}"

    def is_cut(self, a: str, b: str) -> bool:
        return bool(self._cut) and self._cut.get(frozenset((a, b)), 0.0) > self.world.time.now

    def cut_until(self, a: str, b: str) -> float:
        """When they see each other again, or did."""
        return self._cut.get(frozenset((a, b)), float("-inf"))

    def reaches_master(self, member: str) -> bool:
        master = self.world.masters.current
        return not self.is_cut(member, master.host) if master is not None else True

    def connect(self, sidecar: Sidecar, master: Master) -> Link:
        self.links = [link for link in self.links if link.up]
        link = Link(self, self.new_session(), sidecar, master)
        self.links.append(link)
        return link

    def cut(self, a: str, b: str, seconds: float) -> None:
        now = self.world.time.now
        key = frozenset((a, b))
        self._cut[key] = max(self._cut.get(key, 0.0), now + seconds)
        patience = self.world.rng.uniform(*KEEPALIVE)
        for link in self.links:
            if {link.sidecar.pod.member, link.master.host} == {a, b}:
                self.world.time.after(patience, self._give_up, link)
        self.world.trouble(a, seconds, b)
        self.world.trouble(b, seconds, a)
        self.world.time.after(seconds + 1e-3, self._healed)

    def _give_up(self, link: Link) -> None:
        if link.is_held:
            link.break_()

    def stall(self, link: Link, seconds: float) -> None:
        link.stalled_until = max(link.stalled_until, self.world.time.now + seconds)
        self.world.trouble(link.sidecar.pod.member, seconds, link.master.host)
        self.world.time.after(seconds + 1e-3, link.release)

    def _healed(self) -> None:
        for link in self.links:
            link.release()
        for run in self.world.runs.values():
            run.settle()
