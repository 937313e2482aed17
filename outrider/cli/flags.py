"""A command's flags as the fields of a dataclass: each is declared once, where its value will be."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
Parse = Callable[[Any], Any]


def both_spellings(flag: str) -> tuple[str, ...]:
    """`--max-restarts` and `--max_restarts`; the first one is shown in the help."""
    return (f"--{flag}", f"--{flag.replace('-', '_')}") if "-" in flag else (f"--{flag}",)


def parsing(parse: Parse, absent: Any = None) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback that reads what was given; a ValueError says what is wrong with it."""

    def callback(_context: click.Context, _param: click.Parameter, value: Any) -> Any:
        try:
            return absent if value is None else parse(value)
        except ValueError as wrong:
            raise click.BadParameter(str(wrong)) from None

    return callback


def flag(
    text: str, *short: str, parse: Parse | None = None, absent: Any = None, spec: bool | str = False, **settings: Any
) -> Any:
    """A field that the flag of its name fills.

    `parse` makes its value of what was given, and `absent` is the value where nothing was. `spec` says that the value
    is the JobSpec's as well, by the same name or by this one.
    """
    settings |= {"help": text} | ({"callback": parsing(parse, absent)} if parse is not None else {})
    return dataclasses.field(metadata={"flag": (short, settings), "spec": spec})


def flags_of(cls: Any) -> list[dataclasses.Field[Any]]:
    return [each for each in dataclasses.fields(cls) if "flag" in each.metadata]


def flags(cls: Any) -> Callable[[Command], Command]:
    """Gives a click command the flags of a dataclass, in both spellings and in their order."""

    def add(command: Command) -> Command:
        for each in reversed(flags_of(cls)):
            short, settings = each.metadata["flag"]
            command = click.option(*short, *both_spellings(each.name.replace("_", "-")), each.name, **settings)(command)
        return command

    return add
