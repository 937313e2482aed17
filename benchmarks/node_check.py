"""What the node check costs: thousands of members in the master's core, and a real job of four on this machine.

The large job is played: the real core and the real codec, on a clock of its own, with members that answer at once; some
are bad (their probes die) and some are slow. Counted are rounds, messages and their bytes, and the processor time that
the master's core and codec take for them. It fails if a healthy member is left out, if a bad member is not,
or a member's messages or bytes of a round grow with the job. The real job is `outrider run --network-check`, repeated.
Run: python benchmarks/node_check.py [--members 4096] [--bad 8] [--slow 8] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from measure.report import middle, seconds, spread, table, write

from outrider.master.core.actions import Action, CreatePod, SaveStatus, Send
from outrider.master.core.events import Began, Event, PodSeen, PodsListed, SidecarSaid, StatusSaved
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.job import RUNNING, State
from outrider.master.core.step import step
from outrider.wire.codec import decode_from_sidecar, encode
from outrider.wire.ids import JobName, MemberId, PodUid, Role
from outrider.wire.messages.directions import FromSidecar
from outrider.wire.messages.generation import Ready, Start, Started
from outrider.wire.messages.membership import Hello
from outrider.wire.messages.node_check import Check, Checked, PeerCheck

COMPUTE, NETWORK, TIMES, ROUND = 0.05, 0.01, 5, 1.0
MOST_BYTES, MOST_MESSAGES = 2000, 2.0
"""Of a member in a round: one order and one answer."""
SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
optimizer.param_groups[0]["params"][0].grad = torch.ones(1)
for _ in range(3):
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
"""


@dataclass
class Large:
    """The master's core, with members that carry out its orders."""

    members: int
    bad: set[str]
    slow: set[str]
    state: State = field(default_factory=State)
    now: float = 0.0
    cpu: float = 0.0
    orders: int = 0
    answers: int = 0
    repeats: int = 0
    bytes: int = 0
    most_bytes: int = 0
    started: set[str] = field(default_factory=set)
    _seen: set[int] = field(default_factory=set)
    _ports: int = 10_000
    _later: list[Event] = field(default_factory=list)

    def tell(self, event: Event) -> list[Action]:
        began = time.process_time()
        actions = step(self.state, event, self.now)
        for action in actions:
            if isinstance(action, Send):
                data = encode(action.message)
                self._count(action, len(data))
        self.cpu += time.process_time() - began
        return actions

    def _count(self, action: Send, size: int) -> None:
        if isinstance(action.message, Check):
            self.orders += action.message.order not in self._seen
            self.repeats += action.message.order in self._seen
            self._seen.add(action.message.order)
            self.bytes += size
            self.most_bytes = max(self.most_bytes, size)

    def said(self, member: MemberId, message: FromSidecar) -> list[Action]:
        data = encode(message)
        began = time.process_time()
        decoded = decode_from_sidecar(data)
        self.cpu += time.process_time() - began
        if isinstance(message, Checked):
            self.answers += 1
            self.bytes += len(data)
            self.most_bytes = max(self.most_bytes, len(data))
        return self.tell(SidecarSaid(member, decoded))

    def run(self) -> None:
        spec = JobSpec(JobName("large"), self.members, self.members, self.members, node_check=True,
                       exclude_stragglers=True)  # fmt: skip
        pending = [*self.tell(Began(1, spec, None, 1.7e9)), *self.tell(PodsListed(()))]
        while self.state.stage != RUNNING or len(self.started) < self.members:
            assert pending, f"nothing happens any more: {self.state.stage}, {self.state.message}"
            self.now += ROUND
            pending = [action for one in pending for action in self._do(one)]

    def _do(self, action: Action) -> list[Action]:
        match action:
            case CreatePod(member, role, rank_index):
                uid = PodUid(f"uid-{member}")
                found = self.tell(PodSeen(member, uid, role, rank_index, "running"))
                hello = Hello(JobName("large"), member, uid, Role("worker"), rank_index, "token", address="10.0.0.1")
                return [*found, *self.said(member, hello), *self._ready(member)]
            case Send(member=member, message=Check() as order):
                return [*self.said(member, self._checked(member, order)), *self._ready(member)]
            case Send(member=member, message=Start() as order):
                self.started.add(member)
                return self.said(member, Started(order.order, order.generation, (1,)))
            case SaveStatus(version):
                return self.tell(StatusSaved(version))
        return []

    def _ready(self, member: MemberId) -> list[Action]:
        self._ports += 1
        return self.said(member, Ready(self._ports % 50_000 + 1, 1, "T0", "played", 1))

    def _checked(self, member: MemberId, order: Check) -> Checked:
        if member in self.bad:
            return Checked(order.order, order.round, "died", "its process was killed by SIGKILL", elapsed=0.1)
        others = [*(peer.member for peer in order.peers), *order.awaited]
        peers = tuple(PeerCheck(m, 0.0, "no answer within 4 s") if m in self.bad else PeerCheck(m, NETWORK)
                      for m in others)  # fmt: skip
        taken = COMPUTE * (TIMES if member in self.slow else 1)
        return Checked(order.order, order.round, "ok", "", "torch cpu", taken, taken, 0.5, peers)


