"""`outrider rules`: tries the rules of a job on an existing log, and shows what they would do.

The same code searches the lines as in a running job, with the same time limit, and the core decides what follows. The
lines of a log have no times, so `within` covers the whole log, and all lines count as those of one rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

import click

from outrider.cli import rule_file
from outrider.cli.errors import UserError
from outrider.cli.flags import Flag, parsing
from outrider.cli.text import plural
from outrider.master.core.actions import Announce
from outrider.master.core.faults import failure_policy as core
from outrider.master.core.spec import JobSpec, Rule
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.text import quoted
from outrider.wire.ids import Generation, JobName, MemberId, RankIndex, Role
from outrider.wire.messages.log_lines import LineMatched
from training_hooks.logs.matcher import LONGEST_LINE, Clock, Pattern

BATCH = 1000
SHOWN = 20
"""The most lines that are shown for each pattern."""


@click.command()
@click.option("-f", "--file", "rules", metavar="FILE", type=click.Path(path_type=Path), required=True, cls=Flag,
              callback=parsing(rule_file.rules_of),
              help="Read the rules from an ElasticJob, or from its recovery.rules alone (YAML or JSON).")  # fmt: skip
@click.option(
    "--log", metavar="LOG", required=True, help="Read the output of a rank from LOG; - is the standard input."
)
def rules(rules: tuple[Rule, ...], log: str) -> None:
    """Show which lines of a log match the rules of a job, and what the rules would do."""
    trial = _Trial(rules)
    with _opened(log) as file:
        for line in trial.lines(file):
            click.echo(line)
    for line in trial.summary():
        click.echo(line)


def _opened(log: str) -> IO[bytes]:
    try:
        return click.open_file(log, "rb")
    except OSError as error:
        raise UserError(f"--log {log}: must be readable: {error.strerror}") from error


class _Trial:
    def __init__(self, rules: tuple[Rule, ...]) -> None:
        clock = Clock()
        self._rules = rules
        self._patterns = [Pattern(text, clock) for text in dict.fromkeys(r.log_pattern for r in rules if r.log_pattern)]
        self._state = State(spec=JobSpec(JobName("job"), 1, 1, 1, rules=rules))
        self._member = Member(MemberId("worker-0"), Role("worker"), RankIndex(0), 0.0)
        self._found = dict.fromkeys((pattern.text for pattern in self._patterns), 0)
        self._dropped: dict[str, int] = {}

    def lines(self, log: IO[bytes]) -> Iterator[str]:
        """The output for those lines of the log that match a rule."""
        numbered = _numbered(log)
        while batch := list(islice(numbered, BATCH)):
            matches = [(at, pattern) for pattern in self._patterns for at in self._search(pattern, batch)]
            for at, pattern in sorted(matches, key=lambda match: match[0]):
                yield from self._met(pattern.text, *batch[at])

    def _search(self, pattern: Pattern, batch: list[tuple[int, str]]) -> list[int]:
        was_followed = not pattern.problem
        found = [at for at, _ in pattern.matches([text for _, text in batch])]
        if was_followed and pattern.problem:
            slow = next(number for number, text in batch if text == pattern.slow_line)
            self._dropped[pattern.text] = slow
        return found

    def _met(self, pattern: str, number: int, text: str) -> Iterator[str]:
        self._found[pattern] += 1
        match = LineMatched(Generation(1, 1), 0, pattern, text, number)
        action, why = core.of_line(self._state, self._member, match)
        prefix = f"{core.line(self._member, match)}: "
        reasons = [each.reason.removeprefix(prefix) for each in self._state.actions if isinstance(each, Announce)]
        self._state.actions.clear()
        self._state.rules.tried.clear()
        if self._found[pattern] <= SHOWN:
            yield f"line {number}: {text}"
            reasons += [f"{why}."] if action else []
            yield from (f"  {reason}" for reason in reasons or ["It is counted; the rule does nothing yet."])

    def summary(self) -> Iterator[str]:
        """One line for each rule."""
        for number, rule in enumerate(self._rules, 1):
            if not rule.log_pattern:
                yield f"rule {number}: has no logPattern"
                continue
            name = f"rule {number}: {plural(self._found[rule.log_pattern], 'line')} {quoted(rule.log_pattern)}"
            pattern = next(each for each in self._patterns if each.text == rule.log_pattern)
            if rule.log_pattern in self._dropped:
                name += f"; not searched after line {self._dropped[rule.log_pattern]}: {pattern.problem}"
            yield name


def _numbered(log: IO[bytes]) -> Iterator[tuple[int, str]]:
    """(number, text) of each line as the matcher reads it; all states of a progress bar have one number."""
    number = 1
    for raw in log:
        for part in raw.splitlines():
            yield number, part[:LONGEST_LINE].decode("utf-8", "replace")
        number += 1
