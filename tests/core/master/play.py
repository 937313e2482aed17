"""A stage for the master's core: well-behaved members, a platform and a disk that answer its actions, on a clock of
their own.

Nothing here is a mock: the core is driven through `step` alone, with events in the order in which a real shell would
bring them, and every step is checked against the invariants. A test tells members to crash, freeze or be cut off and
looks at the actions.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from master.core import invariants
from master.core.actions import (
    Action,
    Announce,
    CreatePod,
    DeletePod,
    EndJob,
    ProbeMember,
    SaveStatus,
    Send,
)
from master.core.events import (
    Began,
    Event,
    MemberProbed,
    PodGone,
    PodSeen,
    PodsListed,
    SidecarDisconnected,
    SidecarSaid,
    StatusSaved,
    Woke,
)
from master.core.reducer import check, next_deadline, step
from master.core.spec import WORKER, JobSpec
from master.core.state import State
from runtime.journal import line
from tests.core.master.ranks import Answers, body, waits
from wire.ids import NO_GENERATION, Generation, JobName, MemberId, PodUid, RankIndex, Role
from wire.messages import (
    PROTOCOL_VERSION,
    Acknowledged,
    Answer,
    Ask,
    Check,
    Checked,
    Copy,
    Exited,
    Fetch,
    Fetched,
    Finish,
    FromMaster,
    FromSidecar,
    Hello,
    Kept,
    LinkSeen,
    PeerCheck,
    Probe,
    Probed,
    RankProgress,
    Ready,
    Remembered,
    Report,
    Saved,
    SaveState,
    Start,
    Started,
    StateOffered,
    StateSaved,
    Stepped,
    Stop,
    Stopped,
    TrainerLost,
    WorkerExit,
)

LATENCY = 0.01
STEP_SECONDS = 0.1
CHECK_SECONDS, COMPUTE_SECONDS, NETWORK_SECONDS, SLOW = 1.0, 0.05, 0.01, 5
ROUND_TRIP = 0.0004
START_SECONDS = 3.0
"""From CreatePod to Ready."""


@dataclasses.dataclass
class Actor:
    """One member as its sidecar would play it."""

    id: MemberId
    uid: PodUid
    rank_index: RankIndex | None
    role: Role = WORKER
    session: str = ""
    port: int = 30000
    nproc: int = 1
    running: Generation = NO_GENERATION
    highest: Generation = NO_GENERATION
    stopped: Generation = NO_GENERATION
    start: Start | None = None
    started_at: float = 0.0
    base: int = 0
    frozen: bool = False
    unheard: bool = False
    """The master does not hear it, and it does not hear the master; its peers reach it."""
    stranger: bool = False
    alone_after: float = 0.0
    unsupervised: bool = False
    """Its sidecar holds the key of another installation's master: the two never speak."""
    gone: bool = False
    finished: bool = False
    isolated: str = ""
    """Why it stopped by itself, or is about to."""
    has_trainer: bool = True
    stubborn: bool = False
    """It never says Stopped."""
    node: str = ""
    memory_limit: int = 0
    resources: str = ""
    bad: str = ""
    """What is wrong with its machine: `dies` and `slow` (the matmul), `crowded` (its clock alone), `loaded` (that by
    its own container), `mute` (the all-gather), `absurd` times."""
    checks: list[Check] = dataclasses.field(default_factory=list)
    failed: int | None = None
    """Its pod has ended with this code, and is still there."""
    inbox: list[FromMaster] = dataclasses.field(default_factory=list)
    hung_at: float | None = None
    """Its rank makes no step from then on, until it begins again."""
    phase: str = ""
    is_stuck: bool = False
    """What its page says, where that is not what its steps say."""
    answers: Answers | None = None
    """What its rank says when it is asked where it is."""
    has_pages: bool = True
    version: int = PROTOCOL_VERSION
    saves_in: float | None = None
    """Seconds in which its script saves its state when it is asked to, as rank 0; None: it never offered that."""
    offers: bool = False
    save_error: str = ""
    copies: tuple[Copy, ...] = ()
    """Of checkpoints, that are whole in its memory."""
    kept: int = -1
    fetches_in: float | None = 0.5
    """Seconds in which it takes copies over; None: it never answers."""
    fetch_error: str = ""
    handles_signal: bool = True
    waits: bool = False
    """Its pod finds no room."""
    step_seconds: float = STEP_SECONDS

    def step_at(self, now: float) -> int:
        now = now if self.hung_at is None else min(now, self.hung_at)
        made = int((now - self.started_at) / self.step_seconds + 1e-6)
        return self.base + made if self.running != NO_GENERATION else 0


