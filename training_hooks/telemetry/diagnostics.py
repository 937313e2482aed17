"""Asks all worker processes of a member for `stacks` or `collectives`, and combines their answers into one body.

The hooks' thread inside each process answers. If it cannot, stacks come through a signal handler, never by ptrace. The
owner's loop calls `hear` with each datagram and `poll` until the body is complete. A rank that cannot answer in time
gets a row with the reason: it is stopped, or it is not a Python with the hooks loaded.
"""

import time

from ..abi import progress_page, rank_files
from . import activity, stacks

PATIENCE, DUMP_PATIENCE = 3.0, 2.0
"""Seconds for an answer; the last of them are for a stack that the rank's thread has not sent."""
LARGEST_BODY = 700_000
"""Most bytes of all stacks together: as JSON they must fit into one line of agent.sock."""
PROCESS_STATES = {"T": "stopped", "t": "traced", "D": "uninterruptible"}
MUTE = "it is not a Python with the hooks loaded, or has made no process group and no step yet"


class Collection:
    """`ranks` have `pid`, `local_rank` and `rank`; `mute` are those without a known process that answers."""

    def __init__(self, volume, channel, order, ranks, mute=()):
        self.volume, self.order, self.what = volume, order.get("order"), order.get("what")
        self.until = time.monotonic() + PATIENCE
        self.ranks = {rank.local_rank: rank for rank in ranks}
        self.mute = list(mute)
        self.found, self.dumps = {}, {}
        self.most = min(262144, LARGEST_BODY // max(1, len(self.ranks)))
        for local_rank, rank in self.ranks.items():
            is_sent = channel.send(str(local_rank), {"ask": self.what, "order": self.order})
            if is_sent and _process(rank.pid) not in ("stopped", "traced"):  # a stopped process cannot answer
                continue
            if self.what == "stacks":
                self._dump(rank)
            else:
                self.found[local_rank] = {}

    def _dump(self, rank):
        """Dumps the stack of a rank whose thread cannot send it. A stopped rank would take the signal when it
        continues."""
        if _process(rank.pid):
            self.found[rank.local_rank] = {"stack": ""}
            return
        path = rank_files.stack_path(self.volume, rank.local_rank)
        self.dumps[rank.local_rank] = stacks.Dump(rank.pid, path, DUMP_PATIENCE, self.most)

    def hear(self, message):
        if message.get("answer") == self.order and message.get("local_rank") in self.ranks:
            self.found[message["local_rank"]] = message.get("body") or {}

    def poll(self):
        """The body once it is complete, or None before."""
        if self.what == "stacks" and time.monotonic() >= self.until - DUMP_PATIENCE:
            for local_rank, rank in self.ranks.items():
                if local_rank not in self.found and local_rank not in self.dumps:
                    self._dump(rank)
        for local_rank, dump in self.dumps.items():
            text = dump.poll() if local_rank not in self.found else None
            if text is not None:
                self.found[local_rank] = {"stack": text}
        if len(self.found) < len(self.ranks) and time.monotonic() < self.until:
            return None
        used = self._used() if self.what == "collectives" else {}
        rows = [self._row(rank) for _, rank in sorted(self.ranks.items())]
        rows += [dict(_known(rank), error=MUTE) for rank in self.mute]
        return {"ranks": [dict(row, used=used[row["pid"]]) if row["pid"] in used else row for row in rows]}

    def _used(self):
        pids = [rank.pid for rank in list(self.ranks.values()) + self.mute]
        stores = {self.ranks[local_rank].pid: body.pop("store", None) for local_rank, body in self.found.items()}
        try:
            return activity.used(pids, stores)
        except Exception:  # /proc has another format: the use is then unknown
            return {}

    def _row(self, rank):
        row = _known(rank)
        reading = progress_page.read(rank_files.page_path(self.volume, rank.local_rank), rank.pid)
        if reading is not None:
            row.update(step=reading.step, phase=reading.name)
        row.update(self.found.get(rank.local_rank, {}))
        return row


def _known(rank):
    known = {"rank": rank.rank, "local_rank": rank.local_rank, "pid": rank.pid}
    process = _process(rank.pid)
    return dict(known, process=process) if process else known


def _process(pid):
    """Why a process cannot answer: `stopped`, `traced` (stopped by a debugger), or `uninterruptible` in a system
    call."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            found = PROCESS_STATES.get(file.read().rpartition(")")[2].split()[0], "")
        return "traced" if found == "stopped" and _is_traced(pid) else found
    except (OSError, IndexError):
        return ""


def _is_traced(pid):
    with open("/proc/%d/status" % pid) as file:
        return any(line.startswith("TracerPid:") and int(line[10:]) for line in file)
