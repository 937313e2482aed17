"""`--chaos FAULT@rank-index=N`: a fault that is armed before a job starts, to see what is made of it."""

from __future__ import annotations

import click

from outrider.master.core.k8s.values import chaos
from outrider.master.core.k8s.values.chaos import Armed

__all__ = ["Armed", "armed"]


def armed(_context: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[Armed, ...]:
    """The callback of the flag, which may be given again, and may name several with commas as the annotation does."""
    try:
        return tuple(each for value in values for each in chaos.asked(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
