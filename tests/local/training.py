"""A real training run of `outrider run`: a small DDP script, hurt from the outside, judged by what its ranks wrote.

Each rank appends one JSON line a step to a file of its own process. What a world did is read from these lines alone, so
that no claim of ours about the training is believed without the training's own word.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from outrider.cli.client import Master
from outrider.cli.errors import UserError
from outrider.runtime.processes import is_alive, marked
from tests.lines import whole_lines

DEADLINE = 240.0
"""Seconds for anything: no test here is about durations, and the machine may be busy: two members that import torch
beside thirty other processes have taken a minute and a half."""
SAVE_EVERY = 10
Found = TypeVar("Found")

SCRIPT = '''
import json, os, sys, time
from collections import OrderedDict
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
FOLDER, EVERY, VERSION = Path(sys.argv[1]), 10, 1
MEMBER = Path(os.environ["OUTRIDER_DIR"]).name


class Slow:
    """Its pickling takes until the file `slow` is gone."""

    def __reduce__(self):
        (FOLDER / "saving").write_text(str(os.getpid()))
        while (FOLDER / "slow").exists():
            time.sleep(0.005)
        return (OrderedDict, ())


def obey(rank):
    """What a test wants this rank to do wrong."""
    order = FOLDER / f"order-{rank}"
    if order.exists():
        text = order.read_text()
        order.unlink()
        exec(text)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 2)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loaded, path = 0, FOLDER / "model.pt"
    if path.exists():
        saved = torch.load(path)
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loaded = saved["step"]
    about = {"rank": rank, "world": world, "pid": os.getpid(), "loaded": loaded, "version": VERSION,
             "restart": int(os.environ["TORCHELASTIC_RESTART_COUNT"]), "member": MEMBER}
    trace = (FOLDER / f"trace-{MEMBER}-{os.getpid()}.jsonl").open("a", buffering=1)
    step = loaded
    while True:
        step += 1
        generator = torch.Generator().manual_seed(step)
        optimizer.zero_grad()
        x, y = torch.randn(4, 8, generator=generator), torch.randn(4, 2, generator=generator)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        trace.write(json.dumps({"step": step, "loss": loss.item(), "time": time.time(), **about}) + "\\n")
        if rank == 0 and step % EVERY == 0:
            extra = [Slow()] if (FOLDER / "slow").exists() else []
            torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "x": extra}, path)
            trace.write(json.dumps({"saved": step}) + "\\n")
        obey(rank)
        ending = torch.tensor([float((FOLDER / "end").exists())])
        dist.all_reduce(ending)
        if ending.item():
            break
    del model  # before the group: freed after it, DDP can wait forever for gloo's threads (torch 2.13)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
'''


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a rank's trace."""

    step: int
    loss: float
    time: float
    rank: int
    world: int
    pid: int
    loaded: int
    version: int
    restart: int
    member: str


World = dict[int, list[Step]]
"""The steps of one generation, in order, by rank."""


def until(claim: Callable[[], Found | None], what: object = "", seconds: float = DEADLINE) -> Found:
    """What the claim gives, once it gives something true; asks again until the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = claim()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds:g} s: {what() if callable(what) else what}")


def status_of(job_folder: Path) -> dict[str, Any]:
    """As the job's master says it; while there is none, as it was written last; empty if it never was."""
    try:
        return Master(job_folder).status()
    except UserError:
        path = job_folder / "status.json"
        document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return document


