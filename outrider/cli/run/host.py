"""Hosts a job in this process, shows its events and output on this terminal, and returns its exit code.

The first Ctrl-C stops the job in order: a rank that is saving may finish. The second one stops it at once. SIGTERM and
a closed terminal (SIGHUP) act like the first Ctrl-C. If the master cannot be reached (it was just killed), this process
ends the job without it: leaving the local host ends every process of the job. If the command was started with SIGHUP
ignored (`nohup`), it keeps running after its terminal has closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from outrider.cli import job_dirs
from outrider.cli.bundling import command_line
from outrider.cli.client import Master
from outrider.cli.documents import status_of
from outrider.cli.errors import UserError
from outrider.cli.run import page
from outrider.cli.run.follow import Follower
from outrider.cli.run.log import EventLog, Mode, summary, summary_line
from outrider.cli.run.loss_record import LossRecord
from outrider.cli.run.node_config import node_config
from outrider.cli.run.output_thread import Writer
from outrider.cli.run.progress_line import Progress
from outrider.cli.run.request import Request
from outrider.cli.run.terminal import Screen
from outrider.cli.run.traceback_hold import Holding
from outrider.cli.text import plural, warning
from outrider.master.local.process_specs import OnOutput
from outrider.master.local.server import Node, NodeError
from outrider.wire.ids import MemberId

STREAMS = {"stdout": 1, "stderr": 2}
LOOK_SECONDS = 0.5
HARD_PATIENCE = 3.0
"""Seconds that the master has to stop a job at once, before this process does it without the master."""
NO_THREAD = "can't start new thread"
"""CPython's message for a lack of threads, for which it has no exception class."""


def host(request: Request) -> int:
    """Run the job to its end and return its exit code."""
    screen = Screen()
    mode = Mode(request.verbosity)
    began = time.monotonic()
    try:
        code, is_unsaved = asyncio.run(_hosted(request, screen))
    except NodeError as impossible:
        raise UserError(str(impossible)) from impossible
    except RuntimeError as error:
        if NO_THREAD not in str(error):
            raise
        raise UserError("cannot start another thread; raise `ulimit -u`") from error
    if is_unsaved:
        folder = job_dirs.job_folder(request.name)
        text = f"the job ended with exit code {code}, but {folder} could not be written: `outrider status` is outdated"
        _say(screen, mode, text)
    else:
        _sum_up(request, screen, mode, time.monotonic() - began)
    return code


async def _hosted(request: Request, screen: Screen) -> tuple[int, bool]:
    """The exit code, and whether the end of the job could not be written to its folder."""
    writer = Writer(screen)
    folder = job_dirs.job_folder(request.name)
    loss, mode = LossRecord(folder), Mode(request.verbosity)
    holding = Holding(writer.put)
    shows = writer.put if mode in (Mode.VERBOSE, Mode.JSON) or request.tasks is not None else holding.line
    try:
        async with contextlib.AsyncExitStack() as stack:
            node = await stack.enter_async_context(Node(node_config(request, folder, _shown(request, shows, loss))))
            _link_logs(folder, request.log_dir)
            command_line.note(folder)
            if mode not in (Mode.QUIET, Mode.JSON):
                screen.say(_first_line(request))
                for line, style in zip(request.about_gpus, ("", "yellow"), strict=False):
                    screen.say(f"outrider: {line}", style)
            if request.dashboard:
                stack.enter_context(page.shown(request.name, partial(_say, screen, mode)))
            progress = None if mode in (Mode.QUIET, Mode.JSON) else Progress(lambda: loss.latest)
            follower = Follower(folder, EventLog(screen, mode, holding), screen, progress)
            follower.start()
            looking = asyncio.ensure_future(_look(holding))
            try:
                return await _waited(node, _Ending(Master(folder), partial(_say, screen, mode))), node.is_unsaved
            finally:
                looking.cancel()
                await asyncio.to_thread(follower.close)
                holding.close()
    finally:
        writer.close()
        loss.close()


def _say(screen: Screen, mode: Mode, text: str) -> None:
    """Print a warning of the command itself."""
    if mode is Mode.JSON:
        screen.say(json.dumps(warning(text)))
    else:
        screen.say(f"outrider: {text}", "yellow")