class Play:
    """A job on its stage. `now` grows only in `run` and `until`."""

    def __init__(self, spec: JobSpec | None = None, *, term: int = 1, saved: dict[str, object] | None = None,
                 actors: dict[str, Actor] | None = None, now: float = 0.0, master: str = "m1",
                 clock_is_ahead: float = 0.0, is_left: bool = False) -> None:  # fmt: skip
        self.spec = spec or job()
        self.state = self.made(self.spec)
        self.now = now
        self.actions: list[Action] = []
        self.lines: list[str] = []
        self.actors: dict[str, Actor] = actors or {}
        self.saved: dict[str, object] | None = saved
        self.term = term
        self.master = master
        self.creates_pods = True
        self.stuck: set[str] = set()
        """Members whose pods go by force alone: their node is frozen, or something holds them."""
        self.pace: Callable[[int], float] = lambda world: STEP_SECONDS
        """Seconds of a step, by the size of the world."""
        self.batch = 0
        """Samples of a rank's step; 0: they are not counted."""
        self.room: int | None = None
        """Pods that find a place; None: all."""
        self.saves_status = True
        self.steps_beyond = True
        """Worlds say by themselves that they are past the highest step."""
        self.memory_limit = 0
        """Of each member's container, where no more was asked for."""
        self.nodes: dict[str, str] = {}
        """Where a member's pod lands."""
        self.machines: dict[str, str] = {}
        """Whose kernel it runs on, by member."""
        self.bad: dict[str, str] = {}
        """What is wrong with the machine of a member (`Actor.bad`)."""
        self.apart: set[str] = set()
        """Two whose way to each other is cut, in an all-gather."""
        self.cuts: dict[tuple[str, str], float] = {}
        """Who does not find whom, and since when."""
        self.round_trips: dict[str, float] = {}
        """Seconds of those of a member, where they are not like everybody's."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._sessions = count()
        self._uids = count()
        self.tell(Began(term, self.spec, saved, 1_700_000_000.0 + now + clock_is_ahead, is_left))
        alive = tuple(self._pod(a) for a in self.actors.values() if not a.gone)
        self.after(LATENCY, lambda: self.tell(PodsListed(alive)))
        for actor in list(self.actors.values()):
            if not actor.gone:
                self.after(0.1, lambda actor=actor: self.connect(actor))
                self.after(0.2, lambda actor=actor: self.report(actor))

    # -- the core ---------------------------------------------------------------------------------------------------
    def made(self, spec: JobSpec) -> Any:
        """The state before Began."""
        return State()

    def core(self, event: Event) -> list[Action]:
        actions = step(self.state, event, self.now)
        check(self.state)
        invariants.check_actions(self.state, actions)
        return actions

    def deadline(self) -> float | None:
        return next_deadline(self.state)

    @property
    def is_ended(self) -> bool:
        return self.state.stage == "ended"

    # -- driving ----------------------------------------------------------------------------------------------------
    def tell(self, event: Event) -> list[Action]:
        """One step of the core; what it wants done is done."""
        if not self._is_report(event) and not isinstance(event, Woke):
            shown = dataclasses.replace(event, saved={}) if isinstance(event, Began) and event.saved else event
            self.lines.append(line(self.now, ">", shown))
        actions = self.core(event)
        self.actions.extend(actions)
        for action in actions:
            self.lines.append(line(self.now, "<", _short(action)))
            self._perform(action)
        return actions

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + seconds, next(self._order), do))

    def run(self, seconds: float) -> None:
        """Lets so much time pass."""
        self.until(lambda: False, seconds, must=False)

    def until(self, is_true: Callable[[], bool], limit: float = 60.0, *, must: bool = True) -> float:
        """Runs until something is true; returns how long it took."""
        begun = self.now
        end = self.now + limit
        while not is_true():
            deadline = self.deadline()
            moments = [self._queue[0][0]] if self._queue else []
            due = min([*moments, *([deadline] if deadline is not None else [])], default=float("inf"))
            if due > end:
                self.now = end
                assert not must, "it did not come true in time:\n" + "\n".join(self.lines[-40:])
                break
            self.now = max(self.now, due)
            if self._queue and self._queue[0][0] <= self.now:
                heapq.heappop(self._queue)[2]()
            else:
                self.tell(Woke())
        return self.now - begun

    def until_running(self, members: int | None = None, limit: float = 60.0) -> float:
        """Until the whole of a world has acknowledged its Start."""
        return self.until(lambda: self.is_running(members), limit)

    def until_next(self, members: int | None = None, limit: float = 60.0) -> float:
        """Until a generation after the present one runs."""
        number = self.state.number
        return self.until(lambda: self.is_running(members) and self.state.number > number, limit)

    def is_running(self, members: int | None = None) -> bool:
        world = self.state.world
        if world is None or self.state.stage != "running" or len(world.started) != len(world.places):
            return False
        return members is None or len(world.places) == members

    # -- looking ----------------------------------------------------------------------------------------------------
    def __getitem__(self, member: str) -> Actor:
        return self.actors[member]

    @property
    def generation(self) -> Generation:
        return self.state.generation

    @property
    def world(self) -> list[str]:
        return list(self.state.world.places) if self.state.world is not None else []

    def announced(self, kind: str) -> list[Announce]:
        return [a for a in self.actions if isinstance(a, Announce) and a.kind == kind]

    def sent(self, kind: type, member: str | None = None) -> list[Send]:
        return [a for a in self.actions if isinstance(a, Send) and isinstance(a.message, kind)
                and (member is None or a.member == member)]  # fmt: skip

    def deleted(self) -> list[str]:
        return [a.member for a in self.actions if isinstance(a, DeletePod)]

    def ended(self) -> EndJob | None:
        return next((a for a in self.actions if isinstance(a, EndJob)), None)

    def step(self) -> int:
        return max((a.step_at(self.now) for a in self.actors.values()), default=0)

    # -- what happens to members ------------------------------------------------------------------------------------
    def crash(self, member: str, *, signal: int | None = 9, code: int | None = None, error: str = "", message: str = "",
              at_import: bool = False, step: int | None = None, local_rank: int = 0,
              out_of_memory: bool = False) -> list[Action]:  # fmt: skip
        """One worker process ends badly."""
        actor = self[member]
        made = actor.step_at(self.now) if step is None else step
        end = WorkerExit(local_rank, 5, code, None if code is not None else signal, out_of_memory, 0.0, made,
                         error, message, "train.py:7 main" if error else "", "Traceback …" if error else "",
                         at_import)  # fmt: skip
        return self.say(actor, Exited(actor.running, (end,), actor.nproc - 1))

    def done(self, member: str) -> list[Action]:
        actor = self[member]
        actor.finished, generation = True, actor.running
        actor.running = NO_GENERATION
        ends = tuple(WorkerExit(i, 5 + i, 0) for i in range(actor.nproc))
        return self.say(actor, Exited(generation, ends, 0))

    def fail(self, member: str, exit_code: int = 137, reason: str = "the trainer's container ended", *,
             out_of_memory: bool = False, lingers: bool = False) -> list[Action]:  # fmt: skip
        """Its pod fails, and is shown for as long as nobody deletes it."""
        actor = self[member]
        actor.running, actor.unheard, actor.failed = NO_GENERATION, True, exit_code
        shown = dataclasses.replace(self._pod(actor), reason=reason, out_of_memory=out_of_memory, lingers=lingers)
        return self.tell(shown)

    def lose(self, member: str, reason: str = "killed", exit_code: int | None = None) -> list[Action]:
        """The whole pod is gone."""
        actor = self[member]
        actor.gone = True
        return self.tell(PodGone(actor.id, actor.uid, reason, exit_code))

    def lose_trainer(self, member: str) -> None:
        """The template dies and comes back after a while."""
        actor = self[member]
        generation, actor.running = actor.running, NO_GENERATION
        actor.has_trainer = False
        self.say(actor, TrainerLost("the template was killed by SIGKILL", generation))
        self.after(START_SECONDS, lambda: self._restart_trainer(actor))

    def _restart_trainer(self, actor: Actor) -> None:
        actor.has_trainer = True
        self.say_ready(actor)

    def hang(self, culprit: str, answers: Answers, others: Answers | None = None) -> None:
        """No rank makes a step from now on; what the culprit's says of itself, and what the others do."""
        for actor in self.actors.values():
            actor.hung_at = self.now
            actor.answers = answers if actor.id == culprit else others or waits(14)

    def freeze(self, member: str) -> None:
        self[member].frozen = True

    def thaw(self, member: str) -> None:
        actor = self[member]
        actor.frozen = False
        for message in actor.inbox:
            self.after(LATENCY, lambda message=message: self._obey(actor, message))
        actor.inbox.clear()
        if not actor.session:
            self.connect(actor)
        self.report(actor)

    def save(self, member: str, path: str = "/data/ckpt.pt") -> list[Action]:
        actor = self[member]
        step = actor.step_at(self.now)
        return self.say(actor, Saved(actor.running, path, step, prints=(f"9-{step}",)))

    def reconnect(self, member: str, highest: Generation | None = None) -> None:
        """The connection breaks and a new one comes."""
        actor = self[member]
        self.tell(SidecarDisconnected(actor.session))
        self.after(0.5, lambda: self.connect(actor, highest))

    # -- the sidecar's side -----------------------------------------------------------------------------------------
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

    def report(self, actor: Actor) -> None:
        if actor.gone or self.is_ended:
            return
        made = actor.step_at(self.now)
        phase = actor.phase or ("step" if made > actor.base else "init")
        known = actor.step_seconds if made > actor.base + 1 else 0.0
        age = max(0.0, self.now - actor.started_at - (made - actor.base) * actor.step_seconds)
        age = age if actor.step_seconds != STEP_SECONDS else 0.0
        age = age if actor.hung_at is None else self.now - actor.hung_at
        ranks = (
            (RankProgress(0, made, age, phase, known, made * self.batch, actor.is_stuck, actor.base),)
            if actor.has_pages
            else ()
        )
        running = actor.running != NO_GENERATION
        said = "running" if running else ("done" if actor.finished else "ready")
        links = self._links(actor) if running else ()
        made = made if actor.has_pages else 0
        self.say(actor, Report(actor.running, said, made, STEP_SECONDS if made else 0.0,
                               ranks=ranks if running else (), links=links))  # fmt: skip
        self.after(1.0, lambda: self.report(actor))

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """The two cannot see each other from now on; or only the first does not find the second."""
        self.cuts[one, other] = self.now
        if not one_way:
            self.cuts[other, one] = self.now

    def heal(self) -> None:
        self.cuts.clear()

    def _links(self, actor: Actor) -> tuple[LinkSeen, ...]:
        """What it has seen of its neighbours, as a real one says it now and then."""
        rows = []
        for each in actor.start.neighbours if actor.start is not None else ():
            since, target = self.cuts.get((actor.id, each.member)), self.actors[each.member]
            is_there = since is None and not target.gone and not target.frozen
            trip = max(self.round_trips.get(m, ROUND_TRIP) for m in (actor.id, each.member))
            missing = 0.0 if is_there else max(self.now - (self.now if since is None else since), 0.001)
            rows.append(LinkSeen(each.member, trip, 0, 20, missing))
        return tuple(rows)

    def _obey(self, actor: Actor, message: FromMaster) -> None:
        if actor.gone:
            return
        if actor.frozen:
            actor.inbox.append(message)
            return
        match message:
            case Start():
                self._start(actor, message)
            case Stop():
                self._stop(actor, message)
            case Finish():
                self.say(actor, Acknowledged(message.order))
                if message.exit_code and not self.state.is_over:
                    self.after(0.1, lambda: (self.fail(actor.id, message.exit_code), None)[1])
            case Probe():
                self._probe(actor, message)
            case Ask():
                rank = actor.start.first_rank if actor.start is not None else 0
                rows = (
                    []
                    if actor.answers is None or actor.hung_at is None
                    else [actor.answers.row(rank, 0, message.what, self.now - actor.hung_at)]
                )
                self.say(actor, Answer(message.order, body(rows)))
            case SaveState(order, generation, signal=signal) if signal:
                deaf = "" if actor.handles_signal else f"local rank 0 has no handler for {signal} (yet)"
                self.say(actor, StateSaved(order, generation, error=deaf))
                if actor.saves_in is not None and not deaf:
                    self.after(actor.saves_in, lambda: self._asked_by_signal(actor, message))
            case SaveState() if actor.saves_in is not None and actor.running == message.generation:
                self.after(actor.saves_in, lambda: self._saved(actor, message))
            case Check() if message not in actor.checks:
                actor.checks.append(message)
                self.after(CHECK_SECONDS, lambda: self._checked(actor, message))
            case Kept(step=step):
                actor.kept = step
            case Fetch() if actor.fetches_in is not None:
                self.after(actor.fetches_in, lambda: self._fetched(actor, message))
            case _:
                pass

    def offer(self, member: str, *, saves_in: float = 0.5, error: str = "") -> None:
        """Its script can save its state."""
        actor = self[member]
        actor.saves_in, actor.save_error, actor.offers = saves_in, error, True
        self.say(actor, StateOffered(actor.running, ("model", "optimizer")))

    def remember(self, step: int, *members: str, sharded: bool = False) -> None:
        """Ranks of these members, else of all, have a copy of this step in memory."""
        for member in members or tuple(self.world):
            actor = self[member]
            assert actor.start is not None
            for rank in range(actor.start.first_rank, actor.start.first_rank + (actor.nproc if sharded else 1)):
                copy = Copy(rank, step, sharded, actor.start.world_size, actor.running, 1000)
                actor.copies = (*actor.copies, copy)[-2 * actor.nproc :]
                self.say(actor, Remembered(actor.running, rank, step, 1000, sharded))

    def remember_marked(self, number: int, counted: int = 0) -> None:
        """Rank 0 has saved to the marked path."""
        actor = self[next(iter(self.world))]
        assert actor.start is not None
        copy = Copy(0, number, False, actor.start.world_size, actor.running, 1000, marked=True)
        actor.copies = (*actor.copies, copy)[-2:]
        self.say(actor, Remembered(actor.running, 0, number, 1000, False, True, counted))

    def _fetched(self, actor: Actor, order: Fetch) -> None:
        """What it asks for is there, or it says what is not."""
        error = actor.fetch_error
        for wanted in order.wanted:
            source = self[wanted.member]
            found = [c for c in source.copies if c.step == order.step and (not order.sharded or c.rank == wanted.rank)]
            if source.gone or not found:
                error = error or f"from {wanted.member}: there is no whole copy of step {order.step} any more"
            elif not error:
                actor.copies = (*actor.copies, dataclasses.replace(found[0], held=wanted.held))
                if not wanted.held and actor.running == NO_GENERATION:
                    self.say_ready(actor, again=True)
        self.say(actor, Fetched(order.order, order.generation, order.step, 0.5, error))

    def _asked_by_signal(self, actor: Actor, order: SaveState) -> None:
        if actor.running == order.generation:
            self.say(actor, Saved(order.generation, "/data/ckpt.pt", actor.step_at(self.now), order.order))

    def _saved(self, actor: Actor, order: SaveState) -> None:
        if actor.running != order.generation:
            return
        made, path = actor.step_at(self.now), "/data/state-1-1.pth"
        if actor.save_error:
            self.say(actor, StateSaved(order.order, order.generation, error=actor.save_error))
            return
        actor.hung_at = self.now if order.last else None
        self.say(actor, Saved(order.generation, path, made))
        self.say(actor, StateSaved(order.order, order.generation, made, path, 0.5))

    def _start(self, actor: Actor, start: Start) -> None:
        if start.generation < actor.highest:
            return
        assert actor.running in (NO_GENERATION, start.generation), "the old workers live"
        if actor.running == NO_GENERATION:
            actor.running = actor.highest = start.generation
            actor.isolated = ""
            actor.start, actor.started_at, actor.step_seconds = start, self.now, self.pace(start.world_size)
            actor.hung_at, actor.phase, actor.answers = None, "", None
            if any(one in self.world and other in self.world for one, other in self.cuts):
                actor.hung_at = self.now  # the collectives of its first step do not come through
            actor.base = max((made for _path, made in start.saves), default=0)
            if start.high_step:
                missing = start.high_step + 1 - actor.base
                self.after(missing * actor.step_seconds, lambda: self._beyond(actor, start))
        self.say(actor, Started(start.order, start.generation, (5,) * actor.nproc))

    def _beyond(self, actor: Actor, start: Start) -> None:
        if actor.running == start.generation and actor.hung_at is None and self.steps_beyond:
            self.say(actor, Stepped(start.generation, start.high_step + 1, 0.0, actor.base))

    def _stop(self, actor: Actor, stop: Stop) -> None:
        if actor.stubborn:
            return
        made = actor.step_at(self.now)
        if actor.running <= stop.generation:
            actor.running = NO_GENERATION
        actor.highest = max(actor.highest, stop.generation)
        actor.stopped = max(actor.stopped, stop.generation)
        actor.finished = False
        self.say(actor, Stopped(stop.order, stop.generation, made, 0.05))
        self.say_ready(actor)

    def _checked(self, actor: Actor, check: Check) -> None:
        others = [*(peer.member for peer in check.peers), *check.awaited]
        peers = tuple(self._gathered(actor, other) for other in others)
        result, compute = "ok", COMPUTE_SECONDS * (SLOW if actor.bad == "slow" else 1)
        if actor.bad == "dies":
            result, peers = "died", ()
        elif actor.bad == "absurd":
            compute = -1.0
        wall = SLOW * compute if actor.bad in ("crowded", "loaded") else compute
        held_up = wall - compute if actor.bad == "loaded" else 0.0
        times = (wall, compute) if check.compute and result == "ok" else (0.0, 0.0)
        error = "its process was killed by SIGKILL" if result == "died" else ""
        kind = "torch cpu" if times[0] else ""
        self.say(actor, Checked(check.order, check.round, result, error, kind, *times, CHECK_SECONDS, peers, held_up))
        if check.port:
            self.say_ready(actor)

    def _gathered(self, actor: Actor, member: MemberId) -> PeerCheck:
        other = self.actors[member]
        is_well = not ({"mute", "dies"} & {actor.bad, other.bad} or other.gone or other.frozen)
        is_well = is_well and self.apart != {actor.id, member}
        return PeerCheck(member, NETWORK_SECONDS, "") if is_well else PeerCheck(member, 0.0, "no answer within 4 s")

    def _probe(self, actor: Actor, probe: Probe) -> None:
        target = self.actors.get(probe.member)
        is_cut = (actor.id, probe.member) in self.cuts
        reachable = target is not None and not target.gone and not target.frozen and not is_cut
        delay = LATENCY if reachable else probe.seconds
        self.after(delay, lambda: (self.say(actor, Probed(probe.order, probe.member, reachable)), None)[1])

    def appears(self, member: str, rank_index: int) -> None:
        """Another controller makes a pod."""
        self._create(CreatePod(MemberId(member), Role("worker"), RankIndex(rank_index), NO_GENERATION, ""))

    def comes(self, actor: Actor) -> None:
        """Another controller has made this one."""
        self.actors[actor.id] = actor
        self.tell(self._pod(actor))
        self.connect(actor)

    # -- the platform and the disk ----------------------------------------------------------------------------------
    def _perform(self, action: Action) -> None:
        match action:
            case Send():
                actor = self.actors.get(action.member)
                if actor is not None and actor.session == action.session and not actor.unheard:
                    self.after(LATENCY, lambda: self._obey(actor, action.message))
            case SaveStatus() if self.saves_status:
                self.saved = action.status
                self.after(LATENCY, lambda: (self.tell(StatusSaved(action.version)), None)[1])
            case CreatePod() if self.creates_pods:
                self.after(LATENCY, lambda: self._create(action))
            case DeletePod():
                self.after(0.1, lambda: self._delete(action))
            case ProbeMember():
                self.after(0.1, lambda: self._probe_directly(action))
            case _:
                pass

    def _pod(self, actor: Actor) -> PodSeen:
        phase = "running" if actor.failed is None else ("failed" if actor.failed else "succeeded")
        phase = "pending" if actor.waits else phase
        return PodSeen(actor.id, actor.uid, actor.role, actor.rank_index, phase, exit_code=actor.failed,
                       node=actor.node, memory_limit=actor.memory_limit, has_another_key=actor.stranger,
                       alone_after=actor.alone_after, unschedulable=actor.waits, resources=actor.resources)  # fmt: skip

    def _create(self, action: CreatePod) -> None:
        if action.member in self.actors:
            return
        uid = PodUid(f"uid-{next(self._uids)}")
        actor = Actor(action.member, uid, action.rank_index, action.role, nproc=self.spec.nproc,
                      port=30000 + 100 * len(self.actors), node=self.nodes.get(action.member, ""),
                      memory_limit=action.memory_limit or self.memory_limit, resources=action.resources,
                      bad=self.bad.get(action.member, ""))  # fmt: skip
        if self.room is not None and sum(not a.gone for a in self.actors.values()) >= self.room:
            actor.waits = True
        self.actors[actor.id] = actor
        self.tell(self._pod(actor))
        if actor.waits:
            return
        self.after(START_SECONDS - 2 * LATENCY, lambda: self.connect(actor))
        self.after(START_SECONDS + 0.5, lambda: self.report(actor))

    def _delete(self, action: DeletePod) -> None:
        actor = self.actors.get(action.member)
        is_stuck = action.member in self.stuck and action.grace > 0
        if actor is not None and not actor.gone and actor.uid == action.uid and not is_stuck:
            actor.gone = True
            self.tell(PodGone(actor.id, actor.uid, "deleted"))

    def _probe_directly(self, action: ProbeMember) -> None:
        actor = self.actors.get(action.member)
        reachable = actor is not None and not (actor.gone or actor.frozen or actor.unheard)
        self.tell(MemberProbed(action.member, reachable))

    @staticmethod
    def _is_report(event: Event) -> bool:
        return isinstance(event, SidecarSaid) and isinstance(event.message, Report)


def _short(action: Action) -> object:
    """Without what would make a transcript unreadable: the whole status, and a message's copy of the reason."""
    if isinstance(action, SaveStatus):
        return dataclasses.replace(action, status={})
    if isinstance(action, Send) and isinstance(action.message, Start | Stop | Finish):
        return dataclasses.replace(action, message=dataclasses.replace(action.message, reason=""))
    return action


def job(members: int = 4, least: int | None = None, **policy: object) -> JobSpec:
    """A job of so many workers, `least` of which are enough."""
    least = members if least is None else least
    return JobSpec(JobName("digits"), least, members, members, **policy)  # type: ignore[arg-type]


def running(members: int = 4, least: int | None = None, *, steps: bool = True, **policy: object) -> Play:
    """A job that has trained for two seconds."""
    play = Play(job(members, least, **policy))
    play.until_running(members)
    if steps:
        play.run(2.0)
    play.actions.clear()
    return play


def names(*numbers: int) -> list[str]:
    return [f"worker-{n}" for n in numbers]


def kinds(actions: Iterator[Action] | list[Action]) -> list[str]:
    return [type(a).__name__ for a in actions]
