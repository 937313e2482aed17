"""`recovery.rules` and `recovery.exitCodes` as the user wrote them, in an ElasticJob or for `outrider run`. What is
wrong with them, and what do they mean?

A pattern is one of Python's `re`. Whether it is too slow shows where it is followed; here it is refused where it cannot
be read, and where it fits every line, because it fits nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.master.core.k8s.values import durations
from outrider.master.core.k8s.values.fields import entries, mapping, shown, whole
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.patterns import HERE, LONGEST, LONGEST_TOGETHER, Verdicts
from outrider.master.core.spec import Rule

WHEN = ("exitCodes", "logPattern", "nodeCondition", "taint")
"""What a rule may be about."""


# -- meaning ------------------------------------------------------------------------------------------------------
def parsed(rules: object) -> tuple[Rule, ...]:
    """What the core is told of rules that `objections` has nothing against."""
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
    return tuple(code for code in map(whole, entries(value)) if code is not None)


# -- what is wrong ------------------------------------------------------------------------------------------------
def objections(recovery: Document, path: str, verdicts: Verdicts = HERE) -> Iterator[str]:
    """Sentences that begin with the path of a field. It fits the schema, but for durations."""
    given = mapping(recovery.get("exitCodes"))
    for code in sorted({*codes(given.get("retryable"))} & {*codes(given.get("permanent"))}):
        yield f"{path}.exitCodes.permanent: {code} is in retryable as well"
    rules = entries(recovery.get("rules"))
    for number, rule in enumerate(rules):
        yield from _rule(f"{path}.rules[{number}]", mapping(rule), verdicts)
    length = sum(len((rule.get("logPattern") or "").encode(errors="replace")) for rule in rules)
    if length > LONGEST_TOGETHER:
        yield f"{path}.rules: all logPatterns together have {length} bytes, and may have {LONGEST_TOGETHER}"


def _rule(path: str, rule: Document, verdicts: Verdicts) -> Iterator[str]:
    given = [field for field in WHEN if rule.get(field)]
    if len(given) > 1:
        yield f"{path}.{given[1]}: a rule is about one thing, and this one has {given[0]} too; write two rules"
    if not given:
        yield f"{path}: it does not say when; give one of {', '.join(WHEN)}, and not an empty one"
    if rule.get("logPattern"):
        yield from pattern_objections(f"{path}.logPattern", rule["logPattern"], verdicts)
    yield from _decay(path, rule)


def pattern_objections(path: str, pattern: str, verdicts: Verdicts) -> Iterator[str]:
    if len(pattern) > LONGEST:
        yield f"{path}: it has {len(pattern)} characters, and may have {LONGEST}"
        return
    verdict = verdicts.get(pattern)
    if verdict is not None and verdict.problem:
        yield f"{path}: {shown(pattern)} {verdict.problem}"


def _decay(path: str, rule: Document) -> Iterator[str]:
    times, within = rule.get("times") or 1, rule.get("within")
    if times > 1 and within is None:
        yield f"{path}.within: it is missing; it says for how long what was seen counts towards times, as 1h"
    elif within is not None and times == 1:
        yield f"{path}.within: it means nothing without times, which says after how often the rule is followed"
    if within is not None and not durations.parsed(within):
        yield f"{path}.within: {shown(within)} is no duration above 0; write {durations.ALLOWED}"
