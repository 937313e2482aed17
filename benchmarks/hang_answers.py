"""Measures what a hang costs the master's core: thousands of ranks report where they are, and one is the culprit.

It uses the real core and codec with a simulated clock and one rank per member. Every rank is in three process groups
(all ranks, one of eight, one of every eighth) and waits in the first, except the culprit. It prints the CPU time,
without Python's garbage collection, of all answers and of the longest one, of the step with the last answer, which
decides and stops the generation, and of a step that stops it after a crash. It fails if another rank is named, or if
the decision takes longer than the limit.
Run: python benchmarks/hang_answers.py [--members 10000]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from measure.report import table, write

from outrider.master.core.actions import Action, Announce, CreatePod, SaveStatus, Send
from outrider.master.core.events import Began, Event, PodSeen, PodsListed, SidecarSaid, StatusSaved, Woke
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.job import State
from outrider.master.core.step import next_deadline, step
from outrider.wire.codec import decode_from_sidecar, encode
from outrider.wire.ids import JobName, MemberId, PodUid, Role
from outrider.wire.messages.diagnostics import Answer, Ask
from outrider.wire.messages.directions import FromSidecar
from outrider.wire.messages.generation import Exited, Ready, Start, Started, Stepped, Stop, WorkerExit
from outrider.wire.messages.membership import Hello

NEVER = 1e9
LIMIT = 0.1
"""Seconds of processor time for the decision: the last step without the stop, which any fault needs."""
GROUP, GUILTY_STEP = 8, 13
LIBRARY = "/opt/venv/lib/python3.12/site-packages/torch"
WAITING = [f'  File "{LIBRARY}/{file}.py", line {line} in {name}' for file, line, name in [
    ("distributed/distributed_c10d", 2810, "all_reduce"), ("distributed/c10d_logger", 81, "wrapper"),
    ("nn/parallel/distributed", 1661, "forward"), ("nn/modules/module", 1750, "_call_impl")]]  # fmt: skip
SCRIPTS = [f'  File "/data/train/model.py", line {number} in layer_{number}' for number in range(8)]


def calls(rank: int, members: int, is_guilty: bool) -> list[dict[str, object]]:
    about = {
        "op": "nccl:all_reduce",
        "sizes": [[4096, 4096]],
        "dtypes": ["Float"],
        "frame": "/data/train/step.py:33 run",
    }
    row, column = rank // GROUP, rank % GROUP
    over = {**about, "state": "completed", "age": 901.0}
    return [
        {**about, "id": "0", "group": "default_pg", "seq": GUILTY_STEP, "state": "completed", "age": 901.0}
        if is_guilty
        else {**about, "id": "0", "group": "default_pg", "seq": GUILTY_STEP + 1, "state": "scheduled", "age": 900.0},
        {**over, "id": f"t{row}", "group": "tensor", "seq": 40, "ranks": list(range(row * GROUP, row * GROUP + GROUP))},
        {**over, "id": f"d{column}", "group": "data", "seq": 7, "ranks": list(range(column, members, GROUP))},
    ]  # fmt: skip


def body(rank: int, members: int, what: str, is_guilty: bool) -> str:
    row: dict[str, object] = {"rank": rank, "local_rank": 0, "pid": 100, "step": 7, "phase": "step"}
    if what == "stacks":
        lines = SCRIPTS[::-1] if is_guilty else [*WAITING, *SCRIPTS]
        row["stack"] = "\n".join(["Thread 0x7f (most recent call first):", *lines])
    else:
        groups = calls(rank, members, is_guilty)
        row |= {"collective": groups[0], "groups": groups}
    return json.dumps({"ranks": [row]})


class Collector:
    """What Python's own collection of garbage takes: a pass over the whole heap, which comes when it comes."""

    def __init__(self) -> None:
        self.seconds = self._began = 0.0
        gc.callbacks.append(self._called)

    def _called(self, phase: str, _about: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.process_time()
        else:
            self.seconds += time.process_time() - self._began


COLLECTOR = Collector()


@dataclass
class Job:
    """The master's core, with members that carry out its orders."""

    members: int
    state: State = field(default_factory=State)
    now: float = 0.0
    took: float = 0.0
    """Processor seconds of the newest step, the collector's aside."""
    answers: list[float] = field(default_factory=list)
    decoding: float = 0.0
    blamed: list[str] = field(default_factory=list)
    stops: int = 0
    _ports: int = 10_000

    def tell(self, event: Event) -> list[Action]:
        began = time.process_time() - COLLECTOR.seconds
        actions = step(self.state, event, self.now)
        self.took = time.process_time() - COLLECTOR.seconds - began
        self.blamed += [
            str(each.member) for each in actions if isinstance(each, Announce) and each.kind == "HangDetected"
        ]
        self.stops += sum(isinstance(each, Send) and isinstance(each.message, Stop) for each in actions)
        return actions

    def said(self, member: MemberId, message: FromSidecar) -> list[Action]:
        data = encode(message)
        began = time.process_time()
        decoded = decode_from_sidecar(data)
        self.decoding += time.process_time() - began
        return self.tell(SidecarSaid(member, decoded))

    def start(self) -> None:
        spec = JobSpec(JobName("large"), self.members, self.members, self.members, silent_after=NEVER)
        pending = [*self.tell(Began(1, spec, None, 1.7e9)), *self.tell(PodsListed(()))]
        while pending:
            self.now += 0.1
            pending = [action for one in pending for action in self._do(one)]
        world = self.state.world
        assert world is not None, self.state.message
        assert len(world.started) == self.members
        for number in (1, 2, 3):
            self.now += 1.0
            self.said(MemberId("worker-0"), Stepped(world.generation, number, 0.0))

    def _do(self, action: Action) -> list[Action]:
        match action:
            case CreatePod(member, role, rank_index):
                uid, self._ports = PodUid(f"uid-{member}"), self._ports + 1
                found = self.tell(PodSeen(member, uid, role, rank_index, "running"))
                hello = Hello(JobName("large"), member, uid, Role("worker"), rank_index, "token", address="10.0.0.1")
                ready = Ready(self._ports % 50_000 + 1, 1, "T0", "played", 1)
                return [*found, *self.said(member, hello), *self.said(member, ready)]
            case Send(member=member, message=Start() as order):
                return self.said(member, Started(order.order, order.generation, (1,)))
            case SaveStatus(version):
                return self.tell(StatusSaved(version))
        return []

    def hang(self, guilty: int) -> None:
        """Looks at the ranks until one has shown it beyond doubt. Every rank answers each of them, in the order of the
        questions; what is measured is the look that decides."""
        while self.stops < self.members:
            self.now = max(self.now, next_deadline(self.state) or 0.0)
            asked = [(each.member, each.message) for each in self.tell(Woke())
                     if isinstance(each, Send) and isinstance(each.message, Ask)]  # fmt: skip
            if not asked:
                continue
            self.now, self.decoding, self.answers = self.now + 1.0, 0.0, []
            for member, ask in asked:
                rank = int(member.partition("-")[2])
                text = body(rank, self.members, ask.what, rank == guilty)
                self.said(member, Answer(ask.order, text))
                self.answers.append(self.took)

    def crash(self) -> float:
        """The processor seconds of the step that stops the world for a rank that has ended."""
        self.said(MemberId("worker-0"), Exited(self.state.generation, (WorkerExit(0, 1, 1),), 0))
        assert self.stops == self.members
        return self.took


def large(members: int) -> dict[str, Any]:
    job, other = Job(members), Job(members)
    for each in (job, other):
        each.start()
    guilty = members // 2 + 1
    job.hang(guilty)
    *answers, last = job.answers
    wrong = [f"{job.blamed} is blamed, and not worker-{guilty}"] if job.blamed != [f"worker-{guilty}"] else []
    stop = other.crash()
    wrong += [f"the decision took {last - stop:.3f} s"] if last - stop > LIMIT else []
    times = {"answers": sum(answers), "longest": max(answers), "last": last, "stop": stop, "decoding": job.decoding}
    return {"members": members, **times, "wrong": wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=10_000)
    asked = parser.parse_args()
    runs = [large(members) for members in (asked.members // 10, asked.members)]
    head = ["members", "all answers", "the longest", "the last, which decides and stops", "a stop alone", "decoding"]
    names = ("answers", "longest", "last", "stop", "decoding")
    print(table(head, [[str(run["members"]), *(f"{1e3 * run[name]:.1f} ms" for name in names)] for run in runs]))
    print(f"processor time, load {os.getloadavg()[0]:.1f}; written to {write('hang_answers', {'runs': runs})}")
    wrong = [f"{run['members']} members: {each}" for run in runs for each in run["wrong"]]
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
