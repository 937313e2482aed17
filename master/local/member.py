"""One local member: a sidecar process and a trainer process, watched and restarted as a kubelet would.

- If the sidecar ends with 0, the member is over, with the trainer's exit code.
- If the trainer ends with 0, or on its sidecar's order, the member is over after 2 s, or when the sidecar ends.
- If one of them ends otherwise, it is restarted in place, the trainer at most 3 times in 60 s; then the member fails.
- If both end at about the same time, the machine counts as lost: nothing is restarted, and the member is gone.

All processes of a member have ended before its end is reported; they are found by the mark that they all carry.
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
"""Seconds within which the ends of sidecar and trainer count as the loss of the machine."""
HESITATION = 0.03
"""Seconds that a restart waits for the other process's end: a whole member is killed process by process."""
SIDECAR_FOLLOWS = 2.0
"""Seconds that a sidecar has to end after its trainer has ended with 0."""
FINISHING = "finishing"
"""A file by which the sidecar shows that the trainer ends on its order, whatever its exit code."""
TRAINER_RESTARTS, RESTART_WINDOW = 3, 60.0
SIDECAR_PAUSES = (0.1, 0.1, 0.5, 2.0, 5.0)
"""Seconds before each restart of the sidecar, which is not urgent, as training continues without it."""
PROMPT_SECONDS = 0.2
"""Seconds after which an unfinished line (a prompt) is shown, if a rank has the standard input."""
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
    """Called with member, `stdout` or `stderr`, and a line; None: the trainer inherits the command's output."""
    sandbox: Sandbox | None
    """Sandbox in which the member runs, closed with it; None: the member runs on the host."""
    stdin: int = subprocess.DEVNULL


class LocalMember:
    """A member whose processes the constructor starts (or raises OSError).

    `on_change` is called after every change of phase, reason or pids, `on_gone` once when all processes have ended.
    """

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
        """The member as reported on node.sock."""
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
        """Pids of the processes for which this process waits."""
        holder = {self.plan.sandbox.pid} if self.plan.sandbox else set()
        return {self._sidecar.pid, self._trainer.pid if self._trainer is not None else 0, *holder}

    def delete(self, grace: float, reason: str = "Deleted") -> None:
        """Ends the member: SIGTERM, then SIGKILL after `grace` seconds (0: at once). A repeated call has an effect only
        with a grace of 0."""
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
            parent_death_signal=signal.SIGCONT,  # a frozen sidecar must resume to notice that its lifeline has ended
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
            self._loop.call_soon(self._fail, f"the trainer could not be started: {error}", 127)
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
        """Reports a lost member without waiting for the pause before its sidecar's restart."""
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
            log.warning("restarting the sidecar of %s failed (retrying): %s", self.plan.member, error)
            self._loop.call_later(SIDECAR_PAUSES[-1], self._restart_sidecar, child, code)
            return
        self._change("running", f"RestartedSidecar: the sidecar ended with exit code {code}")

    def _restart_trainer(self, child: Child, code: int) -> None:
        if self.phase != "running" or self._trainer is not child:
            return
        if self._both_ended():
            self._lose(code)
        elif self._restarts_of("trainer") > TRAINER_RESTARTS:
            self._fail(f"the trainer's container ended {TRAINER_RESTARTS + 1} times in {RESTART_WINDOW:g} s", code)
        else:
            self._trainer = self._start_trainer()
            self._change("running", f"RestartedTrainer: the trainer's container ended with exit code {code}")

    def _recent_trainer_code(self) -> int:
        """The exit code of a trainer that just ended, which may have been restarted before its sidecar ended."""
        if self._loop.time() - self._ended_at.get("trainer", 0.0) > SIDECAR_FOLLOWS:
            return 0
        return exit_code_of(self._trainer_code)

    def _both_ended(self) -> bool:
        """Whether both have ended, or ended shortly after each other and one was restarted meanwhile. The kernel is
        queried, as it may know an end before this process does."""
        if not self._sidecar.is_running and not self._trainer_is_running():
            return True
        ends = self._ended_at.values()
        return len(ends) == 2 and max(ends) - min(ends) <= TOGETHER

    def _trainer_is_running(self) -> bool:
        return self._trainer is not None and self._trainer.is_running

    def _restarts_of(self, what: str) -> int:
        """Counts a restart, and returns the number of restarts in the window."""
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
        """Ends the member as succeeded or failed, by the trainer's exit code."""
        if self.phase == "running":
            self._end("succeeded" if code == 0 else "failed", "Completed" if code == 0 else "Error", code)

    def _fail(self, reason: str, code: int) -> None:
        if self.phase == "running":
            self._end("failed", reason, code)

    def _end(self, phase: str, reason: str, code: int) -> None:
        """Kills the member's processes; it stays in the list with its exit code, as a pod does."""
        self.exit_code = code
        self.phase = "ending"
        self._ending = asyncio.ensure_future(self._sweep_and_report(phase, reason))

    async def _sweep_and_report(self, phase: str, reason: str) -> None:
        await self._clear()
        self._change(phase, reason)

    def _lose(self, code: int) -> None:
        self.exit_code = code
        self._change("terminating", f"sidecar and trainer ended at the same time (exit code {code})")
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
        """Kills all processes with the member's mark, and our own two children, until none is left."""
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
                log.warning("%s has not ended yet: the processes %s survive SIGKILL", self.plan.member, hit)
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
    """The line on node.sock for a member that could not be started: it has failed and has no processes."""
    return {
        "member": plan.member,
        "uid": plan.uid,
        "role": plan.role,
        "rank_index": plan.rank_index,
        "phase": "failed",
        "reason": f"the member could not be started: {error}",
        "exit_code": 127,
        "pids": {"sidecar": 0, "trainer": 0},
    }
