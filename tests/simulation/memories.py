"""Checkpoints in members' memories: saved by ranks, taken over by sidecars, slowly, or not at all; and their laws.

Chance here is of its own, so that the jobs without such memories are as they were.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from outrider.master.core.actions import Announce
from outrider.sidecar.core import events as told
from outrider.sidecar.core.actions import FetchCopies, KeepCopies
from outrider.wire.ids import NO_GENERATION, Generation
from outrider.wire.messages.checkpoints import Copy, Fetched, Remembered, Wanted
from outrider.wire.messages.generation import Start

if TYPE_CHECKING:
    from tests.simulation.masters import Master
    from tests.simulation.pods import Pod, Sidecar
    from tests.simulation.trainer import Run, Trainer, Worker
    from tests.simulation.world import World

KINDS = ("", "replicated", "sharded")
ODDS = (0.5, 0.3, 0.2)
MARKED = "marked"
MARKED_ODDS = 0.4
"""Of those without the others: rank 0 alone saves, and the master has it given to all."""
TORN = 0.03
"""Saves that a rank does not come to the end of."""
UNANSWERED = 0.3
"""Of the jobs with slow copies: those in which a sidecar may take over a copy and never say that it has."""
GIVEN_FOR = 60.0
"""Seconds for which a sidecar asks its ranks not to write over what it gives to a partner."""
LATE = 1.0
"""Seconds for what a master does in one step."""


@dataclass(slots=True)
class Memory:
    """Of one pod; it outlives trainer and sidecar. A local rank has two slots of its own and two that it holds."""

    slots: dict[tuple[int, bool], list[Copy]] = field(default_factory=dict)
    kept: tuple[Generation, int] = (NO_GENERATION, -1)
    given: tuple[Generation, int] = (NO_GENERATION, -1)
    """What a partner takes over, until `kept` reaches it or `given_until`."""
    given_until: float = 0.0

    def copies(self) -> tuple[Copy, ...]:
        return tuple(copy for _key, slots in sorted(self.slots.items()) for copy in slots)

    def own(self) -> list[Copy]:
        return [copy for copy in self.copies() if not copy.held]

    def put(self, local_rank: int, copy: Copy, now: float = 0.0) -> bool:
        """Never over what is kept, or else the newest; nor, of one's own, over what a partner takes over `now`."""
        slots = self.slots.setdefault((local_rank, copy.held), [])
        if len(slots) == 2:
            slots.sort(key=lambda each: (each.step == self.kept[1], each.generation if each.marked else 0, each.step))
            is_given = self.kept < self.given and now < self.given_until and not copy.held
            if is_given and (slots[0].generation, slots[0].step) == self.given and copy.generation == self.given[0]:
                return False
            del slots[0]
        slots.append(copy)
        return True

    def find(self, wanted: Wanted, order: FetchCopies) -> Copy | None:
        version = (order.order.step, order.order.made_in, order.order.sharded)
        for copy in self.copies():
            is_it = (copy.step, copy.generation, copy.sharded) == version
            if is_it and (not copy.sharded or copy.rank == wanted.rank):
                return copy
        return None


@dataclass(frozen=True, slots=True)
class Promise:
    """A sharded step that a master has said to be kept: what the next world of that size can begin from, whichever
    single member is lost."""

    generation: Generation
    step: int
    size: int
    memories: dict[str, Memory]


