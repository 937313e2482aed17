"""A sidecar's side of the connection: its Hello, its Ready, and all its other messages."""

from __future__ import annotations

from itertools import count

from outrider.master.core.actions import Action
from outrider.master.core.events import SidecarSaid
from outrider.master.core.spec import JobSpec
from outrider.wire.ids import NO_GENERATION, Generation
from outrider.wire.messages.directions import FromSidecar
from outrider.wire.messages.generation import Ready
from outrider.wire.messages.membership import Hello
from tests.unit.master.core.stage.actor import Actor
from tests.unit.master.core.stage.queries import Queries


class Speaking(Queries):
    def __init__(self, spec: JobSpec, now: float, actors: dict[str, Actor], master: str) -> None:
        super().__init__(spec, now)
        self.actors, self.master = actors, master
        self.machines: dict[str, str] = {}
        """The machine of each member."""
        self._sessions = count()

    def __getitem__(self, member: str) -> Actor:
        return self.actors[member]

    def connect(self, actor: Actor, highest: Generation | None = None) -> None:
        if actor.gone or actor.frozen or actor.unheard or actor.stranger:
            return
        actor.session = f"{self.master}-{next(self._sessions)}"
        hello = Hello(self.spec.name, actor.id, actor.uid, actor.role, actor.rank_index, "token", probe_port=9000,
                      version=actor.version, running=actor.running,
                      highest=actor.highest if highest is None else highest, finished=actor.finished,
                      isolated=actor.isolated,
                      machine=self.machines.get(actor.id, ""), offers=actor.offers,
                      unsupervised=actor.unsupervised)  # fmt: skip
        self.tell(SidecarSaid(actor.session, hello))
        if actor.unsupervised:
            return
        if actor.running == NO_GENERATION and not actor.finished:
            self.say_ready(actor)

    def say(self, actor: Actor, message: FromSidecar) -> list[Action]:
        if actor.gone or actor.frozen or actor.unheard or not actor.session:
            return []
        return self.tell(SidecarSaid(actor.session, message))

    def say_ready(self, actor: Actor, *, again: bool = False) -> None:
        if not actor.has_trainer:
            return
        actor.port += 0 if again else 1
        self.say(actor, Ready(actor.port, actor.nproc, "T0", "the template is parked", 77, actor.stopped,
                              copies=actor.copies))  # fmt: skip
