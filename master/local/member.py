"""One local member: a sidecar process and a trainer container, watched and restarted as a kubelet would.

- The sidecar ends with 0: the member is over, with the trainer's exit code.
- The trainer ends with 0, or told to by its sidecar: so is it, once the sidecar has ended too or had its time to.
- One of them ends otherwise: it is started again in place, the trainer at most 3 times in 60 s; then the member failed.
- Both end at about the same time: the machine was lost. Nothing is restarted, and the member is gone.

Nothing of a member is left when its end is told: its processes are found by the mark that they all carry.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.master.local.output import LinePipe, Log
from outrider.master.local.sandbox.isolation import Sandbox
from outrider.master.local.spawning import Child, exit_code_of
from outrider.runtime.processes import marked, send_signal
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role

TOGETHER = 0.3
"""Seconds within which the ends of sidecar and trainer are one loss."""
HESITATION = 0.03
"""Seconds that a restart waits for the other one's end: a whole member is killed process by process."""
SIDECAR_FOLLOWS = 2.0
"""Seconds that a sidecar has to end after its trainer has ended with 0."""
FINISHING = "finishing"
"""A file in which the sidecar says that the trainer ends by its order, whatever the code is."""
TRAINER_RESTARTS, RESTART_WINDOW = 3, 60.0
SIDECAR_PAUSES = (0.1, 0.1, 0.5, 2.0, 5.0)
"""Its restart is not urgent: the training goes on without it."""
PROMPT_SECONDS = 0.2
"""After which a prompt is shown, where a rank has the standard input."""
POLL = 0.01
SWEEP_LOGGED_AFTER = 10.0

log = logging.getLogger("node")


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """How a member's processes are started."""

    member: MemberId
    uid: PodUid
    role: Role
    rank_index: RankIndex | None
    folder: Path
    sidecar_command: tuple[str, ...]
    sidecar_environment: Mapping[str, str]
    trainer_command: tuple[str, ...]
    trainer_environment: Mapping[str, str]
    trainer_folder: Path
    lifeline: int
    on_output: Callable[[MemberId, str, bytes], None] | None
    """Called with member, `stdout` or `stderr`, and a line; None: the trainer writes where the command does."""
    sandbox: Sandbox | None
    """Where it lives, closed with it; None: beside us."""
    stdin: int = subprocess.DEVNULL


