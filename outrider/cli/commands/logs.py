"""`outrider logs [JOB]`: shows the output of the ranks in one order, of all generations that are kept."""

from __future__ import annotations

import heapq
import itertools
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from outrider.cli import job_dirs
from outrider.cli.errors import UserError
from outrider.cli.flags import Flag, parsing
from outrider.cli.log_streams import Line, Stream, streams
from outrider.master.core.k8s.values import durations

POLL_SECONDS = 0.2


def _since(value: str) -> float:
    seconds = durations.parsed(value)
    if seconds is None:
        raise ValueError(f"must be {durations.ALLOWED}")
    return seconds


def _generation(value: str) -> int:
    """The number of a generation that is given as `3`, or as `1.3`, which is how Outrider prints it."""
    match = re.fullmatch(r"(?:\d{1,9}\.)?(\d{1,9})", value)
    if not match:
        raise ValueError("must be a generation, such as 3 or 1.3")
    return int(match[1])


@click.command()
@click.argument("job", required=False)
@click.option(
    "--rank", "ranks", cls=Flag, metavar="N", type=click.IntRange(0), multiple=True,
    help="Show only this rank; may be repeated.",
)  # fmt: skip
@click.option("--member", metavar="ID", help="Show only this member, in a job with parameter servers.")
@click.option("--generation", cls=Flag, callback=parsing(_generation), metavar="G",
              help="Show only this generation, as 3 or 1.3.")  # fmt: skip
@click.option("--since", cls=Flag, callback=parsing(_since), metavar="DURATION",
              help="Show only lines of the last DURATION, such as 30s, 10m or 2h.")  # fmt: skip
@click.option("--tail", cls=Flag, type=click.IntRange(0), metavar="N", help="Show only the last N lines.")
@click.option("--follow", "-f", is_flag=True, help="Continue until the job ends.")
def logs(
    job: str | None,
    ranks: tuple[int, ...],
    member: str | None,
    generation: int | None,
    since: float | None,
    tail: int | None,
    follow: bool,
) -> None:
    """Show the output of the ranks of JOB (default: the only running job)."""
    name = job_dirs.the_job(job)
    chosen = Chosen(job_dirs.job_folder(name) / "logs", ranks, member, generation)
    found = chosen.streams()
    if not found and not (follow and job_dirs.is_running(name)):
        raise UserError(chosen.why_none(name))
    earliest = None if since is None else time.time() - since
    if earliest is not None and any(not stream.is_timed for stream in found):
        raise UserError(
            "--since: must not be used for a job with --log-dir, whose files do not record the time of each line"
        )
    seen: dict[Path, Stream] = {stream.path: stream for stream in found}
    lines = in_order(found, is_over=not follow)
    if earliest is not None:
        lines = (line for line in lines if line.time >= earliest)
    printer = Printer(chosen)
    for line in lines if tail is None else deque(lines, tail):
        printer.print(line)
    printer.flush()
    if follow:
        _follow(name, chosen, seen, printer)


class Chosen:
    """The streams that the flags select."""

    def __init__(self, folder: Path, ranks: tuple[int, ...], member: str | None, generation: int | None) -> None:
        self._folder, self._ranks, self._member, self._generation = folder, ranks, member, generation
        self.names_ranks = len(ranks) != 1
        self.names_generations = generation is None

    def streams(self) -> list[Stream]:
        return [stream for stream in streams(self._folder) if self._fits(stream)]

    def _fits(self, stream: Stream) -> bool:
        return (
            (not self._ranks or stream.rank in self._ranks)
            and self._member in (None, stream.member)
            and self._generation in (None, stream.generation)
        )

    def why_none(self, job: str) -> str:
        """Why no stream is selected: no rank has written anything, or the flags match none of them."""
        everything = streams(self._folder)
        if not everything:
            return f"{job}: no rank has written anything yet"
        members = sorted({stream.member for stream in everything if stream.member})
        if self._member is not None:
            there = f"it has {', '.join(members)}" if members else "use --rank N for this job"
            return f"{job} has no output of a member {self._member!r}; {there}"
        generations = sorted({stream.generation for stream in everything})
        ranks = sorted({stream.rank for stream in everything})
        there = f"ranks {ranks[0]} to {ranks[-1]} of generations {generations[0]} to {generations[-1]}"
        return f"{job} has no output that matches these flags; it has {there}"


class Printer:
    """Prints lines with the rank or member that wrote them, and a heading for each new generation."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self._generation: int | None = None
        self._out = sys.stdout.buffer

    def print(self, line: Line) -> None:
        stream = line.stream
        if self._chosen.names_generations and not stream.member and stream.generation != self._generation:
            self._out.write(f"--- generation {stream.generation} ---\n".encode())
            self._generation = stream.generation
        name = stream.member or (str(stream.rank) if self._chosen.names_ranks else "")
        self._out.write((f"[{name}]: ".encode() if name else b"") + line.text + b"\n")

    def flush(self) -> None:
        self._out.flush()


def in_order(found: Iterable[Stream], is_over: bool) -> Iterator[Line]:
    """The complete lines, by generation and within it by time. Members of a PS job have separate generations, so their
    lines are ordered by time alone."""

    def group(stream: Stream) -> int:
        return 0 if stream.member else stream.generation

    for _, each in itertools.groupby(sorted(found, key=group), key=group):
        yield from heapq.merge(*(stream.lines(is_over) for stream in each), key=lambda line: line.time)


def _follow(job: str, chosen: Chosen, seen: dict[Path, Stream], printer: Printer) -> None:
    """Print new lines until the job has ended and all its output is shown."""
    while True:
        is_running = job_dirs.is_running(job)
        there = chosen.streams()
        newest = max((stream.generation for stream in there), default=0)
        for stream in there:
            is_over = not is_running or (stream.generation < newest and not stream.member)
            for line in seen.setdefault(stream.path, stream).lines(is_over):
                printer.print(line)
        printer.flush()
        if not is_running:
            return
        time.sleep(POLL_SECONDS)
