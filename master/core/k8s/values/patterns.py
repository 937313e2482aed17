"""Users' regular expressions: where an ElasticJob has them, and what is known of each.

To compile one may take a second of processor time (`(?i)` and 198 times `[Ā-￿]`), and there may be 64 in a job. So a
master hands in `verdicts` that a process of its own has found (`master/service/pattern_compiler.py`); who asks for
himself (`outrider run`) has them compiled `HERE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document

LONGEST = 1000
"""Characters of one."""
LONGEST_TOGETHER = 32 * 1024
"""Bytes that all patterns of a job may have: they are told to each member with each generation."""
MOST = 65
"""Of one job: 64 rules, and one for its metrics."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`problem`: what follows the pattern in a sentence that refuses it; empty where it can be used."""

    problem: str = ""
    groups: tuple[str, ...] = ()
    """The names of its groups."""
    is_slow: bool = False
    """It was not compiled to the end, and what stood behind it was not looked at."""


Verdicts = Mapping[str, Verdict]
"""A pattern that has none is not looked at."""


def judge(pattern: str) -> Verdict:
    try:
        found = re.compile(pattern)
        fits_nothing = found.search("") is not None
    except re.error as error:
        where = "" if error.pos is None else f" at character {error.pos + 1}"
        return Verdict(f"is no regular expression: {error.msg}{where}")
    except (RecursionError, OverflowError, MemoryError):
        return Verdict("is no regular expression: it is nested too deeply, or repeats too often")
    if fits_nothing:
        return Verdict("fits an empty line, and so every line; say what must be in it")
    return Verdict(groups=tuple(found.groupindex))


def too_slow(seconds: float) -> Verdict:
    problem = f"takes more than {seconds:g} s of processor time to compile; use smaller sets of characters, or no (?i)"
    return Verdict(problem, is_slow=True)


class _Here(Verdicts):
    """Of any pattern, at once."""

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
    """Each once, in the job's order; of more than a job may have, the first."""
    spec = mapping(job.get("spec"))
    rules = [mapping(rule).get("logPattern") for rule in entries(mapping(spec.get("recovery")).get("rules"))]
    texts = [text for text in [*rules, mapping(spec.get("metrics")).get("logPattern")] if isinstance(text, str)]
    return list(dict.fromkeys(text for text in texts if 0 < len(text) <= LONGEST))[:MOST]
