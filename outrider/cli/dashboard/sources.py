"""What the dashboard reads and orders, here of this machine's jobs.

For those of a cluster: `elasticjobs`.

Every method blocks, makes its requests once, and raises UserError if it fails; the server calls them on threads.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from outrider.cli import job_dirs
from outrider.cli.client import Master, running_master
from outrider.cli.commands.logs import in_order
from outrider.cli.commands.restart import CHECK_SECONDS
from outrider.cli.documents import live_status, saved_status
from outrider.cli.errors import Unreachable, UserError
from outrider.cli.log_streams import Stream, streams
from outrider.cli.report_files import of_folder
from outrider.cli.top import sources as top_sources
from outrider.cli.top.sources import Document
from outrider.master.core.text import requested
from outrider.report.job import OVER, Sources

LINES = 200
"""The most lines of output that are shown."""
ORDERS = ("stop", "restart", "scale")


class Source(top_sources.Source, Protocol):
    """Its `status` also has `sizes`: the fewest and the most members to which the job may be scaled; None: no limit."""

    where: str
    """`this machine`, or the namespace and context of a cluster."""

    def sources(self, job: str, status: Document) -> Sources:
        """The documents of a report, with the history up to now if its master can tell it."""
        ...

    def stack(self, job: str, member: str) -> Document:
        """What the ranks of a member do now: `ranks`, and `problem` if they did not answer."""
        ...

    def lines(self, job: str, member: str) -> Document:
        """The last lines that the ranks of a member have written: `lines`, and `problem`."""
        ...

    def may(self, job: str) -> Mapping[str, bool]:
        """Which orders the user may give."""
        ...

    def order(self, job: str, what: str, body: Document) -> str:
        """Gives an order; returns what was answered, as a sentence."""
        ...


class Local(top_sources.Local):
    """The jobs of this machine."""

    where = "this machine"

    def status(self, job: str) -> Document:
        sizes = {"sizes": _sizes(job)}
        try:
            return live_status(job) | sizes
        except Unreachable as away:
            saved = saved_status(job)
            if saved.get("phase") in OVER:  # its command is about to end
                return saved | sizes
            written = (job_dirs.existing(job) / "status.json").stat().st_mtime
            late = f"{away.message}; this is what it saved last. Training continues."
            return saved | sizes | {"late": late, "as_of": written}

    def sources(self, job: str, status: Document) -> Sources:
        found = of_folder(job, status)
        folder = job_dirs.existing(job)
        if not job_dirs.is_running(job):
            return found
        try:
            part = Master(folder).history()
        except UserError:
            return found
        name = f"history-{part.get('term')}.json"
        parts = [(each, document) for each, document in found.parts if each != name]
        return Sources(status, [*parts, (name, part)], found.events, found.problems, self.where)

    def stack(self, job: str, member: str) -> Document:
        master = running_master(job)
        stacks, calls = master.collect("stacks"), master.collect("collectives")
        return ranks_of(member, stacks, calls)

    def lines(self, job: str, member: str) -> Document:
        status = self.status(job)
        ranks = _ranks_of(member, status)
        found = [each for each in streams(job_dirs.existing(job) / "logs") if each.member == member or
                 (not each.member and each.rank in ranks)]  # fmt: skip
        newest = max((each.generation for each in found), default=0)
        shown = deque(in_order([each for each in found if each.generation >= newest - 1], is_over=True), LINES)
        lines = [{"rank": each.stream.rank, "stream": _short(each.stream), "text": each.text.decode(errors="replace")}
                 for each in shown]  # fmt: skip
        return {"lines": lines, "problem": "" if lines else f"{member} has written nothing that is kept."}

    def may(self, job: str) -> Mapping[str, bool]:
        return dict.fromkeys(ORDERS, job_dirs.is_running(job))

    def order(self, job: str, what: str, body: Document) -> str:
        master = running_master(job)
        match what:
            case "stop":
                master.post("/v1/stop", {"hard": False, "reason": "the dashboard"})
                return f"{job} is being stopped."
            case "restart":
                answer = master.post("/v1/restart", {"at_checkpoint": False, "check": True}, CHECK_SECONDS)
                why = f" The script was not checked before: {answer['unchecked']}." if answer.get("unchecked") else ""
                return f"{job} restarts now.{why}"
            case _:
                master.post("/v1/scale", {"replicas": body.get("members")})
                return f"{requested(body['members'], 'member')}."


def _sizes(job: str) -> tuple[int | None, int | None]:
    """The fewest and the most members to which the job may be scaled; None: not known."""
    try:
        spec = json.loads((job_dirs.existing(job) / "spec.json").read_bytes())
        return int(spec["min_members"]), int(spec["max_members"])
    except (OSError, ValueError, TypeError, LookupError):
        return None, None


def ranks_of(member: str, stacks: Document, calls: Document) -> Document:
    """A member's part of the answers of all members."""
    answers = (stacks.get("members") or {}).get(member)
    if answers is None or "error" in answers:
        why = f": {answers['error']}" if answers else ""
        return {"ranks": [], "problem": f"{member} did not answer{why}."}
    last = {row.get("rank"): row.get("collective") for row in _rows_of(calls, member)}
    ranks = [
        {
            "rank": row.get("rank"), "step": row.get("step"), "phase": row.get("phase") or "", "state": "",
            "stack": (str(row.get("stack") or f"no stack: {row.get('error', 'the rank did not answer')}")).splitlines(),
            "collective": _call(last.get(row.get("rank"))),
        }
        for row in _rows_of(stacks, member)
    ]  # fmt: skip
    return {"ranks": ranks, "problem": "" if ranks else f"{member} runs no ranks now."}


def _rows_of(answer: Document, member: str) -> list[Document]:
    body = (answer.get("members") or {}).get(member) or {}
    return [row for row in body.get("ranks") or () if isinstance(row, dict)]


def _call(call: Any) -> str:
    if not isinstance(call, dict):
        return ""
    where = f" at {call['frame']}" if call.get("frame") else ""
    group = call.get("group") or "default"
    return f"{call.get('op')} number {call.get('seq')} of group {group}: {call.get('state')}{where}"


def _ranks_of(member: str, status: Document) -> range:
    """The ranks of a member: members with a rank index have equally many, in the order of rank indexes."""
    members = [each for each in status.get("members") or () if isinstance(each.get("rank_index"), int)]
    index = next((each["rank_index"] for each in members if each.get("id") == member), None)
    indexes = sorted({each["rank_index"] for each in members})
    if index is None:
        return range(0)
    each = max(1, int(status.get("world") or 0) // max(1, len(indexes)))
    first = indexes.index(index) * each
    return range(first, first + each)


def _short(stream: Stream) -> str:
    return "err" if stream.path.stem == "stderr" else "out"
