"""`outrider bundle [JOB]`: one archive with what happened to a job, without its secrets."""

from __future__ import annotations

from pathlib import Path

import click

from outrider.cli import job_dirs
from outrider.cli.bundling import archive, cluster, local
from outrider.cli.errors import UserError
from outrider.cli.kube.recording import SYSTEM


@click.command()
@click.argument("job", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
              help="Write the archive to FILE. Default: JOB.outrider.tar.gz.")  # fmt: skip
@click.option("--with-logs", is_flag=True, help="Add the output of the ranks and the texts of events, unchanged.")
@click.option("--cluster", "in_cluster", is_flag=True, help="Bundle the ElasticJob JOB of kubectl's cluster.")
@click.option("-n", "--namespace", metavar="NS", help="Namespace of the ElasticJob. Default: of kubectl's context.")
@click.option(
    "--service-account", metavar="NAME", help="With --cluster: show the master a token of this account of NS."
)
@click.option("--system", metavar="NS", default=SYSTEM, help="With --cluster: namespace of Outrider's masters.")
def bundle(
    job: str | None,
    output: Path | None,
    with_logs: bool,
    in_cluster: bool,
    namespace: str | None,
    service_account: str | None,
    system: str,
) -> None:
    """Write an archive about JOB (default: the only running job), to send to a person who shall find out what happened.

    It has no values of environment variables or unknown flags, no messages of exceptions and no log lines.
    `outrider replay` steps through it.
    """
    if in_cluster or namespace:
        if job is None or with_logs:
            raise UserError("--cluster: must be used with JOB and without --with-logs; for logs: kubectl logs")
        made = cluster.contents(job, namespace, system, service_account)
    else:
        made = local.contents(job_dirs.the_job(job), with_logs)
    left_out = [each.partition(":")[0] for each in made.left_out]  # behind it paths and others' messages may follow
    about = {"job": made.job, "with_logs": with_logs, "left_out": left_out}
    content = archive.packed(made.members, about)
    if len(content) > archive.MOST_PACKED:
        raise UserError(f"the bundle would have {len(content) >> 20} MiB, but at most {archive.MOST_PACKED >> 20} MiB "
                        "can be read again; try it without --with-logs")  # fmt: skip
    path = output or Path(f"{made.job.rpartition('/')[2]}.outrider.tar.gz")
    archive.write(path, content, "--output")
    click.echo(f"outrider: wrote {path} ({len(content) / 1024:,.0f} KiB): {', '.join(sorted(made.members))}")
    for each in made.left_out:
        click.echo(f"outrider: left out: {each}")
