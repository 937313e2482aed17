"""A command's flags as the fields of a dataclass: each is declared once, where its value will be.

Errors and the help have one form for all of them: `--nnodes 0: must be ...`, and groups of flags with two lines each.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from outrider.master.core.k8s.values import field_errors

Command = TypeVar("Command", bound=Callable[..., Any])
Parse = Callable[[Any], Any]
NAME_WIDTH = 26
"""Columns of the help that hold a flag's name; its text begins 2 columns further."""
OTHER = "Other"
"""Heading of the flags that are in no group, as `--help`."""


class FlagError(click.UsageError):
    """A flag's value that is not allowed: the message has the flag, the value and what it must be."""


class Flag(click.Option):
    """A flag whose help has one spelling and no range, and whose errors begin with the flag and its value."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().process_value(ctx, value)
        except click.BadParameter as wrong:
            raise FlagError(f"{self.name_and(value)}: {self._must_be(value, wrong.message)}", ctx) from wrong

    def name_and(self, value: Any) -> str:
        """`--job '---'`: the flag as the help spells it, and its value as a shell would take it."""
        values = value if isinstance(value, tuple | list) else () if value is None or self.is_flag else (value,)
        return " ".join((self.long, *(shlex.quote(str(each)) for each in values)))

    @property
    def long(self) -> str:
        """The flag's name with two dashes, without underscores."""
        return next((each for each in self.opts if each.startswith("--") and "_" not in each), self.opts[0])

    def _must_be(self, value: Any, message: str) -> str:
        """What the value must be: of a range or a choice in words of ours, else what its parser says."""
        match self.type:
            case click.IntRange(min=least, max=None):
                return f"must be a whole number of at least {least}"
            case click.IntRange(min=least, max=most):
                return f"must be a whole number from {least} to {most}"
            case click.Choice(choices=choices):
                return f"must be one of {', '.join(map(str, choices))}"
        for prefix in (f"{value!r}: ", f"{value}: ", f"{field_errors.quoted(value)}: "):
            message = message.removeprefix(prefix)
        return message

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The flag's short and long name without its alias with underscores, and its text."""
        if self.hidden:
            return None
        names = ", ".join(each for each in self.opts if "_" not in each)
        return (names if self.is_flag else f"{names} {self.make_metavar(ctx)}"), self.help or ""


class Grouped(click.Command):
    """A command whose help shows its flags in groups, in the order of `groups`: heading to fields."""

    groups: Mapping[str, tuple[str, ...]] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        records = {each.name: each.get_help_record(ctx) for each in options}
        grouped = {name for names in self.groups.values() for name in names}
        others = tuple(name for name in records if name not in grouped and name is not None)
        for heading, names in (*self.groups.items(), (OTHER, others)):
            rows = [(shown[0].ljust(NAME_WIDTH), shown[1]) for name in names if (shown := records[name]) is not None]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=NAME_WIDTH)


def both_spellings(flag: str) -> tuple[str, ...]:
    """`--max-restarts` and `--max_restarts`; the help shows only the first one."""
    return (f"--{flag}", f"--{flag.replace('-', '_')}") if "-" in flag else (f"--{flag}",)


def parsing(parse: Parse, absent: Any = None) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback that reads a flag's value; a ValueError of `parse` becomes the command's error."""

    def callback(_context: click.Context, _param: click.Parameter, value: Any) -> Any:
        try:
            return absent if value is None else parse(value)
        except ValueError as wrong:
            raise click.BadParameter(str(wrong).removeprefix("Invalid value: ")) from None

    return callback


def flag(
    text: str, *short: str, parse: Parse | None = None, absent: Any = None, spec: bool | str = False, **settings: Any
) -> Any:
    """A field that is filled by the flag of the same name.

    `parse` converts the given value, and `absent` is the field's value without the flag. With `spec` the JobSpec has
    the value too, under the same name (True) or under the name in `spec`.
    """
    settings |= {"help": text} | ({"callback": parsing(parse, absent)} if parse is not None else {})
    return dataclasses.field(metadata={"flag": (short, settings), "spec": spec})


def flags_of(cls: Any) -> list[dataclasses.Field[Any]]:
    """The fields of a dataclass that flags fill."""
    return [each for each in dataclasses.fields(cls) if "flag" in each.metadata]


def flags(cls: Any) -> Callable[[Command], Command]:
    """A decorator that gives a click command the flags of a dataclass, in both spellings and in their order."""

    def add(command: Command) -> Command:
        for each in reversed(flags_of(cls)):
            short, settings = each.metadata["flag"]
            names = (*short, *both_spellings(each.name.replace("_", "-")), each.name)
            command = click.option(*names, cls=Flag, **settings)(command)
        return command

    return add
