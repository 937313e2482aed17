"""The node of a local job, which replaces a cluster's API server and kubelet.

It runs in the command that runs the job. It starts the master, and restarts it when it dies. On the master's request,
over `node.sock`, it creates members as processes and reports what becomes of them (docs/contracts.md §5). It decides
nothing about the training.

No process of a job outlives the command. Only this process holds the write end of the lifeline, so that master and
sidecars notice its end, for whatever reason. The kernel kills trainers with their parent, and the processes that they
started are found by the mark in their environment. Orphans of a dead trainer become children of this process, which
kills them.

    async with Node(config) as node:
        exit_code = await node.wait()
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
from collections import deque

from outrider.master.local.job_files import FolderError, JobFolder
from outrider.master.local.member import LocalMember, not_started
from outrider.master.local.orphans import end_orphans
from outrider.master.local.process_specs import NodeConfig, Plans, housed
from outrider.master.local.sandbox.isolation import Hub
from outrider.master.local.sandbox.namespaces import IsolationError
from outrider.master.local.spawning import Child, exit_code_of
from outrider.master.service import spec_json
from outrider.master.service.exit_codes import ADDRESS_TAKEN, ENDED, WRONG_SETTING
from outrider.runtime.curve_keys import KeyPair, new_key_pair
from outrider.runtime.lifeline import become_subreaper
from outrider.runtime.lines import LineConnection
from outrider.runtime.ports import find_port
from outrider.runtime.processes import sweep
from outrider.runtime.unix import SocketPathTooLong, listening_socket
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role

MASTER_PAUSES = (0.0, 0.2, 1.0, 3.0)
MASTER_RESTARTS, MASTER_WINDOW = 8, 60.0
MASTER_ENDS = 5.0
"""Seconds that the master has to end when the job is over, before it is killed."""
LAST_WORD = 1.0
"""Seconds within which the last message of an ended master arrives."""
REAP_EVERY = 0.5

log = logging.getLogger("node")


class NodeError(Exception):
    """The job cannot be run here (any more); the message, for the user, says why."""


class Node:
    """Runs one job from `__aenter__` to `__aexit__`, after which no process of it is left."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.job_uid = secrets.token_hex(8)
        self._members: dict[MemberId, LocalMember] = {}
        self._connections: set[LineConnection] = set()
        self._master: Child | None = None
        self._master_ends: deque[float] = deque()
        self._closing = False
        self._sent_code: int | None = None
        self.is_unsaved = False
        """Whether the job is over but its folder does not show that, because the disk is full."""
        self._hub: Hub | None = None
        self._endpoint = ""
        self._keys: KeyPair = new_key_pair()
        self._folder = JobFolder(config.folder, config.spec.role)
        self._lifeline_read = self._lifeline_write = -1

    async def __aenter__(self) -> Node:
        self._loop = asyncio.get_running_loop()
        self._result: asyncio.Future[int] = self._loop.create_future()
        try:
            self._folder.prepare(secrets.token_hex(16), self._keys.secret, spec_json.document_of(self.config.spec))
            listening = listening_socket(self.config.folder / "node.sock")
        except (OSError, SocketPathTooLong) as error:
            self._close_descriptors()
            raise NodeError(f"the job's folder {self.config.folder} cannot be used: {error}") from error
        except FolderError as error:
            self._close_descriptors()
            raise NodeError(str(error)) from error
        become_subreaper()
        self._lifeline_read, self._lifeline_write = os.pipe()
        self._plans = Plans(self.config, self.job_uid, self._keys.public, self._lifeline_read)
        self._server = await self._loop.create_unix_server(self._protocol, sock=listening)
        try:
            self._begin()
        except OSError as error:
            self._server.close()
            await self._remove_traces()
            if isinstance(error, IsolationError):
                raise NodeError(str(error)) from error
            raise NodeError(f"no process could be started: {error.strerror} (check ulimit -u and ulimit -n)") from error
        self._reaping = asyncio.ensure_future(self._reap_orphans())
        return self

    def _begin(self) -> None:
        config = self.config
        if config.limits is not None:
            self._hub = Hub(config.spec.name, self.job_uid, config.limits, config.folder / "hosts")
        self._endpoint = self._free_endpoint()
        self._start_master()

    async def wait(self) -> int:
        """The job's exit code, once it is over. Raises NodeError if its master cannot be kept running."""
        return await asyncio.shield(self._result)

    async def __aexit__(self, *_error: object) -> None:
        self._closing = True
        await self._end_master()
        members = list(self._members.values())
        for member in members:
            member.delete(0.0, "the job has ended")
        await asyncio.gather(*(member.wait_until_ended() for member in members))
        self._server.close()
        for connection in list(self._connections):
            connection.close()
        sweep("OUTRIDER_JOB_UID", self.job_uid)
        self._reaping.cancel()
        await self._end_the_last_orphans()
        if self._result.done():
            self._result.exception()  # marks the exception as retrieved, if `wait` was not called
        await self._remove_traces()

    async def _remove_traces(self) -> None:
        if self._hub is not None:
            await self._hub.close()
        for name in ("master.sock", "node.sock"):
            (self.config.folder / name).unlink(missing_ok=True)
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for descriptor in (self._lifeline_write, self._lifeline_read):
            if descriptor >= 0:
                os.close(descriptor)
        self._lifeline_read = self._lifeline_write = -1
        self._folder.close()

    def _free_endpoint(self) -> str:
        return f"tcp://{self._hub.address if self._hub else '127.0.0.1'}:{find_port()}"

    # -- the master -------------------------------------------------------------------------------------------------
    def _start_master(self) -> None:
        self._master = Child(
            self._plans.service("master"),
            self._plans.master_environment(self._endpoint),
            self.config.folder,
            self._master_ended,
            parent_death_signal=signal.SIGCONT,  # a frozen master must resume to notice that its lifeline has ended
            out=self._folder.master_log,
            err=self._folder.master_log,
            keep_open=(self._lifeline_read,),
        )

    def _master_ended(self, child: Child, code: int) -> None:
        if self._closing or self._result.done():
            return
        if code == ENDED:
            self._conclude()
        elif code == WRONG_SETTING or self._too_many_ends():
            self._result.set_exception(
                NodeError(
                    f"the job's master cannot be kept running (exit code {exit_code_of(code)}): {self._last_words()}"
                )
            )
        else:
            if code == ADDRESS_TAKEN and not self._members:
                self._endpoint = self._free_endpoint()
            log.warning("the master ended with exit code %d; restarting it", exit_code_of(code))
            pause = MASTER_PAUSES[min(len(self._master_ends), len(MASTER_PAUSES)) - 1]
            self._loop.call_later(pause, self._restart_master)

    def _restart_master(self) -> None:
        if self._closing or self._result.done():
            return
        try:
            self._start_master()
        except OSError as error:  # out of processes, descriptors or memory just now, which may pass
            if self._too_many_ends():
                self._result.set_exception(NodeError(f"the job's master cannot be restarted: {error}"))
            else:
                log.warning("restarting the master failed (retrying): %s", error)
                self._loop.call_later(MASTER_PAUSES[-1], self._restart_master)

    def _too_many_ends(self) -> bool:
        now = self._loop.time()
        self._master_ends.append(now)
        while self._master_ends[0] < now - MASTER_WINDOW:
            self._master_ends.popleft()
        return len(self._master_ends) > MASTER_RESTARTS

    def _conclude(self, last: bool = False) -> None:
        """Takes the job's exit code from the master's status, or from its last message if the disk was full.

        That message may still be in flight.
        """
        if self._result.done():
            return
        code = self._saved_code()
        self.is_unsaved = code is None
        if code is None:
            code = self._sent_code
        if code is not None:
            self._result.set_result(code)
        elif last:
            self._result.set_exception(NodeError(f"the master ended without a result: {self._last_words()}"))
        else:
            self._loop.call_later(LAST_WORD, self._conclude, True)

    def _saved_code(self) -> int | None:
        try:
            return int(json.loads((self.config.folder / "status.json").read_bytes())["exit_code"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _last_words(self) -> str:
        path = self.config.folder / "master.log"
        lines = path.read_text(errors="replace").splitlines()[-12:] if path.exists() else []
        return "\n".join(lines) or f"{path} is empty"

    async def _end_master(self) -> None:
        """Waits for the master, which ends by itself if the job is over; otherwise kills it, as the rest of the job is
        ended from here."""
        if self._master is None:
            return
        over = self._result.done()
        deadline = self._loop.time() + (MASTER_ENDS if over else 0.0)
        while self._master.code is None:  # not only dying: it has to be waited for
            if self._loop.time() >= deadline:
                self._master.send(signal.SIGKILL)
            await asyncio.sleep(0.005)

    # -- members ----------------------------------------------------------------------------------------------------
    def _create(self, member: MemberId, role: Role, rank_index: RankIndex | None) -> None:
        if member in self._members:
            self._changed(self._members[member])
            return
        plan = self._plans.member(member, PodUid(secrets.token_hex(8)), role, rank_index, self._endpoint)
        try:
            plan.folder.mkdir(mode=0o755, exist_ok=True)
            if self._hub is not None:
                plan = housed(plan, self._hub.sandbox(member))
            created = LocalMember(plan, self._changed, self._gone)
        except OSError as error:  # out of processes, descriptors or disk space
            self._send({"pod": not_started(plan, error)})
            return
        self._members[member] = created
        self._changed(created)

    def _changed(self, member: LocalMember) -> None:
        self._send({"pod": member.line()})

    def _gone(self, member: LocalMember) -> None:
        self._members.pop(member.plan.member, None)
        line = member.line()
        self._send({"gone": {name: line[name] for name in ("member", "uid", "reason", "exit_code")}})

    # -- node.sock --------------------------------------------------------------------------------------------------
    def _protocol(self) -> LineConnection:
        return LineConnection(self._connections.add, self._received, self._left)

    def _left(self, connection: LineConnection, wrong: str) -> None:
        self._connections.discard(connection)
        if wrong:
            log.warning("a connection to node.sock was closed: %s", wrong)

    def _send(self, line: dict[str, object]) -> None:
        for connection in list(self._connections):
            try:
                connection.send(line)
            except ConnectionError:
                self._connections.discard(connection)

    def _received(self, connection: LineConnection, line: dict[str, object]) -> None:
        try:
            self._do(connection, line)
        except (KeyError, TypeError, ValueError) as error:
            connection.close(f"invalid request {line!r:.200}: {error}")

    def _do(self, connection: LineConnection, line: dict[str, object]) -> None:
        match line:
            case {"do": "list"}:
                connection.send({"pods": [self._members[name].line() for name in sorted(self._members)]})
            case {"do": "create", "member": str(member), "role": str(role), "rank_index": int() | None as rank_index}:
                if not _is_name(member):
                    raise ValueError(f"{member!r} is not a member's id")
                if not self._closing:
                    index = None if rank_index is None else RankIndex(rank_index)
                    self._create(MemberId(member), Role(role), index)
            case {"do": "delete", "member": str(member), "uid": str(uid), "grace": int() | float() as grace}:
                self._delete(MemberId(member), PodUid(uid), float(grace))
            case {"do": "ended", "code": int() as code}:
                self._sent_code = code
            case _:
                raise ValueError('supported requests: "list", "create", "delete", "ended"')

    def _delete(self, name: MemberId, uid: PodUid, grace: float) -> None:
        member = self._members.get(name)
        if member is not None and member.plan.uid == uid:
            member.delete(grace)
        else:
            self._send({"gone": {"member": name, "uid": uid, "reason": "no such member exists", "exit_code": None}})

    # -- orphans ----------------------------------------------------------------------------------------------------
    async def _reap_orphans(self) -> None:
        while True:
            await asyncio.sleep(REAP_EVERY)
            end_orphans(self._children())

    async def _end_the_last_orphans(self) -> None:
        deadline = self._loop.time() + MASTER_ENDS
        while end_orphans(self._children()) and self._loop.time() < deadline:
            await asyncio.sleep(0.005)

    def _children(self) -> set[int]:
        """Pids of the children that this process started."""
        own = {pid for member in self._members.values() for pid in member.pids}
        return own | {self._master.pid if self._master else 0, self._hub.pid if self._hub else 0}


def _is_name(member: str) -> bool:
    return member.isascii() and member.replace("-", "").isalnum() and len(member) <= 100
