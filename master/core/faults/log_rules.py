"""Applies the user's rules about lines of the ranks' output: `recovery.rules` with a `logPattern`.

The lines are found beside the trainer and reported at once, maybe more than once. fail ends the job. replace and
replaceNode also apply to a line of an earlier generation, because it counts against the member. restart does not,
because the ranks have restarted since. It costs a restart of the budget: otherwise a script that writes the line each
time would restart for ever.
"""

from __future__ import annotations

from outrider.master.core.faults import failure_policy, pod_replacement, recovery
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.history import notes
from outrider.master.core.scaling import log_metrics
from outrider.master.core.spec import FAIL, RESTART
from outrider.master.core.state.job import REBUILDING, RUNNING, State
from outrider.master.core.state.member import Member
from outrider.master.core.text import quoted
from outrider.wire.messages.log_lines import LineMatched, PatternDropped

CODE = 1
"""Exit code of the job, or of the container of a member that is replaced."""


def matched(state: State, member: Member, match: LineMatched) -> None:
    """Takes a matched line. A new master defers it until it knows the generation."""
    if match.serial <= state.rules.log_serials.get(member.id, 0):
        return
    state.rules.log_serials[member.id] = match.serial
    log_metrics.matched(state, member, match)
    if state.stage == REBUILDING:
        state.earlier.defer(member.id, match)
    else:
        follow(state, member, match)


def follow(state: State, member: Member, match: LineMatched) -> None:
    if state.is_over or member.deleting or match.pattern in state.rules.dropped_patterns:
        return
    action, why = failure_policy.of_line(state, member, match)
    if action:
        notes.line(state, member, match)
    reason = f"{failure_policy.line(member, match)}: {why}"
    if action == FAIL:
        generation_job_end.fail(state, CODE, f"{reason}.")
    elif action == RESTART:
        world = state.world
        if world is not None and state.stage == RUNNING and world.generation == match.generation:
            recovery.begin(state, "LogRuleMet", f"{reason}.", member)
    elif action:
        pod_replacement.follow(state, member, action, reason, CODE)


def dropped(state: State, member: Member, drop: PatternDropped) -> None:
    """Disables the rules of a pattern that cannot be used, for all later generations. Reported once a pattern."""
    log_metrics.dropped(state, member, drop)
    numbers = [str(n) for n, rule in enumerate(state.spec.rules, 1) if rule.log_pattern == drop.pattern]
    if not numbers or drop.pattern in state.rules.dropped_patterns:
        return
    state.rules.drop(drop.pattern)
    name = f"{quoted(drop.pattern)}, the logPattern of rule {' and '.join(numbers)} of recovery.rules"
    on = f": {quoted(drop.line)}" if drop.line else ""
    text = f"{name}, is disabled until the rule is edited: on {member.id} {drop.reason}{on}."
    state.announce("RuleDisabled", text, member.id, warning=True)
    state.mark_status()
