"""One question to all worker processes of a member, `stacks` or `collectives`, and their answers as one body.

Asked through the signal handler (stacks) or the thread (collectives) inside each of them, never by ptrace. Its owner's
loop calls `hear` with each datagram and `poll` until the body is complete. A rank that cannot answer in time says so in
its row: one that sits in a system call that takes no signal, or a process that is no Python with our hooks in it.
"""

import time

from . import page, stacks, worker

PATIENCE = 3.0
LARGEST_BODY = 700_000
"""Bytes of all stacks together: as JSON they have to fit into one line of agent.sock."""
PROCESS_STATES = {"T": "stopped", "t": "stopped", "D": "uninterruptible"}
MUTE = "it is no Python with the hooks in it, or has made no process group and no step yet"


class Collection:
    """`ranks` have `pid`, `local_rank` and `rank`; `mute` those whose process nothing is known to answer in."""

    def __init__(self, volume, channel, order, ranks, mute=()):
        self.volume, self.order, self.what = volume, order.get("order"), order.get("what")
        self.until = time.monotonic() + PATIENCE
        self.ranks = {rank.local_rank: rank for rank in ranks}
        self.mute = list(mute)
        self.found, self.dumps = {}, {}
        most = min(262144, LARGEST_BODY // max(1, len(self.ranks)))
        for local_rank, rank in self.ranks.items():
            if self.what == "stacks":
                self.dumps[local_rank] = stacks.Dump(rank.pid, worker.stack_path(volume, local_rank), most=most)
            elif not channel.tell(str(local_rank), {"ask": self.what, "order": self.order}):
                self.found[local_rank] = {}

    def hear(self, message):
        if message.get("answer") == self.order and message.get("local_rank") in self.ranks:
            self.found[message["local_rank"]] = message.get("body") or {}

    def poll(self):
        """The body, once it is complete; None before."""
        for local_rank, dump in self.dumps.items():
            text = dump.poll() if local_rank not in self.found else None
            if text is not None:
                self.found[local_rank] = {"stack": text}
        if len(self.found) < len(self.ranks) and time.monotonic() < self.until:
            return None
        rows = [self._row(rank) for _, rank in sorted(self.ranks.items())]
        return {"ranks": rows + [dict(_known(rank), error=MUTE) for rank in self.mute]}

    def _row(self, rank):
        row = _known(rank)
        reading = page.read(worker.page_path(self.volume, rank.local_rank), rank.pid)
        if reading is not None:
            row.update(step=reading.step, phase=page.PHASES[min(reading.phase, 3)])
        row.update(self.found.get(rank.local_rank, {}))
        return row


def _known(rank):
    known = {"rank": rank.rank, "local_rank": rank.local_rank, "pid": rank.pid}
    process = _process(rank.pid)
    return dict(known, process=process) if process else known


def _process(pid):
    """What keeps a process from answering whatever is asked: `stopped`, or `uninterruptible` in a system call."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return PROCESS_STATES.get(file.read().rpartition(")")[2].split()[0], "")
    except (OSError, IndexError):
        return ""
