"""Users' regular expressions in an ElasticJob, and the verdict about each.

Compiling one may take a second of CPU (`(?i)` and 198 times `[Ā-￿]`), and a job may have 65. So the master passes in
`verdicts` from a separate process (`master/service/pattern_compiler.py`); `outrider run` compiles its own patterns
`HERE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document

LONGEST = 1000
"""Maximum number of characters of a pattern."""
LONGEST_TOGETHER = 32 * 1024
"""Maximum total of all patterns of a job in bytes: each member gets all of them with each generation."""
MOST = 65
"""Maximum number of patterns of a job: one per rule (64) and one for its metrics."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a pattern can be used."""

    problem: str = ""
    """The reason in a field error, after the pattern; empty if the pattern can be used."""
    groups: tuple[str, ...] = ()
    """The names of the groups in the pattern."""
    is_slow: bool = False
    """Whether compiling was given up; the patterns after this one were not compiled."""


Verdicts = Mapping[str, Verdict]
"""Verdicts by pattern; a pattern without a verdict is not checked."""


def judge(pattern: str) -> Verdict:
    try:
        found = re.compile(pattern)
        fits_nothing = found.search("") is not None
    except re.error as error:
        where = "" if error.pos is None else f" at character {error.pos + 1}"
        return Verdict(f"must be a regular expression: {error.msg}{where}")
    except (RecursionError, OverflowError, MemoryError):
        return Verdict("must be a regular expression: this one is nested too deeply or repeats too often")
    if fits_nothing:
        return Verdict("must not match an empty line, because it then matches every line")
    return Verdict(groups=tuple(found.groupindex))


def too_slow(seconds: float) -> Verdict:
    problem = f"must compile within {seconds:g} s of CPU time; use smaller character sets, or leave out (?i)"
    return Verdict(problem, is_slow=True)


class _Here(Verdicts):
    """Verdicts that are found when they are read."""

    def __getitem__(self, pattern: str) -> Verdict:
        return judge(pattern)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __hash__(self) -> int:
        return id(self)


HERE = _Here()


def of_job(job: Document) -> list[str]:
    """The patterns of a job without duplicates, in the job's order; at most `MOST`."""
    spec = mapping(job.get("spec"))
    rules = [mapping(rule).get("logPattern") for rule in entries(mapping(spec.get("recovery")).get("rules"))]
    texts = [text for text in [*rules, mapping(spec.get("metrics")).get("logPattern")] if isinstance(text, str)]
    return list(dict.fromkeys(text for text in texts if 0 < len(text) <= LONGEST))[:MOST]
