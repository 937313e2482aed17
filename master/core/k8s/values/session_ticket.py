"""Session tickets, which a member presents to a later master instead of its token.

With tickets, a master's restart does not cost the API server one token review per member. A ticket is signed with a key
that only masters have, bound to the pod's UID, and valid for one hour. A connected member gets a new ticket every half
hour (`membership.connections`).
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from outrider.wire.messages.membership import Hello

SECONDS = 3600.0
"""Validity of a ticket in seconds, the same as that of the token it replaces."""


def issue(key: bytes, hello: Hello, now: float) -> str:
    """A new ticket for a member. `now`: Unix time."""
    until = f"{now + SECONDS:.0f}"
    return f"{until}.{_signature(key, hello, until)}"


def is_good(key: bytes, hello: Hello, now: float) -> bool:
    """Whether the ticket in this Hello is valid. `now`: Unix time."""
    until, _, signature = hello.ticket.partition(".")
    if not until.isascii() or not until.isdigit() or len(until) > 12 or float(until) < now:
        return False
    expected = _signature(key, hello, until)
    return hmac.compare_digest(signature.encode("utf-8", "surrogatepass"), expected.encode())


def _signature(key: bytes, hello: Hello, until: str) -> str:
    signed = "\n".join((hello.job, hello.member, hello.uid, until)).encode("utf-8", "surrogatepass")
    return hmac.new(key, signed, sha256).hexdigest()
