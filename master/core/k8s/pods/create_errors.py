"""Errors of the API server when it is asked to create a pod: whether to try again.

For 409 the pod that has the name decides; for 429, 5xx and a missing response `ApiError.may_pass` does. All other
errors are rejections that last until a user changes something: a quota, an admission webhook or policy, a missing
service account, an invalid spec. Only a namespace that is being deleted is a final rejection.
"""

from __future__ import annotations

from outrider.master.core.text import brief

CONFLICT, TOO_MANY = 409, 429
TERMINATING = "because it is being terminated"
"""Part of the message of every API server since 1.5 (plugin NamespaceLifecycle); newer ones add a cause."""


def is_refusal(status: int) -> bool:
    """Whether the HTTP status is a rejection."""
    return 400 <= status < 500 and status not in (CONFLICT, TOO_MANY)


def is_final(status: int, message: str) -> bool:
    """Whether the namespace is being deleted or does not exist any more."""
    return (status == 403 and TERMINATING in message) or (status == 404 and "namespaces" in message)


def sentence(message: str) -> str:
    """The API server's message without the description of the request."""
    return brief(message.partition(": ")[2] or message)
