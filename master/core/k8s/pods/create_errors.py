"""Why the API server does not make a pod: is it worth asking again, and when?

409 is told by the pod that has the name, 429, 5xx and no answer at all are told by `ApiError.may_pass`. What is left is
a refusal that stands as long as somebody does not change something: a quota, an admission webhook or policy, a service
account that is not there, a spec that is none. Only a namespace that goes stays gone.
"""

from __future__ import annotations

from outrider.master.core.text import brief

CONFLICT, TOO_MANY = 409, 429
TERMINATING = "because it is being terminated"
"""As every API server since 1.5 says it (plugin NamespaceLifecycle); newer ones add a cause."""


def is_refusal(status: int) -> bool:
    return 400 <= status < 500 and status not in (CONFLICT, TOO_MANY)


def is_final(status: int, message: str) -> bool:
    """The namespace is being deleted, or is no more."""
    return (status == 403 and TERMINATING in message) or (status == 404 and "namespaces" in message)


def sentence(message: str) -> str:
    """The server's own words, without the request that they answer."""
    return brief(message.partition(": ")[2] or message)
