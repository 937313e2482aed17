"""What the user says about exit codes: `recovery.rules` and `recovery.exitCodes`, before any remedy of ours.

The first rule that names a rank's exit code decides, then the permanent codes. A rank that a signal ended has the code
that a shell would show, 128 + the signal. An error that another rank's end brings about is nobody's rule.

fail: the job ends with it, unless the loss of its member explains it. restart: its ranks begin again in place, whatever
we would have done. replace: its member fails, and another pod takes its place. replaceNode: that, and new pods keep off
its node for a day. Codes that are retryable, or that a rule restarts, say nothing about the script: they are never a
crash loop, and cost a restart like any other.
"""

from __future__ import annotations

from master.core import errors
from master.core.events import NodeSeen
from master.core.spec import FAIL, RESTART, JobSpec
from wire.messages import WorkerExit


def verdict(spec: JobSpec, end: WorkerExit) -> tuple[str, str]:
    """What the user wants done about this end, and which words of his say so; empty where none do."""
    if end.code == 0 or errors.is_effect(end):
        return "", ""
    code = errors.exit_code(end)
    for number, rule in enumerate(spec.rules):
        if code in rule.exit_codes:
            return rule.action, f"rule {number + 1} of recovery.rules says {rule.action} for exit code {code}"
    if code in spec.permanent_codes:
        return FAIL, f"exit code {code} is permanent (recovery.exitCodes)"
    return "", ""


def of_node(spec: JobSpec, node: NodeSeen) -> tuple[str, str]:
    """What the first rule says that names a condition or taint of this node, and why; empty where none does."""
    for number, rule in enumerate(spec.rules):
        what = ""
        if rule.taint and rule.taint in node.taints:
            what = f"taint {rule.taint}"
        elif rule.condition in node.conditions:
            what = "=".join(rule.condition)
        if what:
            return rule.action, f"rule {number + 1} of recovery.rules says {rule.action} for {what}"
    return "", ""


def signature(spec: JobSpec, end: WorkerExit) -> str:
    """Equal for equal errors that may be a crash loop."""
    is_forgiven = verdict(spec, end)[0] == RESTART or end.code in spec.retryable_codes
    return "" if is_forgiven else errors.signature(end)
