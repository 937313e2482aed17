"""What must hold, judged from outside of both cores, with what only the simulation knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.master.core.faults.oom import KILLED
from outrider.wire.ids import NO_GENERATION, Generation, MemberId
from outrider.wire.messages.generation import Start, Stop
from outrider.wire.messages.membership import Finish, TrainerLost

if TYPE_CHECKING:
    from tests.simulation.masters import Master
    from tests.simulation.pods import Heard, Pod, Sidecar
    from tests.simulation.trainer import Run, Worker
    from tests.simulation.world import World

SLACK = 4.0
"""Beyond silent_after, a member must have been well for so long to count as healthy: to connect and say Hello."""

HEARD_AGAIN = 1.0
"""A member whose connection is younger may have come too late to be stopped with the others."""


class Laws:
    def __init__(self, world: World) -> None:
        self.world = world
        self._ranks: dict[Generation, dict[int, tuple[Pod, Worker]]] = {}
        self._meeting: dict[Generation, tuple[str, int, int]] = {}
        self._ports: dict[tuple[str, int], Generation] = {}
        self._numbers: dict[int, Generation] = {}
        self._told: dict[str, Generation] = {}
        self.begun_past_the_lease = 0
        """Members that were told to."""
        self._decided: set[tuple[int, Generation]] = set()
        """By term, the generations that a master began past its Lease."""
        self._alone: set[str] = set()
        """Pods that train unsupervised."""
        self._needs: dict[tuple[int, int], int] = {}
        """Bytes, by term and rank index: twice what a member had that this master has ended for want of memory."""

    def _hold(self, claim: bool, sentence: str) -> None:
        if not claim:
            self.world.broken(sentence)

    # -- the master's actions
    def sent(self, master: Master, member: str, message: Any) -> None:
        self.world.checking.sent(master, member, message)
        if isinstance(message, Finish) and message.exit_code == KILLED:
            self._ran_out(master, MemberId(member))
        if not isinstance(message, Start):
            return
        generation = message.generation
        self.world.memories.started(master, message)
        saved = master.saved_generation
        is_saved = saved is not None and saved >= generation
        self._hold(is_saved or master.has_read_lapsed, f"Start of {generation} is sent only after it is saved")
        if is_saved:
            first = self._numbers.setdefault(generation.number, generation)
            self._hold(first == generation, f"number {generation.number} is used by {first} and by {generation}")
        else:
            self._is_the_saved_world(master, MemberId(member), message)
        meeting = (message.master_addr, message.master_port, message.world_size)
        self._hold(self._meeting.setdefault(generation, meeting) == meeting, f"all of {generation} meet at one place")
        owner = self._ports.setdefault(meeting[:2], generation)
        self._hold(owner == generation, f"the port {meeting[1]} of generation {owner} is used again by {generation}")
        spec = self.world.scenario.spec
        size = message.group_world_size
        self._hold(spec.min_members <= size <= spec.max_members, f"the world of {generation} has {size} members")
        for pod in self.world.platform.living():
            worker, link = self._living(pod), pod.sidecar.link if pod.sidecar is not None else None
            is_known = link is not None and link.master is master and self.world.time.now - link.since > HEARD_AGAIN
            is_stuck = (
                pod.deleting and self.world.time.now > pod.ends_at
            )  # its kubelet is late, and nobody waits for it
            if worker is not None and worker.start.generation < generation and is_known and not is_stuck:
                self._hold(not self.is_healthy(pod, reach_master=True),
                           f"{generation} starts while {pod.member} still runs {worker.start.generation}")  # fmt: skip

    def _is_the_saved_world(self, master: Master, member: MemberId, start: Start) -> None:
        """Past its Lease: the same members and ranks, a number that is reserved, all on their links when it begins."""
        self.begun_past_the_lease += 1
        world, generation, record = self.world, start.generation, master.record or {}
        saved = record.get("world") or record.get("left") or {}
        places = {place["member"]: place for place in saved.get("places", ())}
        place = places.get(member)
        is_same = place is not None and (place["group_rank"], place["first_rank"], place["nproc"], len(places)) == (
            start.group_rank, start.first_rank, start.nproc, start.group_world_size)  # fmt: skip
        self._hold(is_same, f"{generation} is not the saved world, and the Lease has run out: {member}")
        term, up_to = record["reserved"]
        is_reserved = generation.term == term and saved["generation"][1] < generation.number <= up_to
        self._hold(is_reserved, f"{generation} is started past the Lease, and {term}.{up_to} is reserved")
        if (master.term, generation) in self._decided:
            return  # all were there when it was decided; this Start is repeated
        self._decided.add((master.term, generation))
        for other in places:
            pod = world.platform.pods.get(MemberId(other))
            sidecar = None if pod is None else pod.sidecar
            link = None if sidecar is None else sidecar.link
            is_unread = any(lost.sidecar is sidecar for lost in master.unread_losses.values())
            is_there = link is not None and (link.master is master or world.time.now - link.since < HEARD_AGAIN)
            self._hold(is_there or is_unread, f"{generation} is started past the Lease, and {other} is not on its link")

    def trains(self, run: Run) -> None:
        """One world at a time, whatever masters there are. A member that is frozen or cut off cannot be stopped, and
        one that is cut off together with a master past its Lease neither (docs/adr/0030): where it needs nobody else's
        ranks, it trains on until it is reached (its saves are refused: `overtaken`)."""
        for other in self.world.runs.values():
            if other is run or other.since is None or not other.can_step():
                continue
            older = min(run, other, key=lambda each: each.generation)
            can_be_stopped = any(
                self.is_healthy(pod, reach_master=True) and not pod.sidecar.link.master.is_lapsed
                for pod, _ in older.joined.values()
            )
            self._hold(not can_be_stopped, f"{run.generation} trains beside {other.generation}")

    def _ran_out(self, master: Master, member: MemberId) -> None:
        pod, rank_index = self.world.platform.pods.get(member), master.rank_index_before(member)
        if pod is not None and rank_index is not None:
            most = self.world.scenario.spec.max_memory or 32 * pod.memory_limit
            self._needs[master.term, rank_index] = min(2 * pod.memory_limit, most)

    def saved(self, master: Master) -> None:
        """Only what costs a restart is charged: a rank that ended by itself, or that lost its peers."""
        if self._is_history(master):
            return
        used, faults = master.restarts_used(), len(self.world.charged | self.world.fault_of_network)
        self._hold(used <= faults, f"{used} restarts are charged for {faults} faults that cost one")

    def deleted(self, master: Master, action: Any) -> None:
        world = self.world
        world.checking.deleted(master, action)
        pod = world.platform.pods.get(action.member)
        if pod is None or pod.uid != action.uid or pod.deleting or pod.is_stray:
            return
        if world.links.is_cause(action.member, action.reason):
            world.pods_given_up += 1
            return
        if master.keeps_failed(action.member):  # it ran out of memory, and its place is another's
            return
        world.pods_given_up += 1
        are_kept_away = any(each.is_kept_away for each in world.platform.living())  # who could tell that it is well
        if are_kept_away or self._is_meant(pod, action.reason):
            return
        if world.stop_asked or world.ended_with is not None or world.script_done or master.is_over:
            return
        if not self.is_healthy(pod, reach_master=not self._can_ask_others(master, pod)):
            return
        if self._is_held_by_another(master, pod):
            return
        wanted = master.wanted()
        member = master.member(action.member)
        dismissed = member is not None and bool(member.leaving)
        if member is not None and member.leaving == "the job is queued":
            return  # it gives its pods back, and asks again where that failed
        others = [p for p in world.platform.pods.values() if p is not pod and p.there and not p.deleting]
        if not dismissed:
            others = [p for p in others if p.is_up]
        self._hold(len(others) >= wanted, f"the healthy {action.member} is deleted, though only {len(others)} others "
                   f"run and {wanted} are wanted: {action.reason}")  # fmt: skip

    def _is_meant(self, pod: Pod, reason: str) -> bool:
        """Replaced for what it is, or for a rule of the user's, however well it looks by now."""
        world, spec = self.world, self.world.scenario.spec
        failed_the_check = bool(pod.bad) and "the node check" in reason
        fits_a_rule = bool(spec.rules) and "recovery.rules" in reason
        again = "more than one hang" in reason or "hangs again" in reason  # the release before says the second
        hung_twice = again and world.hangs.are_repeated(pod.member)
        is_slow = spec.exclude_stragglers and world.own_times.is_slow(pod.member)
        return failed_the_check or fits_a_rule or hung_twice or is_slow

    def named(self, action: Any) -> None:
        """Nobody who is as fast as the others is called slow, whatever happens to the job meanwhile."""
        is_slow = self.world.own_times.is_slow(str(action.member))
        self._hold(is_slow, f"the healthy {action.member} is named a straggler: {action.reason}")

    def creation_asked(self, master: Master, action: Any) -> None:
        """A pod is made only where one is missing, or in doubt: never for a pause or a leap of the master's own, and
        never for a job that ends."""
        self._hold(not master.ends, f"{action.member} is created in a job that ends: {action.reason}")
        behind = master.waits_behind()
        self._hold(not behind, f"{action.member} is created in a job that waits behind {behind}: {action.reason}")
        if action.member in self.world.platform.asked or self._is_history(master):
            return
        wanted = master.wanted() + self.world.scenario.spec.spares
        heard = sum(self._is_heard(pod, master) for pod in self.world.platform.living())
        self._hold(heard < wanted, f"{action.member} is created though {heard} members are well and only {wanted} are "
                   f"wanted: {action.reason}")  # fmt: skip

    def created(self, master: Master, pod: Pod, action: Any) -> None:
        """Its name is new; one that a master makes which is history does no harm, which `forked` holds. What such a one
        makes after the end of the job goes with the pods' owner: the master that ended the job is no more by then.
        A pod that came and went while no master could watch was never part of the job, as every Hello of it was
        refused: the master can only ask again for what it does not know to have been, and with the same name."""
        is_used, is_late = action.member in self.world.platform.ever, self.world.ended_with is not None
        pod.is_of_history = self._is_history(master)
        pod.is_stray = (is_used or is_late) and pod.is_of_history
        is_known = is_used and action.member in self.world.platform.shown
        self._hold(not is_known or pod.is_stray, f"the id {action.member} is used twice")
        need = 0 if action.rank_index is None else self._needs.get((master.term, action.rank_index), 0)
        had = pod.memory_limit
        self._hold(had >= need, f"{action.member} has {had} bytes, and its place needs {need}")

    def ended(self, master: Master) -> None:
        """What one that is history made moments before, and this one was not shown in time, is as late as `created`
        has it. So is what an owner made while this one could not watch: nobody can wait for the pods that it may yet
        make, and it is the owner's to end them."""
        for pod in self.world.platform.pods.values():
            is_late = pod.is_of_history or self.world.owner.is_there
            pod.is_stray = pod.is_stray or (is_late and master.member(pod.member) is None)

    def _is_history(self, master: Master) -> bool:
        return self.world.masters.term > master.term

    def _is_heard(self, pod: Pod, master: Master) -> bool:
        """It runs and has had a good connection to this master for long enough, and is meant to stay."""
        member = master.member(pod.member)
        link = pod.sidecar.link if pod.sidecar is not None else None
        if member is None or not member.is_alive or link is None or link.master is not master:
            return False
        is_beyond = member.rank_index is not None and member.rank_index >= master.wanted()
        if link.forgotten or pod.deleting or member.deleting or member.leaving or is_beyond:
            return False
        window = self.world.scenario.spec.silent_after + SLACK
        return self.world.time.now - link.since >= window and self.is_healthy(pod, reach_master=True, any_master=True)

    def _can_ask_others(self, master: Master, pod: Pod) -> bool:
        """Somebody else is on its links, who may reach this one."""
        others = [p.sidecar.link for p in self.world.platform.living() if p is not pod and p.sidecar is not None]
        return any(link is not None and link.master is master for link in others)

    def _is_held_by_another(self, master: Master, pod: Pod) -> bool:
        """A master that does not know yet that it has a successor keeps it on its link: this one never hears of it."""
        link = pod.sidecar.link if pod.sidecar is not None else None
        return link is not None and link.master is not master

    def is_healthy(self, pod: Pod, reach_master: bool = False, any_master: bool = False) -> bool:
        """It runs, and has reached the master or half of its peers for long enough."""
        world = self.world
        window = world.scenario.spec.silent_after + SLACK
        if not pod.is_up or world.time.now - pod.ran_since < window or pod.trainer_paused:
            return False
        troubles = [t for t in world.troubles if t[0] == pod.member and t[1] > world.time.now - window]
        if any(peer is None for _, _, peer in troubles):
            return False
        cut_from = {peer for _, _, peer in troubles}
        master_ok = not any(p.startswith("master") for p in cut_from if p) and pod.sidecar is not None
        link = pod.sidecar.link if pod.sidecar is not None else None
        master_ok = master_ok and link is not None and not link.forgotten
        if master_ok or reach_master:
            clear = any_master or not any(t[0] == "master" and t[1] > world.time.now - window for t in world.troubles)
            return master_ok and (clear or not reach_master)
        peers = [p.member for p in world.platform.living() if p is not pod and p.is_up and self._is_old(p, window)]
        peers += [m for m, at in world.platform.gone_at.items() if at > world.time.now - window]
        reached = [p for p in peers if p not in cut_from and p in world.platform.pods]
        return bool(peers) and 2 * len(reached) >= len(peers)

    def _is_old(self, pod: Pod, window: float) -> bool:
        """A cut goes through the members that there are. Nobody has reached one that began since for long enough; were
        it counted, the replacements of a split's far side would make those healthy whom they replace."""
        return self.world.time.now - pod.ran_since >= window

    # -- who trains without a master
    def may_be_let_go(self) -> float:
        """What the webhook writes into a new pod: nothing where a generation was saved."""
        return 0.0 if self._numbers else self.world.scenario.alone_after

    def let_go(self, pod: Pod) -> None:
        generation = max(self._told.values(), default=NO_GENERATION)
        self._hold(not self._told, f"{pod.member} trains unsupervised beside {generation}")
        if pod.uid not in self._alone:  # its user makes it anew some time later
            self._alone.add(pod.uid)
            self.world.time.after(10.0, self.world.platform.remove, pod, "made anew", 1.0)

    # -- the member's processes
    def obeyed(self, sidecar: Sidecar, heard: Heard, action: Any) -> None:
        """Who has been welcomed by a master does nothing that an older one orders."""
        if isinstance(heard.message, Start | Stop | Finish):
            if heard.term < self.world.masters.term:  # not heard of the new one yet: what it obeys costs a generation
                self.world.charge(sidecar.generation)
            why = f"after it was welcomed by one of term {sidecar.newest_term}: {type(action).__name__}"
            self._hold(
                heard.term >= sidecar.newest_term, f"{sidecar.pod.member} obeys a master of term {heard.term} {why}"
            )

    def said(self, sidecar: Sidecar, message: Any) -> None:
        """A template that died idle costs the generation whose Start is on its way to it: were it free, one that dies
        at every start would be started for ever."""
        if isinstance(message, TrainerLost) and sidecar.pod.restarts and sidecar.link is not None:
            master = sidecar.link.master
            generation = master.generation()
            if generation is not None and sidecar.pod.member in master.places():
                self.world.charge(generation)

    def start_ordered(self, pod: Pod, start: Start) -> None:
        worker = self._living(pod)
        same = worker is None or worker.start.generation == start.generation
        self._hold(same, f"{pod.member} starts {start.generation} before the processes of "
                   f"{worker.start.generation if worker else ''} are reaped")  # fmt: skip

    def forked(self, pod: Pod, start: Start, workers: list[Worker]) -> None:
        there = [p.member for p in self.world.platform.living() if p.uid in self._alone]
        self._hold(not there, f"{pod.member} starts {start.generation} beside {there}, which train unsupervised")
        highest = self._told.get(pod.uid, NO_GENERATION)
        self._hold(start.generation > highest, f"{pod.member} starts {start.generation} after {highest}: it is old")
        self._told[pod.uid] = start.generation
        is_stray = pod.is_stray and not self._is_adopted(pod)
        self._hold(not is_stray, f"{pod.member}, which no master of this term has made, starts {start.generation}")
        is_owned = self.world.owner.is_there
        self._hold(not is_owned or start.rank_index == pod.rank_index,
                   f"{pod.member} has rank index {start.rank_index} in {start.generation}")  # fmt: skip
        self.world.checking.forked(pod, workers)
        ranks = self._ranks.setdefault(start.generation, {})
        for worker in workers:
            other = ranks.get(worker.rank)
            self._hold(other is None, f"rank {worker.rank} of {start.generation} is given twice")
            self._hold(0 <= worker.rank < start.world_size, f"rank {worker.rank} of {start.world_size}")
            ranks[worker.rank] = (pod, worker)

    def _is_adopted(self, pod: Pod) -> bool:
        """The present master never knew the pod before it of that name, and has taken this one for what it is."""
        master = self.world.masters.current
        member = None if master is None else master.member(pod.member)
        return member is not None and member.uid == pod.uid

    def _living(self, pod: Pod) -> Worker | None:
        if pod.trainer is None:
            return None
        return next((w for w in pod.trainer.workers.values() if w.alive), None)
