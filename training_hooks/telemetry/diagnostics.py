"""One question to all worker processes of a member, `stacks` or `collectives`, and their answers as one body.

Asked through the hooks' thread inside each of them, or else, for stacks, through a signal handler, never by ptrace.
Its owner's loop calls `hear` with each datagram and `poll` until the body is complete. A rank that cannot answer in
time says so in its row: one that is stopped, or a process that is no Python with our hooks in it.
"""

import time

from ..abi import progress_page, rank_files
from . import activity, stacks

PATIENCE, DUMP_PATIENCE = 3.0, 2.0
"""Seconds for an answer, the last of them for a stack that the rank's thread has not said."""
LARGEST_BODY = 700_000
"""Bytes of all stacks together: as JSON they have to fit into one line of agent.sock."""
PROCESS_STATES = {"T": "stopped", "t": "traced", "D": "uninterruptible"}
MUTE = "it is no Python with the hooks in it, or has made no process group and no step yet"


class Collection:
    """`ranks` have `pid`, `local_rank` and `rank`; `mute` those whose process nothing is known to answer in."""

    def __init__(self, volume, channel, order, ranks, mute=()):
        self.volume, self.order, self.what = volume, order.get("order"), order.get("what")
        self.until = time.monotonic() + PATIENCE
        self.ranks = {rank.local_rank: rank for rank in ranks}
        self.mute = list(mute)
        self.found, self.dumps = {}, {}
        self.most = min(262144, LARGEST_BODY // max(1, len(self.ranks)))
        for local_rank, rank in self.ranks.items():
            is_asked = channel.send(str(local_rank), {"ask": self.what, "order": self.order})
            if is_asked and _process(rank.pid) not in ("stopped", "traced"):  # nobody waits for one that cannot answer
                continue
            if self.what == "stacks":
                self._dump(rank)
            else:
                self.found[local_rank] = {}

    def _dump(self, rank):
        """Its thread cannot say it. One that is stopped would take the signal when it runs again, unasked."""
        if _process(rank.pid):
            self.found[rank.local_rank] = {"stack": ""}
            return
        path = rank_files.stack_path(self.volume, rank.local_rank)
        self.dumps[rank.local_rank] = stacks.Dump(rank.pid, path, DUMP_PATIENCE, self.most)

    def hear(self, message):
        if message.get("answer") == self.order and message.get("local_rank") in self.ranks:
            self.found[message["local_rank"]] = message.get("body") or {}

    def poll(self):
        """The body, once it is complete; None before."""
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
        except Exception:  # of a /proc that reads otherwise: then nothing is known
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
    """What keeps a process from answering whatever is asked: `stopped`, `traced` (stopped by a debugger), or
    `uninterruptible` in a system call."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            found = PROCESS_STATES.get(file.read().rpartition(")")[2].split()[0], "")
        return "traced" if found == "stopped" and _is_traced(pid) else found
    except (OSError, IndexError):
        return ""


def _is_traced(pid):
    with open("/proc/%d/status" % pid) as file:
        return any(line.startswith("TracerPid:") and int(line[10:]) for line in file)
