"""Tickets: what a member shows to a later master instead of its token. With them a master's restart does not cost the
API server one question a member. Signed with a key that only masters have, bound to the pod's UID, good for an hour; a
member that is linked gets another one every half hour (`membership.connections`)."""

from __future__ import annotations

import hmac
from hashlib import sha256

from outrider.wire.messages.membership import Hello

SECONDS = 3600.0
"""As long as the token that it stands for."""


def issue(key: bytes, hello: Hello, now: float) -> str:
    """`now`: unix time."""
    until = f"{now + SECONDS:.0f}"
    return f"{until}.{_signature(key, hello, until)}"


def is_good(key: bytes, hello: Hello, now: float) -> bool:
    until, _, signature = hello.ticket.partition(".")
    if not until.isascii() or not until.isdigit() or len(until) > 12 or float(until) < now:
        return False
    expected = _signature(key, hello, until)
    return hmac.compare_digest(signature.encode("utf-8", "surrogatepass"), expected.encode())


def _signature(key: bytes, hello: Hello, until: str) -> str:
    said = "\n".join((hello.job, hello.member, hello.uid, until)).encode("utf-8", "surrogatepass")
    return hmac.new(key, said, sha256).hexdigest()
