"""The command line of Outrider.

A command's module is imported when it is asked for, because `outrider status` should not pay for what `cli.run.command`
needs.
"""

from __future__ import annotations

import importlib
import os

import click

import outrider

COMMANDS = {
    "run": "Run a training job on this machine and keep it running.",
    "status": "Show where a job stands.",
    "events": "Show what happened in a job.",
    "logs": "Show what the ranks wrote.",
    "stacks": "Show where every rank's Python is now.",
    "collectives": "Show every rank's last collective, and who is missing.",
    "restart": "Start the script again, read anew.",
    "scale": "Change how many members a job has.",
    "plot": "Draw a job over time: loss, steps a second, members, faults.",
    "stop": "End a job.",
    "clean": "Remove what jobs that have ended left.",
    "chaos": "Break a running job on purpose.",
    "rules": "Try a job's rules on a log.",
    "convert": "Turn jobs of KubeDL, Kubeflow and DLRover into ElasticJobs.",
    "inject": "Show what the webhook makes of a pod, and why.",
}
"""Every command and its one line."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = f"{cmd_name}.command" if cmd_name in ("run", "chaos") else f"commands.{cmd_name}"
        command: click.Command = getattr(importlib.import_module(f"outrider.cli.{module}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(context: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(f"outrider {outrider.__version__}")
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def main() -> None:
    """Keep distributed training running when processes, members and machines fail."""


def open_standard_descriptors() -> None:
    """A descriptor below 3 that came closed (`>&-`) would be given to the next file, and what is said written there."""
    while (opened := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(opened)