async def _look(holding: Holding) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        holding.look()


def _link_logs(folder: Path, log_dir: Path | None) -> None:
    """Link the folder of `--log-dir` into the job's folder, where `outrider logs` finds it."""
    if log_dir is not None:
        with contextlib.suppress(OSError):
            (folder / "logs").symlink_to(log_dir.absolute())


def _first_line(request: Request) -> str:
    fewest, most = request.members.fewest, request.members.most
    range_ = "" if fewest == most else f"{fewest} to "
    size = f"{range_}{plural(most, 'member')}" if request.tasks is None else request.tasks
    return f"outrider: job {request.name}: {size}; see `outrider status {request.name}`"


def _shown(request: Request, shows: Callable[[int, bytes], None], loss: LossRecord) -> OnOutput:
    def on_output(member: MemberId, stream: str, line: bytes) -> None:
        loss.line(member, line)
        of = b"" if request.tasks is None else f"[{member}]: ".encode()
        shows(STREAMS[stream], of + line)

    return on_output


class _Ending:
    """Stops the job when signals come: in order after the first one, at once after the second."""

    def __init__(self, master: Master, say: Callable[[str], None]) -> None:
        self._master = master
        self._say = say
        self._times = 0
        self.code = 0
        """The exit code of the command if a signal stopped the job and the job itself ended well, as a shell expects
        it."""
        self._requests: set[asyncio.Task[None]] = set()
        self.now: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The exit code, set when the command should no longer wait for the master."""

    def received(self, number: signal.Signals) -> None:
        """React to one more signal."""
        self._times += 1
        self.code = 128 + number
        if self._times == 1:
            self._say(f"{number.name}: stopping the job; repeat to stop it at once")
            self._request(number, hard=False)
        elif self._times == 2:
            self._say(f"{number.name} again: stopping the job at once")
            self._request(number, hard=True)
            asyncio.get_running_loop().call_later(HARD_PATIENCE, self._give_up)
        else:
            self._give_up()

    def _request(self, number: signal.Signals, hard: bool) -> None:
        task = asyncio.ensure_future(self._post({"hard": hard, "reason": f"the command got {number.name}"}))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _post(self, body: dict[str, Any]) -> None:
        for _ in range(10):
            try:
                await asyncio.to_thread(self._master.post, "/v1/stop", body)
                return
            except (UserError, RuntimeError):  # no master at the moment, or no thread to reach it from
                await asyncio.sleep(0.2)
        self._give_up()

    def _give_up(self) -> None:
        if not self.now.done():
            self.now.set_result(self.code)


async def _waited(node: Node, ending: _Ending) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, ending.received, number)
    result = asyncio.ensure_future(node.wait())
    await asyncio.wait({result, ending.now}, return_when=asyncio.FIRST_COMPLETED)
    if not result.done():
        result.cancel()
        return ending.now.result()
    return result.result() or ending.code


def _sum_up(request: Request, screen: Screen, mode: Mode, elapsed: float) -> None:
    try:
        status = status_of(request.name)
        report = _report(request, screen, mode)
        if mode is Mode.JSON:
            return screen.say(summary_line(status, elapsed, report))
        lines = list(summary(status, elapsed, report))
    except UserError as missing:
        lines = [missing.message]
    for line in lines:
        screen.say(f"outrider: {line}" if not line.startswith(" ") else line)


def _report(request: Request, screen: Screen, mode: Mode) -> Path | None:
    """Writes the report beside the logs; None if it could not be written."""
    path = (request.log_dir or job_dirs.job_folder(request.name) / "logs") / "report.html"
    try:
        from outrider.cli.report_files import of_folder, written
        from outrider.report.page import report

        path.parent.mkdir(parents=True, exist_ok=True)
        written(report(of_folder(request.name), time.time()), path)
    except Exception as error:  # the job is over: nothing may change how it ended
        text = str(error) or type(error).__name__
        _say(screen, mode, f"the report {path} could not be written: {text}; try `outrider report {request.name}`")
        return None
    return path
