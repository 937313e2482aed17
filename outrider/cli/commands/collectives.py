"""`outrider collectives JOB`: the last collective of every rank, its line of code, and the ranks that are missing.

Collectives of a process group have the same numbers on all of its ranks. If one rank waits in number 14 and the last
one of another rank is a finished 13, all ranks wait for that other rank; `outrider stacks` shows what it does instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import click
from rich.text import Text

from outrider.cli.commands.stacks import Answers, asks_ranks, rows
from outrider.cli.tables import columns, console
from outrider.cli.text import seconds

COMPLETED = "completed"


@click.command()
@asks_ranks("collectives")
def collectives(answer: Answers) -> None:
    """Show the last collective of every rank of JOB (default: the only running job), and which ranks are missing."""
    found = list(rows(answer))
    if not found:
        click.echo("no rank is running")
        return
    shown = columns("rank", "member", "step", "phase", "number", "collective", "state", "since", "sizes", "where")
    for member, row in found:
        shown.add_row(str(row["rank"]), member, f"{row.get('step', 0):,}", row.get("phase", "-"), *_last(row))
    console().print(shown)
    for sentence in who_is_missing([row for _, row in found]):
        click.echo(sentence)


def _last(row: dict[str, Any]) -> tuple[str | Text, ...]:
    last = row.get("collective")
    if not last:
        return ("-", row.get("error", "none yet"), "-", "-", "-", "-")
    state = Text(str(last["state"]), style="" if last["state"] == COMPLETED else "yellow")
    sizes = " ".join("×".join(map(str, size)) or "scalar" for size in last["sizes"])
    return (str(last["seq"]), last["op"], state, seconds(last["age"]), sizes or "-", Text(last["frame"] or "-"))


def who_is_missing(found: list[dict[str, Any]]) -> Iterator[str]:
    """A sentence for each collective in which some ranks wait for others that have not entered it."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        if row.get("collective"):
            groups[row["collective"]["group"]].append(row)
    for group, members in sorted(groups.items()):
        waiting = [row for row in members if row["collective"]["state"] != COMPLETED]
        if not waiting:
            continue
        number, late = _held_up(waiting, [*members, *(row for row in found if not row.get("collective"))])
        ops = sorted({row["collective"]["op"] for row in waiting if row["collective"]["seq"] == number})
        if late or len(ops) == 1:
            yield _sentence(ops[0], number, group, sorted(late))
        else:
            yield f"ranks differ in collective number {number} of group {group or 'default'}: {', '.join(ops)}"


def _held_up(waiting: list[dict[str, Any]], found: list[dict[str, Any]]) -> tuple[int, list[int]]:
    """The first collective that a rank which waits in none has not entered, and these ranks. A rank that ends in the
    middle of a collective lets some others finish it, who then wait in the next one."""
    inside = {row["rank"] for row in waiting}
    numbers = sorted({row["collective"]["seq"] for row in waiting})
    for number in numbers:
        late = [row["rank"] for row in found if row["rank"] not in inside and _last_of(row) < number]
        if late:
            return number, late
    return numbers[-1], [row["rank"] for row in waiting if _last_of(row) < numbers[-1]]


def _last_of(row: dict[str, Any]) -> int:
    number: int = row["collective"]["seq"] if row.get("collective") else -1
    return number


def _sentence(op: str, number: int, group: str, late: list[int]) -> str:
    what = f"{op} number {number} of group {group or 'default'}"
    if not late:
        return f"every rank has entered {what}"
    ranks = f"rank{'s' if len(late) > 1 else ''} {', '.join(map(str, late))}"
    return f"{ranks} {'have' if len(late) > 1 else 'has'} not entered {what}"