class LocalMember:
    """Starts at once, or raises OSError. `on_change` after every change of phase, reason or pids; `on_gone` once, when
    nothing is left."""

    def __init__(
        self,
        plan: MemberPlan,
        on_change: Callable[[LocalMember], None],
        on_gone: Callable[[LocalMember], None],
    ) -> None:
        self.plan = plan
        self.phase = "running"
        self.reason = "Started"
        self.exit_code: int | None = None
        self._on_change = on_change
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._ended_at: dict[str, float] = {}
        self._trainer_code = 0
        self._restarts: dict[str, deque[float]] = {"sidecar": deque(), "trainer": deque()}
        self._ending: asyncio.Task[None] | None = None
        self._pipes: list[LinePipe] = []
        self._sidecar_log = os.open(
            plan.folder / "sidecar.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        self._trainer_log = None if plan.on_output is None else Log(plan.folder / "trainer.log")
        try:
            self._sidecar = self._start_sidecar()
        except OSError:
            self._ending = asyncio.ensure_future(self._close_sandbox())
            self._close_files()
            raise
        self._trainer = self._start_trainer()

    def line(self) -> dict[str, object]:
        """The member as node.sock tells it."""
        return {
            "member": self.plan.member,
            "uid": self.plan.uid,
            "role": self.plan.role,
            "rank_index": self.plan.rank_index,
            "phase": self.phase,
            "reason": self.reason,
            "exit_code": self.exit_code,
            "pids": {
                "sidecar": self._sidecar.pid if self._sidecar.code is None else 0,
                "trainer": self._trainer.pid if self._trainer is not None and self._trainer.code is None else 0,
            },
        }

    @property
    def pids(self) -> set[int]:
        """Of the processes that are waited for here."""
        holder = {self.plan.sandbox.pid} if self.plan.sandbox else set()
        return {self._sidecar.pid, self._trainer.pid if self._trainer is not None else 0, *holder}

    def delete(self, grace: float, reason: str = "Deleted") -> None:
        """Ends it: SIGTERM, SIGKILL of whatever is left after `grace` seconds (0: at once). Once is enough, but a
        shorter grace is taken."""
        if self._ending is not None and self.phase == "terminating" and grace > 0:
            return
        if self._ending is not None:
            self._ending.cancel()
        self._change("terminating", reason)
        self._ending = asyncio.ensure_future(self._delete(grace))

    async def wait_until_ended(self) -> None:
        """Returns when `delete` has done its work."""
        while self.phase != "gone" and self._ending is not None:
            await asyncio.wait([self._ending])

    # -- starting ---------------------------------------------------------------------------------------------------
    def _start_sidecar(self) -> Child:
        plan = self.plan
        return Child(
            plan.sidecar_command,
            plan.sidecar_environment,
            plan.folder,
            self._sidecar_ended,
            parent_death_signal=signal.SIGCONT,  # a frozen one must wake, to see that its lifeline has ended
            out=self._sidecar_log,
            err=self._sidecar_log,
            keep_open=(plan.lifeline,),
            place=plan.sandbox.entrance if plan.sandbox else None,
        )

    def _start_trainer(self) -> Child | None:
        plan = self.plan
        idle = None if plan.stdin == subprocess.DEVNULL else PROMPT_SECONDS
        pipes = [LinePipe(self._line_reader(stream), idle) for stream in ("stdout", "stderr")] if plan.on_output else []
        out, err = (pipe.write_end for pipe in pipes) if pipes else (1, 2)
        try:
            return Child(
                plan.trainer_command,
                plan.trainer_environment,
                plan.trainer_folder,
                self._trainer_ended,
                parent_death_signal=signal.SIGKILL,
                out=out,
                err=err,
                stdin=plan.stdin,
                place=plan.sandbox.trainers_entrance if plan.sandbox else None,
            )
        except OSError as error:
            self._loop.call_soon(self._fail, f"the trainer cannot be started: {error}", 127)
            return None
        finally:
            for pipe in pipes:
                pipe.close_write_end()
            self._pipes += pipes

    def _line_reader(self, stream: str) -> Callable[[bytes], None]:
        def on_line(line: bytes) -> None:
            if self._trainer_log is not None and self.plan.on_output is not None:
                self._trainer_log.write(line)
                self.plan.on_output(self.plan.member, stream, line)

        return on_line

    # -- ends -------------------------------------------------------------------------------------------------------
    def _sidecar_ended(self, child: Child, code: int) -> None:
        self._ended_at["sidecar"] = self._loop.time()
        if self.phase != "running":
            return
        if code == 0:
            self._conclude(self._recent_trainer_code())
        else:
            self._loop.call_later(HESITATION, self._look_whether_lost, child, exit_code_of(code))
            self._loop.call_later(self._sidecar_pause(), self._restart_sidecar, child, exit_code_of(code))

    def _trainer_ended(self, child: Child, code: int) -> None:
        self._ended_at["trainer"], self._trainer_code = self._loop.time(), code
        if self.phase != "running":
            return
        if code == 0 or (self.plan.folder / FINISHING).exists():
            self._loop.call_later(SIDECAR_FOLLOWS, self._conclude, exit_code_of(code))
        else:
            self._loop.call_later(HESITATION, self._restart_trainer, child, exit_code_of(code))

    def _look_whether_lost(self, child: Child, code: int) -> None:
        """The pause before a sidecar's restart must not hold up the news that the whole member is lost."""
        if self.phase == "running" and self._sidecar is child and self._both_ended():
            self._lose(code)

    def _restart_sidecar(self, child: Child, code: int) -> None:
        if self.phase != "running" or self._sidecar is not child:
            return
        if self._both_ended():
            self._lose(code)
            return
        try:
            self._sidecar = self._start_sidecar()
        except OSError as error:
            log.warning("the sidecar of %s cannot be started again yet: %s", self.plan.member, error)
            self._loop.call_later(SIDECAR_PAUSES[-1], self._restart_sidecar, child, code)
            return
        self._change("running", f"RestartedSidecar: the sidecar ended with {code}")

    def _restart_trainer(self, child: Child, code: int) -> None:
        if self.phase != "running" or self._trainer is not child:
            return
        if self._both_ended():
            self._lose(code)
        elif self._restarts_of("trainer") > TRAINER_RESTARTS:
            self._fail(f"the trainer's container ended {TRAINER_RESTARTS + 1} times in {RESTART_WINDOW:g} s", code)
        else:
            self._trainer = self._start_trainer()
            self._change("running", f"RestartedTrainer: the trainer's container ended with {code}")

    def _recent_trainer_code(self) -> int:
        """The exit code with which the trainer just ended; it may have been started again before its sidecar ended."""
        if self._loop.time() - self._ended_at.get("trainer", 0.0) > SIDECAR_FOLLOWS:
            return 0
        return exit_code_of(self._trainer_code)

    def _both_ended(self) -> bool:
        """Whether both have ended, or one shortly after the other and was started again meanwhile. The kernel is
        asked: it may know before we do."""
        if not self._sidecar.is_running and not self._trainer_is_running():
            return True
        ends = self._ended_at.values()
        return len(ends) == 2 and max(ends) - min(ends) <= TOGETHER

    def _trainer_is_running(self) -> bool:
        return self._trainer is not None and self._trainer.is_running

    def _restarts_of(self, what: str) -> int:
        """Counts this one in: how many there were in the window."""
        now, times = self._loop.time(), self._restarts[what]
        times.append(now)
        while times[0] < now - RESTART_WINDOW:
            times.popleft()
        return len(times)

    def _sidecar_pause(self) -> float:
        tried = min(self._restarts_of("sidecar"), len(SIDECAR_PAUSES)) - 1
        return SIDECAR_PAUSES[tried]

    # -- the end ----------------------------------------------------------------------------------------------------
    def _conclude(self, code: int) -> None:
        """The trainer did what it had to: the member has succeeded, or failed with its exit code."""
        if self.phase == "running":
            self._end("succeeded" if code == 0 else "failed", "Completed" if code == 0 else "Error", code)

    def _fail(self, reason: str, code: int) -> None:
        if self.phase == "running":
            self._end("failed", reason, code)

    def _end(self, phase: str, reason: str, code: int) -> None:
        """It stays in the list with its exit code, as a pod does, but none of its processes stays."""
        self.exit_code = code
        self.phase = "ending"
        self._ending = asyncio.ensure_future(self._sweep_and_tell(phase, reason))

    async def _sweep_and_tell(self, phase: str, reason: str) -> None:
        await self._clear()
        self._change(phase, reason)

    def _lose(self, code: int) -> None:
        self.exit_code = code
        self._change("terminating", f"Lost: sidecar and trainer ended at the same time (exit code {code})")
        self._ending = asyncio.ensure_future(self._vanish())

    async def _delete(self, grace: float) -> None:
        if grace > 0:
            for child in (self._sidecar, self._trainer):
                if child is not None:
                    child.send(signal.SIGTERM)
            deadline = self._loop.time() + grace
            while self._loop.time() < deadline and (self._sidecar.code is None or self._trainer_lives()):
                await asyncio.sleep(POLL)
        await self._vanish()

    def _trainer_lives(self) -> bool:
        return self._trainer is not None and self._trainer.code is None

    async def _vanish(self) -> None:
        await self._clear()
        self.phase = "gone"
        self._on_gone(self)

    async def _clear(self) -> None:
        await self._sweep()
        await self._close_sandbox()
        self._close_files()

    async def _close_sandbox(self) -> None:
        if self.plan.sandbox is not None:
            await self.plan.sandbox.close()

    async def _sweep(self) -> None:
        """Kills everything that carries the member's mark until there is nothing, our own two children included."""
        began, warned = self._loop.time(), False
        while True:
            hit = [pid for pid in marked("OUTRIDER_POD_UID", self.plan.uid) if self._kill(pid)]
            for child in (self._sidecar, self._trainer):
                if child is not None:
                    child.send(signal.SIGKILL)
            if not hit and self._sidecar.code is not None and not self._trainer_lives():
                return
            if not warned and self._loop.time() - began > SWEEP_LOGGED_AFTER:
                warned = True
                log.warning("%s cannot be ended yet: %s are still there", self.plan.member, hit)
            await asyncio.sleep(POLL)

    def _kill(self, pid: int) -> bool:
        return send_signal(pid, signal.SIGKILL, "OUTRIDER_POD_UID", self.plan.uid)

    def _close_files(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self._pipes.clear()
        if self._trainer_log is not None:
            self._trainer_log.close()
            self._trainer_log = None
        if self._sidecar_log >= 0:
            os.close(self._sidecar_log)
            self._sidecar_log = -1

    def _change(self, phase: str, reason: str) -> None:
        self.phase, self.reason = phase, reason
        self._on_change(self)


def not_started(plan: MemberPlan, error: OSError) -> dict[str, object]:
    """What node.sock tells of a member that cannot be had: it has failed, and nothing of it is there."""
    return {
        "member": plan.member,
        "uid": plan.uid,
        "role": plan.role,
        "rank_index": plan.rank_index,
        "phase": "failed",
        "reason": f"the member cannot be started: {error}",
        "exit_code": 127,
        "pids": {"sidecar": 0, "trainer": 0},
    }
