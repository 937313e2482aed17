"""`outrider rules`: tries the rules of a job on a log that is there, and says what would be done.

The lines are searched as in a running job, by the same code with the same limit of time, and the core itself says what
follows. A log's lines have no times, so `within` is taken to last for all of it, and all is taken for one rank's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

import click

from outrider.cli import rule_file
from outrider.cli.errors import UserError
from outrider.cli.flags import parsing
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
"""Lines of each pattern that are shown."""


@click.command()
@click.option("-f", "--file", "rules", metavar="FILE", type=click.Path(path_type=Path), required=True,
              callback=parsing(rule_file.rules_of),
              help="An ElasticJob, or its recovery.rules alone: YAML or JSON.")  # fmt: skip
@click.option("--log", metavar="LOG", required=True, help="What a rank has written; - is the standard input.")
def rules(rules: tuple[Rule, ...], log: str) -> None:
    """Show which lines of a log meet the rules of a job, and what would be done."""
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
        raise UserError(f"{log}: it cannot be read: {error.strerror}") from error


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
        """What is shown of those that meet a rule."""
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
        said = LineMatched(Generation(1, 1), 0, pattern, text, number)
        action, why = core.of_line(self._state, self._member, said)
        prefix = f"{core.line(self._member, said)}: "
        told = [each.reason.removeprefix(prefix) for each in self._state.actions if isinstance(each, Announce)]
        self._state.actions.clear()
        self._state.rules.tried.clear()
        if self._found[pattern] <= SHOWN:
            yield f"line {number}: {text}"
            told += [f"{why}."] if action else []
            yield from (f"  {sentence}" for sentence in told or ["It is counted, and nothing is done yet."])

    def summary(self) -> Iterator[str]:
        """One line a rule."""
        for number, rule in enumerate(self._rules, 1):
            if not rule.log_pattern:
                yield f"rule {number}: it is not about lines of a log"
                continue
            name = f"rule {number}: {plural(self._found[rule.log_pattern], 'line')} {quoted(rule.log_pattern)}"
            pattern = next(each for each in self._patterns if each.text == rule.log_pattern)
            if rule.log_pattern in self._dropped:
                name += f"; followed no more from line {self._dropped[rule.log_pattern]} on: {pattern.problem}"
            yield name


def _numbered(log: IO[bytes]) -> Iterator[tuple[int, str]]:
    """(number, text) of each line as the matcher would have it; a progress bar's belong to one number."""
    number = 1
    for raw in log:
        for part in raw.splitlines():
            yield number, part[:LONGEST_LINE].decode("utf-8", "replace")
        number += 1
