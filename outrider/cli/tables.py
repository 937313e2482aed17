"""Tables of the command line: plain columns, coloured on a terminal, never cut in a file or a pipe."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

UNBOUNDED = 1000
"""A file has no width; a width is only what rich needs to be told."""


def console() -> Console:
    """Where tables go."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else UNBOUNDED)


def columns(*names: str) -> Table:
    """A table without lines; only a reason or a place may be folded."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        made.add_column(name, no_wrap=name not in ("reason", "where"), overflow="fold")
    return made
