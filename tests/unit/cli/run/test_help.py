"""The help of `outrider run`: every flag in a group, two lines of text at most, one spelling."""

from __future__ import annotations

import importlib
import re
from typing import Any

import click
import pytest

from outrider.cli.flags import flags_of
from outrider.cli.main import COMMANDS, IN_FOLDERS, main
from outrider.cli.run.command import run
from outrider.cli.run.request import GROUPS, Request

LINES, COLUMNS = 2, 80
OPTION = re.compile(r"  (?:-\w, )?--?[a-z]")


def help_of(command: click.Command, name: str) -> str:
    """The help as a terminal with 80 columns shows it."""
    return command.get_help(click.Context(command, info_name=name, terminal_width=COLUMNS - 2))


def commands(command: Any, path: str) -> dict[str, click.Command]:
    """The command and all its subcommands, by their full names."""
    found = {path: command}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found |= commands(command.get_command(context, name), f"{path} {name}")
    return found


def option_lines(text: str) -> dict[str, int]:
    """The number of lines of help text of each option, without a line that has only the option's name."""
    found: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if OPTION.match(line):
            name = line.split()[0]
            found[name] = int(bool(re.search(r"\S {2,}\S", line.strip())))
        elif name and line.startswith(" " * 10):
            found[name] += 1
        else:
            name = ""
    return found


def test_every_flag_is_in_exactly_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert grouped == [each.name for each in flags_of(Request)]
    shown = [each.name for each in run.params if isinstance(each, click.Option) and not each.hidden]
    assert sorted(shown) == sorted(grouped)


def test_the_help_has_a_heading_for_each_group() -> None:
    text = help_of(run, "run")
    for heading in GROUPS:
        assert f"\n{heading}:\n" in text
    assert text.index("Size:") < text.index("--nnodes") < text.index("Recovery:") < text.index("--max-restarts")


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_no_flag_has_more_than_two_lines_of_help(path: str) -> None:
    module = f"{path}.command" if path in IN_FOLDERS else f"commands.{path}"
    command = getattr(importlib.import_module(f"outrider.cli.{module}"), path)
    for name, each in commands(command, path).items():
        text = help_of(each, name)
        assert max(map(len, text.splitlines())) <= COLUMNS
        found = option_lines(text)
        assert "-h," in found or "--help" in found
        assert {flag: lines for flag, lines in found.items() if lines > LINES} == {}


def test_spellings_with_underscores_are_hidden_but_work() -> None:
    text = help_of(run, "run")
    assert "--max-restarts" in text
    assert not re.search(r"--\w+_", text)
    assert run.make_context("run", ["--max_restarts", "3", "train.py"]).params["max_restarts"] == 3


def test_every_command_is_in_the_help() -> None:
    text = help_of(main, "outrider")
    for name, line in COMMANDS.items():
        assert re.search(rf"\n  {name} +{re.escape(line)[:30]}", text)
