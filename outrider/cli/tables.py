"""Tables of the command line: plain columns, in colour on a terminal, never cut in a file or a pipe."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

UNBOUNDED = 1000
"""The width of tables in a file, which has none: rich needs a number."""


def console() -> Console:
    """The console that prints tables."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else UNBOUNDED)


def columns(*names: str) -> Table:
    """A table without borders; only the columns reason and where may be wrapped."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        made.add_column(name, no_wrap=name not in ("reason", "where"), overflow="fold")
    return made
