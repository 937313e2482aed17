"""What goes wrong: a fault every 20 s on average, in bursts (Weibull, k = 0.6, as clusters have it)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from outrider.master.core.events import RestartRequested, ScaleRequested

if TYPE_CHECKING:
    from tests.simulation.pods import Pod
    from tests.simulation.world import World

SCALE, SHAPE = 13.3, 0.6
"""Mean 20 s."""
PAST_THE_LEASE = 12.0


class Faults:
    def __init__(self, world: World) -> None:
        self.world, self.rng = world, random.Random(f"faults {world.seed}")
        self.over = False
        self.last_until = 0.0
        self._kinds = [
            (4, self.kill_worker), (1, self.kill_two), (2, self.kill_template), (3, self.lose_pod),
            (3, self.freeze_member), (2, self.pause_sidecar), (3, self.kill_sidecar), (3, self.kill_master),
            (3, self.pause_master), (2, self.supersede), (2, self.cut_member), (2, self.cut_pair), (2, self.cut_split),
            (2, self.stall_link), (3, self.reset_link), (1, self.evict), (1, self.no_room), (1, self.scale),
            (1, self.restart), (1, self.jump), (1, self.platform_fails), (1, self.cut_platform), (1, self.port_clash),
            (2, self.silent_then_deaf), (3, self.freeze_node), (1, self.hold_pod), (1, self.run_out_of_memory),
            (3, self.hang), (1, self.end_sidecar),
        ]  # fmt: skip
        world.time.after(self.rng.uniform(0, 15), self._next)

    def _next(self) -> None:
        if self.over:
            return
        kind = self.rng.choices([k for _, k in self._kinds], [w for w, _ in self._kinds])[0]
        seconds = self.rng.choice((0.5, 2.0, 4.0, 10.0, 30.0, 60.0, 120.0)) * self.rng.uniform(0.5, 1.0)
        self.world.note("fault", 0.0, "=", f"{kind.__name__} ({seconds:.1f} s)")
        kind(seconds)
        self.world.time.after(self.rng.weibullvariate(SCALE, SHAPE), self._next)

    def _lasts(self, seconds: float) -> None:
        self.last_until = max(self.last_until, self.world.time.now + seconds)

    def _pod(self) -> Pod | None:
        pods = self.world.platform.living()
        return self.rng.choice(pods) if pods else None

    def keep_from_masters(self, pod: Pod) -> None:
        """A new pod whose port to the masters is closed, for now or until its command begins by itself."""
        rng, alone_after = random.Random(f"closed {pod.uid} {self.world.seed}"), pod.alone_after
        if not self.over and alone_after and rng.random() < 0.5:
            seconds = rng.choice((5.0, 0.5 * alone_after, 1.1 * alone_after))
            pod.is_kept_away = True
            for term in range(self.world.masters.term, self.world.masters.term + 4):
                self.world.network.cut(pod.member, f"master-{term}", seconds)
            self._lasts(seconds)

    # -- processes
    def kill_worker(self, _seconds: float) -> None:
        pod = self._pod()
        workers = [w for w in pod.trainer.workers.values() if w.alive] if pod is not None and pod.trainer else []
        if pod is not None and pod.trainer is not None and workers:
            worker = self.rng.choice(workers)
            if self.rng.random() < 0.5:
                pod.trainer.kill(worker, self.rng.choice((6, 9, 11)))
            else:
                pod.trainer.fail(worker, 1, "RuntimeError", f"bad luck {self.rng.randint(1, 9)}")

    def run_out_of_memory(self, _seconds: float) -> None:
        pod = self._pod()
        workers = [w for w in pod.trainer.workers.values() if w.alive] if pod is not None and pod.trainer else []
        if pod is not None and pod.trainer is not None and workers:
            self.world.out_of_memory += 1
            pod.trainer.kill(self.rng.choice(workers), 9, out_of_memory=True)

    def hang(self, _seconds: float) -> None:
        pod = self._pod()
        workers = [w for w in pod.trainer.workers.values() if w.alive] if pod is not None and pod.trainer else []
        if pod is not None and workers:
            self.world.hangs.begins(pod, self.rng.choice(workers), self.rng.choice(("stopped", "skips", "gil")))
            self._lasts(0.0)

    def kill_two(self, seconds: float) -> None:
        self.kill_worker(seconds)
        self.kill_worker(seconds)

    def kill_template(self, _seconds: float) -> None:
        pod = self._pod()
        if pod is not None and pod.trainer is not None and pod.trainer.alive:
            for worker in pod.trainer.workers.values():
                self.world.charge(worker.start.generation)
            self.world.pod_failures += len(pod.restarts) >= 3
            pod.trainer.die(137)

    def kill_sidecar(self, _seconds: float) -> None:
        pod = self._pod()
        if pod is not None:
            pod.kill_sidecar()

    def end_sidecar(self, seconds: float) -> None:
        pod = self._pod()
        if pod is not None:
            pod.end_sidecar()

    # -- members
    def lose_pod(self, seconds: float) -> None:
        pod = self._pod()
        if pod is not None:
            self.world.platform.remove(pod, "killed", told_after=min(seconds, 30.0))
            self._lasts(min(seconds, 30.0))

    def freeze_member(self, seconds: float) -> None:
        pod = self._pod()
        if pod is not None:
            pod.freeze(seconds, whole=True)
            self._lasts(seconds)

    def pause_sidecar(self, seconds: float) -> None:
        pod = self._pod()
        if pod is not None:
            pod.freeze(seconds, whole=False)
            self._lasts(seconds)

    def evict(self, _seconds: float) -> None:
        pod = self._pod()
        if pod is not None:
            self.world.platform.terminate(pod, self.rng.choice((2.0, 10.0, 30.0)), "Evicted")
            self._lasts(30.0)

    def freeze_node(self, seconds: float) -> None:
        """Its kubelet alone, or the machine; the cluster may forget it, or somebody delete a pod there."""
        pod, nodes = self._pod(), self.world.platform.nodes
        if pod is None or nodes.is_frozen(pod.node):
            return
        there, kind = nodes.pods(pod.node), self.rng.random()
        nodes.freeze(pod.node, seconds, is_deleted=self.rng.random() < 0.25)
        for each in there if kind < 0.5 else ():
            each.freeze(seconds, whole=True)
        if kind > 0.6:
            self.world.platform.terminate(pod, self.rng.choice((2.0, 10.0, 30.0)), "Evicted")
        self._lasts(seconds + 30.0)

    def hold_pod(self, seconds: float) -> None:
        """It is deleted, and a finalizer keeps it for a while."""
        pod = self._pod()
        if pod is not None:
            pod.held_until = self.world.time.now + seconds
            self.world.platform.terminate(pod, self.rng.choice((2.0, 10.0)), "Evicted")
            self._lasts(max(seconds, 10.0))

    # -- masters
    def kill_master(self, _seconds: float) -> None:
        self.world.masters.crash()
        self._lasts(4.0)

    def pause_master(self, seconds: float) -> None:
        master = self.world.masters.current
        if master is not None:
            self.world.trouble("master", min(seconds, 60.0) + 4.0)
            master.pause(min(seconds, 60.0))
            self._lasts(min(seconds, 60.0))

    def silent_then_deaf(self, seconds: float) -> None:
        """A member falls silent, then the master is paused, and the member is well again before the master is."""
        pod, master = self._pod(), self.world.masters.current
        if pod is not None and master is not None:
            pod.freeze(self.rng.uniform(6.0, 10.0), whole=True)
            pause = self.rng.uniform(16.0, 30.0)
            self.world.trouble("master", pause + 10.0)
            self.world.time.after(5.0, master.pause, pause)
            if self.rng.random() < 0.5 and pod.sidecar is not None and pod.sidecar.link is not None:
                self.world.time.after(15.0, pod.sidecar.link.break_)
            self._lasts(5.0 + pause)

    def supersede(self, seconds: float) -> None:
        self.world.masters.supersede(12.0 + seconds)
        self._lasts(25.0)

    def jump(self, seconds: float) -> None:
        master, pod = self.world.masters.current, self._pod()
        if master is not None and self.rng.random() < 0.6:
            master.jump(seconds)
        elif pod is not None and pod.sidecar is not None:
            pod.sidecar.jump(seconds)

    # -- the network
    def cut_member(self, seconds: float) -> None:
        pod, master = self._pod(), self.world.masters.current
        if pod is None or master is None:
            return
        self._lasts(seconds)
        self.world.network.cut(pod.member, master.host, seconds)
        if self.rng.random() < 0.5:
            for other in self.world.platform.living():
                if other is not pod:
                    self.world.network.cut(pod.member, other.member, seconds)
        self._settle()

    def cut_pair(self, seconds: float) -> None:
        one, two = self._pod(), self._pod()
        if one is not None and two is not None and one is not two:
            self.cut(one, two, seconds)

    def cut(self, one: Pod, two: Pod, seconds: float) -> None:
        self._lasts(seconds)
        self.world.network.cut(one.member, two.member, seconds)
        self._settle()

    def cut_split(self, seconds: float) -> None:
        """The master is alone, or on one side of a split."""
        master = self.world.masters.current
        if master is None:
            return
        self._lasts(seconds)
        all_pods = self.world.platform.living()
        far = all_pods if self.rng.random() < 0.5 else [p for p in all_pods if self.rng.random() < 0.5]
        for pod in far:
            self.world.network.cut(pod.member, master.host, seconds)
            for other in all_pods:
                if other not in far:
                    self.world.network.cut(pod.member, other.member, seconds)
        self._settle()

    def _settle(self) -> None:
        for run in self.world.runs.values():
            was = run.since is not None
            run.settle()
            if was and run.since is None and run.saving_until <= self.world.time.now:
                self.world.time.after(10.0, self._timed_out, run)

    def _timed_out(self, run: object) -> None:
        if not run.can_step():  # type: ignore[attr-defined]
            run.peer_died()  # type: ignore[attr-defined]

    def stall_link(self, seconds: float) -> None:
        links = [link for link in self.world.network.links if link.up]
        if links:
            self.world.network.stall(self.rng.choice(links), min(seconds, 30.0))
            self._lasts(min(seconds, 30.0))

    def reset_link(self, _seconds: float) -> None:
        links = [link for link in self.world.network.links if link.up]
        for link in links if self.rng.random() < 0.3 else links[:1]:
            link.break_()

    # -- the platform and the user
    def no_room(self, seconds: float) -> None:
        self.world.platform.full_until = self.world.time.now + seconds
        self._lasts(seconds)
        self.lose_pod(1.0)

    def platform_fails(self, seconds: float) -> None:
        self.world.platform.fails_until = self.world.time.now + min(seconds, 30.0)
        self._lasts(min(seconds, 30.0))

    def cut_platform(self, seconds: float) -> None:
        master = self.world.masters.current
        if master is not None:
            self.world.masters.cut_off(master, seconds)
            self._lasts(seconds)
            if seconds > PAST_THE_LEASE:
                self.world.time.after(PAST_THE_LEASE, self._kill_meanwhile, seconds)

    def _kill_meanwhile(self, seconds: float) -> None:
        if not self.over:
            self.kill_worker(seconds)

    def port_clash(self, _seconds: float) -> None:
        self.world.port_clashes += 1

    def scale(self, _seconds: float) -> None:
        master, spec = self.world.masters.current, self.world.scenario.spec
        if master is not None and master.paused_at is None and spec.max_relaunches is None and not spec.is_adopted:
            wanted = self.rng.randint(spec.min_members, spec.max_members)
            self.world.replicas = wanted
            master.post(ScaleRequested(wanted))

    def restart(self, _seconds: float) -> None:
        master = self.world.masters.current
        if master is not None:
            master.post(RestartRequested(self.rng.random() < 0.5))
