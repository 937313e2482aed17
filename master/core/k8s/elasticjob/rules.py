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
from outrider.master.core.spec import FAIL, REPLACE, REPLACE_NODE, RESTART, Rule

ABOUT_RANKS = ("exitCodes", "logPattern")
ABOUT_NODES = ("nodeCondition", "taint")
WHEN = (*ABOUT_RANKS, *ABOUT_NODES)
"""What a rule may be about."""
FIELDS = (*WHEN, "action", "times", "within", "dryRun")
STATUSES = ("True", "False", "Unknown")
ACTIONS = (FAIL, RESTART, REPLACE, REPLACE_NODE)
MOST_TIMES = 1000
MOST_RULES = 64


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
    """Sentences that begin with the path of a field."""
    given = mapping(recovery.get("exitCodes"))
    for code in sorted({*codes(given.get("retryable"))} & {*codes(given.get("permanent"))}):
        yield f"{path}.exitCodes.permanent: {code} is in retryable as well"
    rules = entries(recovery.get("rules"))
    for number, rule in enumerate(rules):
        yield from _rule(f"{path}.rules[{number}]", mapping(rule), verdicts)
    if len(rules) > MOST_RULES:
        yield f"{path}.rules: there are {len(rules)}, and {MOST_RULES} may be there"
    length = sum(len(str(mapping(rule).get("logPattern") or "").encode(errors="replace")) for rule in rules)
    if length > LONGEST_TOGETHER:
        yield f"{path}.rules: all logPatterns together have {length} bytes, and may have {LONGEST_TOGETHER}"


def _rule(path: str, rule: Document, verdicts: Verdicts) -> Iterator[str]:
    for field in sorted(set(map(str, rule)) - set(FIELDS)):
        yield f"{path}.{field}: there is no such field; there are {', '.join(FIELDS)}"
    if rule.get("action") not in ACTIONS:
        yield f"{path}.action: {shown(rule.get('action'))} is none; there are {', '.join(ACTIONS)}"
    given = [field for field in WHEN if rule.get(field)]
    if len(given) > 1:
        yield f"{path}.{given[1]}: a rule is about one thing, and this one has {given[0]} too; write two rules"
    if not given:
        yield f"{path}: it does not say when; give one of {', '.join(WHEN)}, and not an empty one"
    yield from _exit_codes(f"{path}.exitCodes", rule.get("exitCodes"))
    if rule.get("logPattern"):
        yield from pattern_objections(f"{path}.logPattern", rule["logPattern"], verdicts)
    if rule.get("nodeCondition"):
        yield from _node_condition(f"{path}.nodeCondition", rule["nodeCondition"])
    if rule.get("taint") and not isinstance(rule["taint"], str):
        yield f"{path}.taint: {shown(rule['taint'])} must be the key of a taint"
    yield from _decay(path, rule)


def _exit_codes(path: str, value: object) -> Iterator[str]:
    if value is not None and not isinstance(value, list):
        yield f"{path}: {shown(value)} must be a list of exit codes"
    for code in entries(value):
        if whole(code) is None or not 0 <= code <= 255:
            yield f"{path}: {shown(code)} must be a whole number from 0 to 255"


def pattern_objections(path: str, pattern: object, verdicts: Verdicts) -> Iterator[str]:
    if not isinstance(pattern, str):
        yield f"{path}: {shown(pattern)} must be a regular expression, a text"
        return
    if len(pattern) > LONGEST:
        yield f"{path}: it has {len(pattern)} characters, and may have {LONGEST}"
        return
    verdict = verdicts.get(pattern)
    if verdict is not None and verdict.problem:
        yield f"{path}: {shown(pattern)} {verdict.problem}"


def _node_condition(path: str, condition: object) -> Iterator[str]:
    kind, status = mapping(condition).get("type"), mapping(condition).get("status")
    if not isinstance(condition, dict):
        yield f"{path}: {shown(condition)} must be an object with type, and status where that is not True"
    elif not isinstance(kind, str) or not kind:
        yield f"{path}.type: it is missing; it is the type of a node's condition, as GpuUnhealthy"
    if status is not None and status not in STATUSES:
        yield f'{path}.status: {shown(status)} is none; there are "True", "False" and "Unknown"'


def _decay(path: str, rule: Document) -> Iterator[str]:
    times, within, dry_run = rule.get("times"), rule.get("within"), rule.get("dryRun")
    if times is not None and (whole(times) is None or not 1 <= times <= MOST_TIMES):
        yield f"{path}.times: {shown(times)} must be a whole number from 1 to {MOST_TIMES}"
    elif (whole(times) or 1) > 1 and within is None:
        yield f"{path}.within: it is missing; it says for how long what was seen counts towards times, as 1h"
    elif within is not None and (whole(times) or 1) == 1:
        yield f"{path}.within: it means nothing without times, which says after how often the rule is followed"
    if within is not None and not durations.parsed(within):
        yield f"{path}.within: {shown(within)} is no duration above 0; write {durations.ALLOWED}"
    if dry_run is not None and not isinstance(dry_run, bool):
        yield f"{path}.dryRun: {shown(dry_run)} must be true or false"
