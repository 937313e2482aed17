"""`outrider top [JOB]`: the state of a job as a view of the whole terminal, which follows the job."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live

from outrider.cli import job_dirs
from outrider.cli.errors import UserError
from outrider.cli.kube.elasticjobs import ElasticJobs
from outrider.cli.tables import console
from outrider.cli.top import keys, screen
from outrider.cli.top.feed import Feed, Seen, asked
from outrider.cli.top.sources import Local, Source
from outrider.cli.top.view import JOB, JOBS, View, pressed

REDRAW_SECONDS = 1.0
"""Seconds between two drawings if nothing changes: the age of the data does."""


@click.command()
@click.argument("job", required=False)
@click.option("--once", is_flag=True, help="Print the view once and end; needs no terminal.")
@click.option("--cluster", is_flag=True, help="Show the ElasticJob JOB of kubectl's cluster, or all in its namespace.")
@click.option("-n", "--namespace", metavar="NS", help="Namespace of the ElasticJob. Default: of kubectl's context.")
def top(job: str | None, once: bool, cluster: bool, namespace: str | None) -> None:
    """Show the state of JOB as it changes. Default: the only running job; if there is not exactly one, all jobs.

    Keys: arrows or j and k choose a member, Enter shows it, o changes the order, s shows stacks, e events, q quits.
    """
    if not once:
        _check_terminal()
    source: Source = ElasticJobs(namespace) if cluster or namespace else Local()
    if job is None and isinstance(source, Local) and len(running := job_dirs.running_jobs()) == 1:
        job = running[0]
    elif job is not None and isinstance(source, Local):
        job = job_dirs.existing(job).name
    view = View(pages=(JOBS if job is None else JOB,), job=job or "")
    seen = asked(source, view, Seen())
    if once:
        _print(seen, view)
    else:
        _follow(source, view, seen)


def _check_terminal() -> None:
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if stream is None or not stream.isatty():
            raise UserError(f"the standard {name} must be a terminal; for a file or a pipe: outrider top --once")
    if Console().is_dumb_terminal:
        raise UserError(f"TERM {os.environ.get('TERM')!r}: must be a terminal with a cursor; else: outrider top --once")


def _print(seen: Seen, view: View) -> None:
    if seen.at is None:
        raise UserError(seen.problem)
    out = console()
    for line in screen.page(seen, view, out.width, None, time.monotonic()):
        out.print(line)


def _follow(source: Source, view: View, seen: Seen) -> None:
    terminal, out = sys.stdin.fileno(), Console(highlight=False)
    with keys.each_key(terminal), _wakeups() as (woken, wake):
        feed = Feed(source, view, seen, wake)
        with Live(console=out, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
            while True:
                width, height = out.size
                seen = feed.seen
                lines = screen.page(seen, view, width, height, time.monotonic())
                live.update(Group(*lines), refresh=True)
                ready, _, _ = select.select((terminal, woken), (), (), REDRAW_SECONDS)
                if woken in ready:
                    os.read(woken, 4096)
                if terminal not in ready:
                    continue
                changed = _after(keys.read(terminal), seen, view, width, height)
                if changed is None:
                    return
                view = changed
                feed.look_at(view)


def _after(given: list[str] | None, seen: Seen, view: View, width: int, height: int) -> View | None:
    """The view after these keys; None to quit, as when the terminal has closed."""
    for key in [] if given is None else given:
        entries = screen.entries(seen, view, width)
        changed = pressed(view, key, entries, screen.rows_of(seen, view, width, height))
        if changed is None:
            return None
        view = changed
    return None if given is None else view


@contextlib.contextmanager
def _wakeups() -> Iterator[tuple[int, Any]]:
    """A descriptor that becomes readable after a change of the terminal's size, and after each call of the function."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def wake(*_: object) -> None:
        with contextlib.suppress(OSError):
            os.write(writing, b"\0")

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    handlers: dict[signal.Signals, Any] = {signal.SIGWINCH: wake, signal.SIGTERM: end, signal.SIGHUP: end}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield reading, wake
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
