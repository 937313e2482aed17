"""What the user says about lines of the ranks' output: `recovery.rules` by `logPattern`.

The lines are found beside the trainer and told at once, maybe more than once. fail ends the job. replace and
replaceNode follow what a member wrote in an earlier generation too, because it speaks against the member. restart does
not: its ranks have begun again since. It costs a restart of the budget, or a script that writes the line each time
would begin again for ever.
"""

from __future__ import annotations

from outrider.master.core.faults import failure_policy, pod_replacement, recovery
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.scaling import log_metrics
from outrider.master.core.spec import FAIL, RESTART
from outrider.master.core.state.job import REBUILDING, RUNNING, State
from outrider.master.core.state.member import Member
from outrider.master.core.text import quoted
from outrider.wire.messages.log_lines import LineMatched, PatternDropped

CODE = 1
"""What the job, or the container of a member that is replaced, ends with."""


def matched(state: State, member: Member, said: LineMatched) -> None:
    """A new master keeps it until it knows the world."""
    if said.serial <= state.rules.log_serials.get(member.id, 0):
        return
    state.rules.log_serials[member.id] = said.serial
    log_metrics.matched(state, member, said)
    if state.stage == REBUILDING:
        state.earlier.defer(member.id, said)
    else:
        follow(state, member, said)


def follow(state: State, member: Member, said: LineMatched) -> None:
    if state.is_over or member.deleting or said.pattern in state.rules.dropped_patterns:
        return
    action, why = failure_policy.of_line(state, member, said)
    reason = f"{failure_policy.line(member, said)}: {why}"
    if action == FAIL:
        generation_job_end.fail(state, CODE, f"{reason}.")
    elif action == RESTART:
        world = state.world
        if world is not None and state.stage == RUNNING and world.generation == said.generation:
            recovery.begin(state, "LogRuleMet", f"{reason}.", member)
    elif action:
        pod_replacement.follow(state, member, action, reason, CODE)


def dropped(state: State, member: Member, said: PatternDropped) -> None:
    """Told once a pattern; no later generation is asked for it."""
    log_metrics.dropped(state, member, said)
    numbers = [str(n) for n, rule in enumerate(state.spec.rules, 1) if rule.log_pattern == said.pattern]
    if not numbers or said.pattern in state.rules.dropped_patterns:
        return
    state.rules.drop(said.pattern)
    name = f"{quoted(said.pattern)}, the logPattern of rule {' and '.join(numbers)} of recovery.rules"
    on = f": {quoted(said.line)}" if said.line else ""
    state.announce("RuleDisabled", f"{name}, is followed no more: on {member.id} {said.reason}{on}.", member.id,
                   warning=True)  # fmt: skip
    state.mark_status()
