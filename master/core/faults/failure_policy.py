"""Applies the user's rules about faults, before any remedy of the master: `recovery.rules` and `recovery.exitCodes`.

The first rule that matches what was seen decides: the exit code of a rank; a condition or taint of a node
(`node_rules`); a line of a rank's output (`log_rules`). For an exit code that no rule matches, the permanent codes and
then the restartPolicy of the role decide. A rank that a signal ended has the code that a shell would show, 128 + the
signal. An error that the end of another rank caused matches no rule.

fail: the job fails, unless the loss of the member explains the end. restart: the ranks restart in place, whatever the
master would have done. replace: the member fails, and another pod takes its rank index. replaceNode: the same, and new
pods avoid its node for a day. Codes that are retryable, or that a rule restarts, say nothing about the script: they are
never a crash loop, and cost a restart like any other end.

A rule with `times` and `within` is skipped until it has matched so many times in so many seconds; then it applies, and
its count starts again. fail and restart count the matches of the whole job; replace and replaceNode count each member,
or node, by itself. A dry run is reported and skipped. So each occurrence must be evaluated once only: the ruling on the
end of a rank is kept for as long as its generation.
"""

from __future__ import annotations

from collections.abc import Callable

from outrider.master.core.events import NodeSeen
from outrider.master.core.faults import error_signature, restart_policy
from outrider.master.core.spec import FAIL, RESTART, Rule
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.text import quoted, seconds
from outrider.wire.ids import Generation, MemberId
from outrider.wire.messages.generation import WorkerExit
from outrider.wire.messages.log_lines import LineMatched

Ruling = tuple[str, str]
"""The action, and the words of the user's policy that require it; both are empty if none does."""
NONE: Ruling = ("", "")
TRIED_AGAIN = 60.0
"""Seconds in which a dry run of a rule is reported once: a line may come each second, and from each rank."""


def of_exit(state: State, generation: Generation, member: Member, rank: int, end: WorkerExit) -> Ruling:
    """The ruling on the end of a rank of this generation."""
    if end.code == 0 or error_signature.is_effect(end):
        return NONE
    if state.rules.judged_of != generation:
        state.rules.judged_of, state.rules.judged = generation, {}
    key = (member.id, end.local_rank)
    if key not in state.rules.judged:
        state.rules.judged[key] = _of_code(state, member, rank, end)
    return state.rules.judged[key]


def _of_code(state: State, member: Member, rank: int, end: WorkerExit) -> Ruling:
    code = error_signature.exit_code(end)
    seen = f"Rank {rank} on {member.id} {error_signature.describe(end)}"
    found = _first(state, lambda rule: f"exit code {code}" if code in rule.exit_codes else "", seen, member.id)
    if not found[0] and code in state.spec.permanent_codes:
        return FAIL, f"exit code {code} is permanent (recovery.exitCodes)"
    why = "" if found[0] else restart_policy.why_final(state.spec, member.role, code)
    return (FAIL, why) if why else found


def of_line(state: State, member: Member, match: LineMatched) -> Ruling:
    """The ruling on a line of a rank's output that matches a pattern."""
    name = f"logPattern {quoted(match.pattern)}"
    return _first(state, lambda rule: name if rule.log_pattern == match.pattern else "", line(member, match),
                  member.id, match.count)  # fmt: skip


def of_node(state: State, node: NodeSeen) -> Ruling:
    """The ruling of the first rule that applies to this node; a rule matches when it begins to apply."""
    found = NONE
    for number, rule in enumerate(state.spec.rules, 1):
        key, named = (node.node, rule), _named_by(rule, node)
        if not named:
            state.rules.holding.pop(key, None)
        elif not found[0]:
            why = _why(number, rule, named)
            if key not in state.rules.holding:
                state.rules.holding[key] = _is_due(state, rule, node.node)
                if state.rules.holding[key] and rule.dry_run:
                    _report_dry_run(state, rule, f"Node {node.node}", why, None)
            found = (rule.action, why) if state.rules.holding[key] and not rule.dry_run else NONE
    return found


def line(member: Member, match: LineMatched) -> str:
    more = f" ({match.count} such lines)" if match.count > 1 else ""
    return f"Rank {match.rank} on {member.id} wrote {quoted(match.line, len(match.line))}{more}"


def patterns(state: State) -> tuple[str, ...]:
    """The patterns that are searched for in the ranks' output."""
    desired = dict.fromkeys(rule.log_pattern for rule in state.spec.rules if rule.log_pattern)
    return tuple(pattern for pattern in desired if pattern not in state.rules.dropped_patterns)


def signature(state: State, member: Member, end: WorkerExit, ruling: Ruling) -> str:
    """Equal for equal errors that may be a crash loop; empty for an end that the user's policy restarts."""
    is_forgiven = ruling[0] == RESTART or restart_policy.forgives(state.spec, member.role, end.code)
    return "" if is_forgiven else error_signature.signature(end)


def edited(state: State) -> None:
    """Forgets the counts of rules that no longer exist."""
    left = set(state.spec.rules)
    state.rules.tried = {rule: at for rule, at in state.rules.tried.items() if rule in left}
    state.rules.hits = {key: hits for key, hits in state.rules.hits.items() if key[0] in left}
    state.rules.holding = {key: is_met for key, is_met in state.rules.holding.items() if key[1] in left}


# -- the first rule that matches and is due -----------------------------------------------------------------------
def _first(state: State, fits: Callable[[Rule], str], seen: str, member: MemberId, count: int = 1) -> Ruling:
    for number, rule in enumerate(state.spec.rules, 1):
        named = fits(rule)
        if named and _is_due(state, rule, member, count):
            why = _why(number, rule, named)
            if not rule.dry_run:
                return rule.action, why
            _report_dry_run(state, rule, seen, why, member)
    return NONE


def _named_by(rule: Rule, node: NodeSeen) -> str:
    if rule.taint and rule.taint in node.taints:
        return f"taint {rule.taint}"
    return "=".join(rule.condition) if rule.condition in node.conditions else ""


def _is_due(state: State, rule: Rule, subject: str, count: int = 1) -> bool:
    """Counts a match. True if the rule applies now."""
    if rule.times <= 1:
        return True
    key = (rule, "" if rule.action in (FAIL, RESTART) else subject)
    recent = [at for at in state.rules.hits.get(key, ()) if at > state.now - rule.within]
    recent += [state.now] * min(count, rule.times)
    is_due = len(recent) >= rule.times
    state.rules.hits.pop(key, None)
    if not is_due:
        state.rules.hits[key] = recent
    state.mark_status()
    return is_due


def _why(number: int, rule: Rule, named: str) -> str:
    often = f", met {rule.times} times within {seconds(rule.within)}" if rule.times > 1 else ""
    return f"rule {number} of recovery.rules requires {rule.action} for {named}{often}"


def _report_dry_run(state: State, rule: Rule, seen: str, why: str, member: MemberId | None) -> None:
    if state.now < state.rules.tried.get(rule, float("-inf")) + TRIED_AGAIN:
        return
    state.rules.tried[rule] = state.now
    state.announce(
        "RuleDryRun",
        f"{seen}: {why}. Nothing is done, because dryRun is set; remove it to apply the rule.",
        member,
        warning=True,
    )
