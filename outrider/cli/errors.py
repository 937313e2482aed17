"""What goes wrong on the user's side, as one sentence that names the thing and what it may be.

Everything that a user can get wrong ends as one of these; anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

from typing import IO, Any

import click

USAGE = 2
"""Exit code of a command that was never started: wrong flags, a job that does not exist. As click's own."""


class UserError(click.ClickException):
    """The command cannot be done as it was given; the message says what would be right."""

    exit_code = USAGE

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the sentence to the standard error, in the form that every outrider line has."""
        click.echo(f"outrider: {self.format_message()}", file=file, err=file is None)


class Unreachable(UserError):
    """The job exists, its master does not answer."""

    exit_code = 1
