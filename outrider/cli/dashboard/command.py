"""`outrider dashboard [JOB]`: shows jobs as a page in the browser, live, to its user alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import click

from outrider.cli import job_dirs
from outrider.cli.dashboard.sources import Local, Source
from outrider.cli.errors import UserError
from outrider.cli.flags import Flag
from outrider.runtime.lifeline import watch_lifeline


@click.command()
@click.argument("job", required=False)
@click.option("--cluster", is_flag=True, help="Show the ElasticJob JOB of kubectl's cluster, or all in its namespace.")
@click.option("-n", "--namespace", metavar="NS", help="Namespace of the ElasticJob. Default: of kubectl's context.")
@click.option("--port", cls=Flag, type=click.IntRange(0, 65535), default=0, metavar="N",
              help="Listen on port N of 127.0.0.1. Default: a free one.")  # fmt: skip
@click.option("--lifeline", is_flag=True, hidden=True, help="End when the standard input ends.")
def dashboard(job: str | None, cluster: bool, namespace: str | None, port: int, lifeline: bool) -> None:
    """Show JOB as a page in the browser, as it changes. Default: the only running job; if there is not exactly one,
    all jobs. The page is served on this machine alone, to the address that is printed, until Ctrl-C."""
    source = source_of(cluster, namespace)
    if isinstance(source, Local):
        job = _local_job(job)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(source, job, port, lifeline))


def source_of(cluster: bool, namespace: str | None) -> Source:
    if not cluster and namespace is None:
        return Local()
    from outrider.cli.dashboard.elasticjobs import Cluster

    return Cluster(namespace)


def _local_job(job: str | None) -> str | None:
    if job is not None:
        return job_dirs.existing(job).name
    running = job_dirs.running_jobs()
    return running[0] if len(running) == 1 else None


async def _serve(source: Source, job: str | None, port: int, lifeline: bool) -> None:
    from outrider.cli.dashboard.server import Server

    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    if lifeline:
        watch_lifeline(sys.stdin.fileno(), stopped.set)
    server = Server(source, job)
    try:
        async with server.listening(port) as address:
            click.echo(f"Dashboard of {job or source.where}: {address}")
            sys.stdout.flush()
            await stopped.wait()
    except OSError as refusal:
        raise UserError(f"--port {port}: must be free on 127.0.0.1 ({os.strerror(refusal.errno or 0)})") from refusal
