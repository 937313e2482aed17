"""The command line of Outrider.

A command's module is imported only when that command runs, because `outrider status` should not wait for the imports of
`cli.run.command`.
"""

from __future__ import annotations

import importlib
import os

import click

import outrider

COMMANDS = {
    "run": "Run a training job on this machine and keep it running.",
    "status": "Show the state of a job.",
    "top": "Show the state of a job as it changes, in the whole terminal.",
    "dashboard": "Show jobs as a page in the browser, as they change.",
    "events": "Show what happened in a job.",
    "logs": "Show the output of the ranks.",
    "stacks": "Show the Python stack of every rank.",
    "collectives": "Show the last collective of every rank, and which ranks are missing.",
    "plot": "Draw loss, steps per second, members and faults of a job over time.",
    "report": "Write what happened in a job, and what it cost, into one HTML file.",
    "restart": "Restart a job with its script as it is now.",
    "scale": "Change the number of members of a job.",
    "stop": "Stop a job.",
    "clean": "Remove the files of jobs that have ended.",
    "chaos": "Inject a fault into a running job.",
    "rules": "Try the rules of a job on a log.",
    "convert": "Convert jobs of KubeDL, Kubeflow and DLRover to ElasticJobs.",
    "doctor": "Find what would keep a job from running here or on a cluster.",
    "bundle": "Write an archive about a job, without its secrets.",
    "replay": "Step the master's core through a bundle.",
    "inject": "Show how the webhook would change a pod, and why.",
}
"""Every command with its line of help."""
IN_FOLDERS = ("run", "chaos", "dashboard")
"""The commands that have a folder of their own."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = f"{cmd_name}.command" if cmd_name in IN_FOLDERS else f"commands.{cmd_name}"
        command: click.Command = getattr(importlib.import_module(f"outrider.cli.{module}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(context: click.Context, param: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        click.echo(f"outrider {outrider.__version__}")
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def main() -> None:
    """Keep distributed training running when processes, members and machines fail."""


def open_standard_descriptors() -> None:
    """Open descriptors below 3 that were closed (`>&-`): the next file would get such a number, and with it the
    command's output."""
    while (opened := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(opened)
