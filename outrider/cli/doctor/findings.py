"""A finding of `outrider doctor`: what was found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.text import Text

from outrider.cli.text import plural, printable

OK, WARNING, PROBLEM = "ok", "warning", "problem"
STYLES = {OK: "green", WARNING: "yellow", PROBLEM: "bold red"}
CHECK_WIDTH, LEVEL_WIDTH = 14, 7


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    """What was checked, in a word or two."""
    level: str
    """`ok`; `warning`: the job runs, but not as well as it could; `problem`: it would not run."""
    text: str
    fix: str = ""
    """What the user can do; empty if there is nothing to do."""


def ok(check: str, text: str) -> Finding:
    return Finding(check, OK, text)


def warning(check: str, text: str, fix: str = "") -> Finding:
    return Finding(check, WARNING, text, fix)


def problem(check: str, text: str, fix: str) -> Finding:
    return Finding(check, PROBLEM, text, fix)


def lines(found: Finding) -> Iterator[Text]:
    """A finding as lines: its level, the check, what was found, and below it what to do."""
    line = Text()
    line.append(f"{found.level:<{LEVEL_WIDTH}} ", STYLES[found.level])
    yield line.append(f"{found.check:<{CHECK_WIDTH}} ", "bold").append(printable(found.text))
    if found.fix:
        yield Text(f"{'':<{LEVEL_WIDTH + CHECK_WIDTH + 2}}→ {printable(found.fix)}")


def summary(found: Iterable[Finding]) -> str:
    """The last line of the report."""
    levels = [each.level for each in found]
    problems, warnings = levels.count(PROBLEM), levels.count(WARNING)
    if not problems:
        return f"nothing found that would keep a job from running; {plural(warnings, 'warning')}"
    return f"{plural(problems, 'problem')} would keep a job from running; {plural(warnings, 'warning')}"


def document(found: Iterable[Finding]) -> dict[str, Any]:
    """All findings as JSON."""
    rows = [asdict(each) for each in found]
    counts = {level: sum(row["level"] == level for row in rows) for level in (PROBLEM, WARNING)}
    return {"version": 1, "problems": counts[PROBLEM], "warnings": counts[WARNING], "findings": rows}
