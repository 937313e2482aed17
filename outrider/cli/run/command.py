"""`outrider run`: hosts a job on this machine, shows its events, and ends with its exit code.

torchrun's command line works unchanged: both spellings of every flag, its sizes, its rendezvous flags. Everything
after SCRIPT belongs to the script; after `--` comes any command, run once per member.
"""

from __future__ import annotations

import json
import os
import sys
from difflib import get_close_matches
from typing import Any

import click

from outrider.cli import rule_file
from outrider.cli.flags import Grouped, flags
from outrider.cli.run.request import GROUPS, Request
from outrider.cli.run.resolve import check_place, request_of
from outrider.cli.run.slurm import about_slurm
from outrider.cli.run.torchrun_flags import accepted, not_needed
from outrider.cli.text import warning


class _RunCommand(Grouped):
    """Remembers whether the positional arguments came after a `--`, which click removes."""

    groups = GROUPS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as unknown:
            name = unknown.option_name
            raise click.NoSuchOption(name, possibilities=self._near(name, ctx), ctx=ctx) from unknown
        words = ctx.params.get("words", ())
        ctx.params["after_dashes"] = len(given) > len(words) and given[-len(words) - 1] == "--" and bool(words)
        return rest

    def _near(self, name: str, context: click.Context) -> list[str]:
        """The flags of `outrider run` that are spelled alike; click would also suggest distant and hidden ones."""
        shown = [each for each in self.get_params(context) if isinstance(each, click.Option) and not each.hidden]
        return get_close_matches(name, [each.opts[0] for each in shown], cutoff=0.75)


@click.command(cls=_RunCommand, context_settings={"allow_interspersed_args": False}, options_metavar="[FLAGS]")
@flags(Request)
@accepted
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]... | -- COMMAND...")
def run(words: tuple[str, ...], after_dashes: bool, **given: Any) -> None:
    """Run a training job on this machine and keep it running.

    For several machines, use Kubernetes (docs/get-started/cluster.md). In a Slurm allocation the job uses one node.

    SCRIPT is a Python script that runs unchanged in every worker process; ARGS are its arguments.
    """
    request = request_of(words, after_dashes, given, os.environ)
    check_place(request)
    for line in [*about_slurm(os.environ), *not_needed(given, request.needless), *rule_file.about_nodes(request.rules)]:
        click.echo(json.dumps(warning(line)) if request.verbosity == "json" else f"outrider: {line}", err=True)
    from outrider.cli.run.host import host  # late: a wrong command line should be reported at once

    sys.exit(host(request))