class Traces:
    """What the ranks of one job wrote into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.most_lost = 2 * SAVE_EVERY
        """Steps that a new world may lie behind the one before."""
        self.saved: list[int] = []
        self._read: dict[str, int] = {}
        self._steps: list[Step] = []
        self._by_restart: dict[int, World] = {}

    def assert_goes_on(self) -> None:
        """Fails where waiting any longer is pointless."""

    def check_processes(self, old: set[int], new: set[int]) -> None:
        """Of a new world and those before it."""

    def story(self) -> str:
        return ""

    # -- what was done --------------------------------------------------------------------------------------------
    def steps(self) -> list[Step]:
        """In the order in which they were read. Files that have not grown are not opened: it is asked all the time."""
        with os.scandir(self.folder) as entries:
            traces = [entry for entry in entries if entry.name.startswith("trace-")]
        for path in sorted(each.path for each in traces if each.stat().st_size > self._read.get(each.path, 0)):
            for line in whole_lines(Path(path), self._read.get(path, 0)):
                self._read[path] = self._read.get(path, 0) + len(line)
                self._keep(json.loads(line))
        return self._steps

    def _keep(self, line: dict[str, Any]) -> None:
        if "saved" in line:
            self.saved.append(line["saved"])
            return
        step = Step(**line)
        self._steps.append(step)
        self._by_restart.setdefault(step.restart, {}).setdefault(step.rank, []).append(step)

    def worlds(self) -> dict[int, World]:
        """Every generation of which every rank has made a step, by its restart count."""
        self.steps()
        return {
            restart: {rank: list(world[rank]) for rank in sorted(world)}
            for restart, world in self._by_restart.items()
            if sorted(world) == list(range(next(iter(world.values()))[0].world))
        }

    def now(self) -> tuple[int, World]:
        """The newest whole world."""
        worlds = self.worlds()
        assert worlds, self.story()
        newest = max(worlds)
        return newest, worlds[newest]

    def training(self, size: int | None, after: int = -1, more: int = 3) -> tuple[int, World]:
        """Waits for a world of this size (None: of any), with more restarts than `after`, in which every rank has made
        some steps, and checks that it goes on where the last checkpoint was. Its restart count and itself. One that
        came after `after` and has made way for the next already, however short it was, is one too."""

        def found() -> tuple[int, World] | None:
            self.assert_goes_on()
            worlds = self.worlds()
            newest = max(worlds, default=-1)
            past = [restart for restart in sorted(worlds) if -1 < after < restart < newest]
            for restart in [newest, *past] if newest > after else []:
                steps = 1 if restart in past else more
                if size in (None, len(worlds[restart])) and min(map(len, worlds[restart].values())) >= steps:
                    return restart, worlds[restart]
            return None

        restart, world = until(found, lambda: f"{size} ranks training after restart {after}: {self.story()}")
        self.check(restart, world)
        return restart, world

    def check(self, restart: int, world: World) -> None:
        """The laws of every new world."""
        firsts = [steps[0] for steps in world.values()]
        assert len({first.loaded for first in firsts}) == 1, firsts
        assert all(first.step == first.loaded + 1 for first in firsts), firsts
        assert len({(first.member, first.pid) for first in firsts}) == len(world)
        before = [step for step in self.steps() if step.restart < restart]
        self.check_processes({step.pid for step in before}, {first.pid for first in firsts})
        if before:
            reached = max(step.step for step in before if step.rank == 0)
            whole = {step for step in (0, *self.saved) if step <= reached}
            assert firsts[0].loaded >= max(whole) or firsts[0].loaded in whole
            assert firsts[0].loaded > reached - self.most_lost, "more was lost than the last save"
            self._check_losses(before, world)

    def _check_losses(self, before: list[Step], world: World) -> None:
        """A repeated step repeats its loss: the model is the one that was saved. (All ranks see the same batch.)"""
        seen = {step.step: step.loss for step in before if step.version == world[0][0].version}
        for step in world[0]:
            if step.step in seen:
                assert abs(seen[step.step] - step.loss) < 1e-4, (seen[step.step], step)

    # -- what a test wants ----------------------------------------------------------------------------------------
    def order(self, rank: int, statement: str) -> None:
        """Has a rank execute a statement after its current step."""
        temporary = self.folder / f".order-{rank}"
        temporary.write_text(statement)
        temporary.rename(self.folder / f"order-{rank}")


class Training(Traces):
    """One job from its command to its end."""

    def __init__(
        self, folder: Path, home: Path, *flags: str, job: str = "train", script: str = SCRIPT, arguments: str = ""
    ) -> None:
        super().__init__(folder)
        self.job = job
        self.job_folder = home / "jobs" / job
        self.script = folder / "train.py"
        self.script.write_text(script)
        self.environment = {**os.environ, "OUTRIDER_HOME": str(home), "OMP_NUM_THREADS": "1"}
        self.allowed_old: set[int] = set()
        """Processes of old generations that may be there: frozen ones."""
        self._log = (folder / "out.log").open("ab")
        self.process = subprocess.Popen(
            [*self.cli("run"), "--job", job, "--silent-after", "10", *flags, str(self.script), str(folder),
             *arguments.split()],
            cwd=folder, env=self.environment, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    @staticmethod
    def cli(*arguments: str) -> list[str]:
        return [sys.executable, "-P", "-E", "-m", "outrider", *arguments]

    def outrider(self, *arguments: str) -> str:
        """A command as a user gives it, which must succeed; what it printed."""
        done = subprocess.run(
            self.cli(*arguments), env=self.environment, capture_output=True, text=True, timeout=DEADLINE
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    # -- what is claimed ------------------------------------------------------------------------------------------
    def status(self) -> dict[str, Any]:
        return status_of(self.job_folder)

    def member(self, name: str) -> dict[str, Any]:
        return next((each for each in self.status()["members"] if each["id"] == name), {})

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        parsed = map(json.loads, whole_lines(self.job_folder / "events.jsonl"))
        return [each for each in parsed if each["seq"] > after]

    def mark(self) -> int:
        """Where the events stand now."""
        return max((each["seq"] for each in self.events()), default=0)

    def event(self, kind: str, after: int, *words: str) -> dict[str, Any]:
        """Waits for an event of this kind after the mark with all these words in its reason."""

        def found() -> dict[str, Any] | None:
            fitting = (e for e in self.events(after) if e["kind"] == kind and all(w in e["reason"] for w in words))
            return next(fitting, None)

        return until(found, lambda: f"{kind} {words} after {self.told(after)}")

    def told(self, after: int) -> str:
        """The events after the mark, as text; the many saves left out."""
        told = (event for event in self.events(after) if event["kind"] != "CheckpointSaved")
        return "\n".join(f"{e['seq']} {e['kind']} {e['generation']}: {e['reason']}" for e in told)

    def assert_goes_on(self) -> None:
        assert self.process.poll() is None, f"the job ended: {self.log()}"

    def check_processes(self, old: set[int], new: set[int]) -> None:
        old -= self.allowed_old
        assert not old & new
        assert not [pid for pid in old if is_alive(pid)], f"processes of an old generation live\n{self.story()}"

    def story(self) -> str:
        return f"{self.told(0)[-6000:]}\n{self.log()}"

    # -- the parts ------------------------------------------------------------------------------------------------
    def master(self) -> int:
        return Master(self.job_folder).pid()

    def sidecar(self, member: str) -> int:
        return int(until(lambda: self.member(member).get("pids", {}).get("sidecar"), f"the sidecar of {member}"))

    def template(self, member: str) -> int:
        return int(until(lambda: self.member(member).get("pids", {}).get("trainer"), f"the trainer of {member}"))

    def tree(self, member: str) -> list[int]:
        """Every process of a member."""
        return marked("OUTRIDER_DIR", str(self.job_folder / "members" / member))

    def signal_tree(self, member: str, number: signal.Signals) -> set[int]:
        """Reaches every process of the member, also those that are forked meanwhile.

        All of them stand still before one gets the signal: on a busy machine the sidecar of a rank that ended first
        could start the next generation in between. The local host stands still too: it sees all ends at once.
        """
        reached: set[int] = set()
        self.process.send_signal(signal.SIGSTOP)
        try:
            while fresh := set(self.tree(member)) - reached:
                _signal_all(fresh, signal.SIGSTOP)
                reached |= fresh
            _signal_all(reached, number)
        finally:
            self.process.send_signal(signal.SIGCONT)
        return reached

    # -- the end --------------------------------------------------------------------------------------------------
    def end_well(self) -> None:
        """The script comes to its end by itself; nothing is left."""
        (self.folder / "end").touch()
        assert self.process.wait(DEADLINE) == 0, self.log()
        assert self.left() == []

    def left(self) -> list[int]:
        """Processes of this job that live, the command aside."""
        members = self.job_folder / "members"
        names = [path.name for path in members.iterdir()] if members.exists() else []
        found = {pid for name in names for pid in self.tree(name)}
        return sorted(found | set(marked("OUTRIDER_JOB_DIR", str(self.job_folder))))

    def log(self) -> str:
        return (self.folder / "out.log").read_text(errors="replace")[-6000:]

    def close(self) -> None:
        """Whatever happened, nothing stays."""
        self._log.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)
        until(lambda: not self.left(), lambda: f"{self.left()} to end")


@contextlib.contextmanager
def jobs() -> Iterator[tuple[Path, list[Training]]]:
    """A home, and the jobs that a test begins in it: nothing of them stays, the newest of one name first."""
    home, started = Path(tempfile.mkdtemp(prefix="or-")), list[Training]()
    try:
        yield home, started
    finally:
        for job in reversed(started):
            job.close()
        shutil.rmtree(home)


@contextlib.contextmanager
def one_job(folder: Path, *flags: str, kind: type[Training] = Training, **others: Any) -> Iterator[Training]:
    """From its command to its end, with a home of its own."""
    with jobs() as (home, started):
        started.append(kind(folder, home, *flags, **others))
        yield started[0]


def pids(world: World) -> list[int]:
    """By rank."""
    return [steps[0].pid for steps in world.values()]


def members(world: World) -> list[str]:
    """By rank."""
    return [steps[0].member for steps in world.values()]


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    os.kill(pid, number)


def _signal_all(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