class Memories:
    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = random.Random(f"memories {world.seed}")
        (self.kind,) = self.rng.choices(KINDS, ODDS)
        if not self.kind and random.Random(f"marked {world.seed}").random() < MARKED_ODDS:
            self.kind = MARKED
        self._numbers: dict[Generation, int] = {}
        self._begun: dict[Generation, tuple[int, Generation]] = {}
        self.is_slow = self.rng.random() < 0.2
        self._unanswered = random.Random(f"unanswered {world.seed}")
        self._loses_answers = self.is_slow and self._unanswered.random() < UNANSWERED
        self.excused: set[Generation] = set()
        """Generations of which a master has said that a member goes without."""
        self._started: set[Generation] = set()
        self._kept: Promise | None = None

    # -- what ranks do
    def saved(self, run: Run, step: int) -> None:
        if not self.kind:
            return
        for pod, worker in list(run.joined.values()):
            if self.kind == MARKED and worker.rank != 0:
                continue
            if (self.kind == "sharded" or worker.local_rank == 0) and self.rng.random() > TORN:
                self.world.time.after(self.rng.uniform(0.0, 0.5), self._sealed, pod, worker, step)

    def _sealed(self, pod: Pod, worker: Worker, step: int) -> None:
        trainer = pod.trainer
        if not worker.alive or worker.stopping or pod.trainer_paused or trainer is None or not trainer.alive:
            return
        is_sharded, is_marked, counted = self.kind == "sharded", self.kind == MARKED, step
        generation = worker.start.generation
        step = self._number(pod, worker.start) if is_marked else step
        copy = Copy(worker.rank, step, is_sharded, worker.run.size, generation, 1000, marked=is_marked)
        if not pod.memory.put(worker.local_rank, copy, self.world.time.now):
            return
        said = Remembered(generation, worker.rank, step, 1000, is_sharded, is_marked, counted)
        trainer.remembered[worker.local_rank] = said
        trainer.tell(told.HookSaid(trainer.remembered[worker.local_rank]))

    def _number(self, pod: Pod, start: Start) -> int:
        """Of the next save: greater than what is known there."""
        known = max((copy.step for copy in pod.memory.copies()), default=0)
        self._numbers[start.generation] = max(self._numbers.get(start.generation, 0), known, start.begins_from) + 1
        return self._numbers[start.generation]

    def say_again(self, trainer: Trainer) -> None:
        """On each connection of the hooks."""
        for said in trainer.remembered.values():
            if said.generation == trainer.running:
                trainer.tell(told.HookSaid(said))

    # -- what sidecars do
    def fetch(self, sidecar: Sidecar, action: FetchCopies) -> None:
        sidecar.fetching = action
        seconds = self.rng.uniform(5.0, 40.0) if self.is_slow else self.rng.uniform(0.01, 2.0)
        late = seconds > action.order.seconds
        if self._loses_answers and self._unanswered.random() < 0.5:
            return  # a transfer that hangs: the master's deadline is all that ends it
        self.world.time.after(min(seconds, action.order.seconds), self._fetched, sidecar, action, late)

    def _fetched(self, sidecar: Sidecar, action: FetchCopies, late: bool) -> None:
        order, pod = action.order, sidecar.pod
        if sidecar.fetching is not action or not sidecar.alive:
            return
        if sidecar.paused_at is not None:
            self.world.time.after(0.5, self._fetched, sidecar, action, late)
            return
        error = "it did not arrive in time" if late else ""
        for wanted in () if late else order.wanted:
            error = error or self._took(pod, wanted, action)
        sidecar.fetching = None
        answer = Fetched(order.order, order.generation, order.step, 0.1, error)
        sidecar.post(told.CopiesFetched(answer, pod.memory.copies()))

    def _took(self, pod: Pod, wanted: Wanted, action: FetchCopies) -> str:
        source = next((p for p in self.world.platform.pods.values() if p.address == wanted.address), None)
        found = source.memory.find(wanted, action) if source is not None else None
        is_there = source is not None and source.is_up and not self.world.network.is_cut(source.member, pod.member)
        if found is None or not is_there:
            return f"from {wanted.member}: there is no whole copy of step {action.order.step} any more"
        workers = pod.trainer.workers.values() if pod.trainer is not None else ()
        of_whom = {worker.start.generation for worker in workers if worker.alive}
        only_read = action.order.marked and of_whom <= {action.order.generation}
        if not wanted.held and not only_read and any(worker.alive for worker in workers):
            self.world.broken(f"a copy is written into the memory of {pod.member} while its ranks use it")
        pod.memory.put(wanted.local_rank, replace(found, held=wanted.held))
        if found.sharded:
            source.memory.given = (found.generation, found.step)
            source.memory.given_until = self.world.time.now + GIVEN_FOR
        return ""

    def keep(self, pod: Pod, action: KeepCopies) -> None:
        kept = (action.generation, action.step)
        if kept[0] == pod.memory.kept[0] and kept < pod.memory.kept:
            self.world.broken(f"{pod.member} keeps step {action.step} after step {pod.memory.kept[1]}")
        pod.memory.kept = kept
        is_of_it = [copy for copy in pod.memory.own() if copy.marked or copy.generation == action.generation]
        newest = max((copy.step for copy in is_of_it), default=-1)
        if newest < action.step:
            self.world.broken(f"{pod.member} is to keep step {action.step}, and has never had it")

    # -- what a master does
    def announced(self, action: Announce) -> None:
        if action.kind == "CheckpointTransferFailed":
            self.excused.add(action.generation)
        elif action.kind == "CheckpointReplicated" and self.kind == "sharded":
            self._promised(action.generation)

    def _promised(self, generation: Generation) -> None:
        master = self.world.masters.current
        if master is None or master.generation() != generation:
            return
        pods = self.world.platform.pods
        memories = {str(i): pods[i].memory for i in master.places() if i in pods}
        self._kept = Promise(generation, master.kept_step(), master.world_size(), memories)

    def _keeps_promise(self, master: Master, start: Start) -> None:
        """Of the world after the one in which it was kept: each rank has its own part, all of one version."""
        promise, generation, places = self._kept, master.generation(), master.places()
        if promise is None or generation is None or generation.number <= promise.generation.number:
            return
        self._kept = None
        pods = self.world.platform.pods
        lost = [
            i
            for i, memory in promise.memories.items()
            if i not in places or i not in pods or pods[i].memory is not memory
        ]
        is_next = generation.number == promise.generation.number + 1 and master.world_size() == promise.size
        if not is_next or len(lost) > min(1, len(promise.memories) - 1) or start.generation in self.excused:
            return
        versions = [
            {(c.step, c.generation) for c in pods[place.member].memory.own() if c.sharded and c.rank == rank
             and c.world == promise.size and c.step >= promise.step}
            for place in places.values() if place.member in pods
            for rank in range(place.first_rank, place.first_rank + place.nproc)
        ]  # fmt: skip
        if versions and not set.intersection(*versions):
            self.world.broken(
                f"step {promise.step} was kept in {promise.generation}, and {generation} without {lost} cannot have it"
            )

    def started(self, master: Master, start: Start) -> None:
        """A Start does not wait for copies beyond their deadline. Of a generation the first counts."""
        due = master.copies_due()
        if start.generation in self._started or due is None:
            return
        self._started.add(start.generation)
        self._keeps_promise(master, start)
        late = master.now() - due if due else 0.0
        if late > LATE and self.world.time.now - master.thawed_at > LATE:
            self.world.broken(f"generation {master.generation()} starts {late:.1f} s after the deadline of its copies")

    def start_ordered(self, pod: Pod, start: Start) -> None:
        """Who joins others that have a checkpoint in memory was given one, or was not in time."""
        if self.kind == MARKED:
            self._begins(pod, start)
        master = self.world.masters.current
        if self.kind != "replicated" or master is None or master.generation() != start.generation:
            return
        if start.generation in self.excused or pod.memory.own():
            return
        others = [p for p in self.world.platform.pods.values() if p.member in master.places() and p.memory.own()]
        if others:
            self.world.broken(f"{pod.member} starts {start.generation} with nothing in memory, {others[0].member} has")

    def _begins(self, pod: Pod, start: Start) -> None:
        """All ranks of a generation begin from one save of the marked path, which each of them has."""
        begun = (start.begins_from, start.begins_in)
        if self._begun.setdefault(start.generation, begun) != begun:
            self.world.broken(f"{pod.member} begins {start.generation} from {begun}, others from another save")
        has = any((copy.step, copy.generation) == begun for copy in pod.memory.own())
        if start.begins_from >= 0 and not has:
            self.world.broken(f"{pod.member} begins {start.generation} from save {begun}, and has it not in memory")
