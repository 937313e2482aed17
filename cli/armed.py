"""`--chaos FAULT@rank-index=N`: a fault that is armed before a job starts, to see what is made of it.

It belongs to the member that has this rank index at the start, by its id: the one that replaces it is well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import click

FAULTS = ("bad-node", "bad-node=slow")
"""The node check finds its probe dead, or five times as slow."""
_FORM = re.compile(r"(?P<fault>[a-z=-]+)@rank[-_]index=(?P<index>[0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class Armed:
    fault: str
    rank_index: int


def armed(_context: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[Armed, ...]:
    """The callback of the flag, which may be given again for another member."""
    return tuple(_parsed(value) for value in values)


def _parsed(value: str) -> Armed:
    found = _FORM.fullmatch(value)
    if found is None or found["fault"] not in FAULTS:
        forms = " or ".join(f"{fault}@rank-index=N" for fault in FAULTS)
        raise click.BadParameter(f"{value!r} is no fault that can be armed; it may be {forms}")
    return Armed(found["fault"], int(found["index"]))
