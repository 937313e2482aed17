"""Errors of the user, each as one sentence that names the wrong thing and what it must be.

Every mistake that a user can make ends as one of these. Any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

from typing import IO, Any

import click

USAGE = 2
"""Exit code of a command that did nothing: wrong flags, a job that does not exist. The same as click's own."""


class UserError(click.ClickException):
    """The command cannot run as given; the message says what would be right."""

    exit_code = USAGE

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the sentence to the standard error, in the form that every outrider line has."""
        click.echo(f"outrider: {self.format_message()}", file=file, err=file is None)


class Unreachable(UserError):
    """The job exists, but its master does not answer."""

    exit_code = 1