def large(members: int, bad: int, slow: int) -> dict[str, Any]:
    """Plays one; the numbers, and what was wrong."""
    names = [f"worker-{(7919 * n) % members}" for n in range(bad + slow)]
    job = Large(members, set(names[:bad]), set(names[bad:]))
    began = time.perf_counter()
    job.run()
    excluded = {fault.member for fault in job.state.faults.noted if fault.kind == "MemberExcluded"}
    per_round = (job.orders + job.answers) / max(job.orders, 1)
    wrong = [f"{name} was not left out" for name in sorted(set(names) - excluded)]
    wrong += [f"{name} was left out and is well" for name in sorted(excluded - set(names))]
    wrong += [f"a message had {job.most_bytes} bytes"] if job.most_bytes > MOST_BYTES else []
    wrong += [f"{per_round:.2f} messages a member and round"] if per_round > MOST_MESSAGES else []
    return {
        "members": members, "bad": bad, "slow": slow, "rounds": job.state.nodecheck.round_number,
        "excluded": len(excluded),
        "orders": job.orders, "answers": job.answers, "orders_repeated": job.repeats, "bytes": job.bytes,
        "bytes_per_member_and_round": round(job.bytes / max(job.orders, 1), 1), "longest_message": job.most_bytes,
        "master_cpu_seconds": round(job.cpu, 3), "wall_seconds": round(time.perf_counter() - began, 3), "wrong": wrong,
    }  # fmt: skip


# -- four members on this machine -----------------------------------------------------------------------------------
def real(members: int) -> dict[str, Any]:
    """One job; the seconds of its rounds, and from the first order of the check to the first generation."""
    with tempfile.TemporaryDirectory(prefix="or-") as home:
        script = Path(home) / "train.py"
        script.write_text(SCRIPT)
        environment = {**os.environ, "OUTRIDER_HOME": home, "OMP_NUM_THREADS": "1"}
        outrider = [sys.executable, "-P", "-E", "-m", "outrider"]
        command = [*outrider, "run", "--job", "check", "--nnodes", str(members), "--network-check", str(script)]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=180)
        folder = Path(home) / "jobs" / "check"
        rounds = json.loads((folder / "status.json").read_text())["node_check"]
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    first = next(each for each in events if each["kind"] == "NodeCheckRound")
    start = next(each for each in events if each["kind"] == "GenerationStarted")
    whole = rounds[0]["elapsed"] + (_moment(start) - _moment(first))
    wrong = [f"round {r['round']}: {r['measured'] - r['ok']} not ok" for r in rounds if r["ok"] != r["measured"]]
    return {"rounds": [each["elapsed"] for each in rounds], "whole": round(whole, 3), "wrong": wrong}


def _moment(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=4096)
    parser.add_argument("--bad", type=int, default=8)
    parser.add_argument("--slow", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3, help="of the real job; 0: none")
    asked = parser.parse_args()
    played = [large(size, min(asked.bad, size // 8), min(asked.slow, size // 8)) for size in (64, asked.members)]
    head = ["members", "rounds", "left out", "orders", "answers", "bytes a member and round", "master's CPU"]
    fields = ("members", "rounds", "excluded", "orders", "answers", "bytes_per_member_and_round")
    rows = [[*(str(each[name]) for name in fields), seconds(each["master_cpu_seconds"])] for each in played]
    print(table(head, rows))
    runs = [real(4) for _ in range(asked.repeats)]
    if runs:
        rounds = [each for run in runs for each in run["rounds"]]
        whole = [run["whole"] for run in runs]
        print(
            f"4 members here: a round {spread(rounds)}; the whole check {spread(whole)}; load {os.getloadavg()[0]:.1f}"
        )
    wrong = [text for each in (*played, *runs) for text in each["wrong"]]
    for text in wrong:
        print(f"WRONG: {text}")
    write("node_check", {"played": played, "real": runs, "median": middle([run["whole"] for run in runs])})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
