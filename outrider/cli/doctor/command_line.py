"""Checks of a command line of `outrider run`: its flags, and whether the job can live on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click

from outrider.cli.doctor.findings import Finding, ok, problem
from outrider.cli.errors import UserError
from outrider.cli.run.command import run
from outrider.cli.run.request import Request
from outrider.cli.run.resolve import check_place, request_of

CHECK = "command"


def request(words: Sequence[str], environ: Mapping[str, str]) -> Request | Finding:
    """The job that the words after `outrider run` describe, or the finding that says what is wrong with them."""
    try:
        with run.make_context("outrider run", list(words)) as context:
            given = dict(context.params)
            return request_of(given.pop("words"), given.pop("after_dashes"), given, environ)
    except (click.UsageError, UserError) as error:
        return problem(CHECK, error.format_message(), "correct the command line; outrider run --help")


def place(found: Request) -> Iterator[Finding]:
    """Whether the job can live here: writable folders, a free name, short socket paths, enough open files."""
    try:
        check_place(found)
    except UserError as error:
        yield problem("job", error.message, "see the reason; `outrider run` refuses such a job")
        return
    yield ok(CHECK, f"the job {found.name}: {found.members} × {found.nproc or 1} ranks of {' '.join(found.command)}")
