"""Applies the `restartPolicy` of a role, as Kubeflow and KubeDL define it: which exits of a rank end the job.

Never: all of them. ExitCode: 1 to 127, which are the script's own; 128 and more mean that a signal or something outside
has ended the rank (Kubeflow: `IsRetryableExitCode`, exitCode >= 128). OnFailure, Always, and none: no code does, and
budgets decide. The policy is about ranks that fail by themselves: a member that is lost, evicted or silent is replaced
under any policy.
"""

from __future__ import annotations

from outrider.master.core.spec import JobSpec
from outrider.wire.ids import Role

ALWAYS, EXIT_CODE, NEVER, ON_FAILURE = "Always", "ExitCode", "Never", "OnFailure"
POLICIES = (ALWAYS, EXIT_CODE, NEVER, ON_FAILURE)
RETRYABLE_FROM = 128


def why_final(spec: JobSpec, role: Role, code: int) -> str:
    """Why a rank of this role with this exit code ends the job; empty if it does not."""
    policy = spec.limits_of(role).restart_policy
    if policy == NEVER:
        return f"restartPolicy Never of the role {role} does not allow a restart"
    if policy == EXIT_CODE and code < RETRYABLE_FROM and code not in spec.retryable_codes:
        return f"exit code {code} is permanent under restartPolicy ExitCode of the role {role}"
    return ""


def forgives(spec: JobSpec, role: Role, code: int | None) -> bool:
    """Whether an exit with this code says nothing about the script."""
    is_retryable = code is not None and code >= RETRYABLE_FROM and spec.limits_of(role).restart_policy == EXIT_CODE
    return is_retryable or code in spec.retryable_codes
