"""`restartPolicy` of a role, as jobs of Kubeflow and KubeDL have it. It says which ends of a rank by itself end the
job.

Never: all of them. ExitCode: 1 to 127, which are the script's own; 128 and more say that a signal or something outside
has ended it (Kubeflow: `IsRetryableExitCode`, exitCode >= 128). OnFailure, Always, and none: no code does, and budgets
decide. It is about ranks that fail by themselves: a member that is lost, evicted or silent is replaced by any policy.
"""

from __future__ import annotations

from outrider.master.core.spec import JobSpec
from outrider.wire.ids import Role

ALWAYS, EXIT_CODE, NEVER, ON_FAILURE = "Always", "ExitCode", "Never", "OnFailure"
POLICIES = (ALWAYS, EXIT_CODE, NEVER, ON_FAILURE)
RETRYABLE_FROM = 128


def why_final(spec: JobSpec, role: Role, code: int) -> str:
    """Why a rank of this role that ends with this code ends the job; empty where it does not."""
    policy = spec.limits_of(role).restart_policy
    if policy == NEVER:
        return f"restartPolicy Never of the role {role} allows no other try"
    if policy == EXIT_CODE and code < RETRYABLE_FROM and code not in spec.retryable_codes:
        return f"exit code {code} is permanent by restartPolicy ExitCode of the role {role}"
    return ""


def forgives(spec: JobSpec, role: Role, code: int | None) -> bool:
    """It says nothing about the script."""
    is_retryable = code is not None and code >= RETRYABLE_FROM and spec.limits_of(role).restart_policy == EXIT_CODE
    return is_retryable or code in spec.retryable_codes
