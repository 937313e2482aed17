"""`recovery.rules` and `recovery.exitCodes`, in an ElasticJob or for `outrider run`: meaning and validation.

A pattern is a regular expression of Python's `re`. It is refused if it does not compile, or if it matches an empty line
and so every line. Whether it is too slow shows only when lines are matched.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.master.core.k8s.values import durations
from outrider.master.core.k8s.values.field_errors import forbidden, invalid, required, too_long, too_many
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.patterns import HERE, LONGEST, LONGEST_TOGETHER, Verdicts
from outrider.master.core.spec import Rule

WHEN = ("exitCodes", "logPattern", "nodeCondition", "taint")
"""Fields of which a rule has exactly one: its condition."""


# -- meaning ------------------------------------------------------------------------------------------------------
def parsed(rules: object) -> tuple[Rule, ...]:
    """The core's form of valid rules."""
    return tuple(_parsed(mapping(rule)) for rule in entries(rules))


def _parsed(rule: Document) -> Rule:
    condition = mapping(rule.get("nodeCondition"))
    of_node = (str(condition["type"]), str(condition.get("status") or "True")) if condition.get("type") else ("", "")
    times = whole(rule.get("times"))
    return Rule(
        exit_codes=codes(rule.get("exitCodes")),
        action=str(rule.get("action")),
        condition=of_node,
        taint=str(rule.get("taint") or ""),
        log_pattern=str(rule.get("logPattern") or ""),
        times=1 if times is None else times,
        within=durations.parsed(rule.get("within")) or 0.0,
        dry_run=rule.get("dryRun") is True,
    )


def codes(value: object) -> tuple[int, ...]:
    """The integers in a list of exit codes."""
    return tuple(code for code in map(whole, entries(value)) if code is not None)


# -- validation ---------------------------------------------------------------------------------------------------
def objections(recovery: Document, path: str, verdicts: Verdicts = HERE) -> Iterator[str]:
    """Field errors for rules and exit codes that fit the schema; durations may be anything."""
    given = mapping(recovery.get("exitCodes"))
    for code in sorted({*codes(given.get("retryable"))} & {*codes(given.get("permanent"))}):
        yield invalid(f"{path}.exitCodes.permanent", code, "must not be in retryable too")
    rules = entries(recovery.get("rules"))
    for number, rule in enumerate(rules):
        yield from _rule(f"{path}.rules[{number}]", mapping(rule), verdicts)
    length = sum(len((rule.get("logPattern") or "").encode(errors="replace")) for rule in rules)
    if length > LONGEST_TOGETHER:
        yield too_many(f"{path}.rules", length, LONGEST_TOGETHER, "bytes in all logPatterns together")


def _rule(path: str, rule: Document, verdicts: Verdicts) -> Iterator[str]:
    given = [field for field in WHEN if rule.get(field)]
    if len(given) > 1:
        yield forbidden(f"{path}.{given[1]}", f"may not be set with {given[0]}; write two rules")
    if not given:
        yield required(path, f"must have one of {', '.join(WHEN)}, not empty")
    if rule.get("logPattern"):
        yield from pattern_objections(f"{path}.logPattern", rule["logPattern"], verdicts)
    yield from _decay(path, rule)


def pattern_objections(path: str, pattern: str, verdicts: Verdicts) -> Iterator[str]:
    """Field errors for one regular expression."""
    if len(pattern) > LONGEST:
        yield too_long(path, LONGEST)
        return
    verdict = verdicts.get(pattern)
    if verdict is not None and verdict.problem:
        yield invalid(path, pattern, verdict.problem)


def _decay(path: str, rule: Document) -> Iterator[str]:
    times, within = rule.get("times") or 1, rule.get("within")
    if times > 1 and within is None:
        yield required(f"{path}.within", "times needs the period in which it counts, for example 1h")
    elif within is not None and times == 1:
        yield forbidden(f"{path}.within", "has no effect without times greater than 1")
    if within is not None and not durations.parsed(within):
        yield invalid(f"{path}.within", within, f"must be greater than 0: {durations.ALLOWED}")
