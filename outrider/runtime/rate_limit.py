"""Limits the messages and bytes of one peer, so that a peer that sends too much does not affect others.

There are two token buckets, for messages and for bytes. If they are empty, a message that can be missed (a report that
the next one replaces) is skipped unread; any other message uses tokens of the next seconds. A peer that has used up
these too is disconnected, and not served again before its buckets are full.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum


class Verdict(Enum):
    TAKE = "take"
    PASS_OVER = "pass over"
    HANG_UP = "hang up"


@dataclass(slots=True)
class RateLimit:
    """The token buckets of one peer."""

    messages: float
    """The most messages at once."""
    messages_a_second: float
    bytes: float
    bytes_a_second: float
    longest: int | None = None
    """The most bytes of a message; a peer that sends a longer one is disconnected."""
    _messages: float = field(init=False)
    _bytes: float = field(init=False)
    _received: float = field(init=False, default=0.0)
    """The cost of receiving skipped messages, which have no other cost."""
    _at: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._messages, self._bytes = self.messages, self.bytes

    def spend(self, size: int, now: float, can_be_missed: Callable[[], bool]) -> Verdict:
        """Take tokens for a message of `size` bytes, and decide what happens to it."""
        self._fill(now)
        if self.longest is not None and size > self.longest:
            return Verdict.HANG_UP
        if self._messages < -self.messages or self._bytes < -self.bytes or self._received > RECEIVED * self.messages:
            return Verdict.HANG_UP
        if (self._messages < 1 or self._bytes < size) and can_be_missed():
            self._received += 1
            self._bytes -= size / RECEIVED
            return Verdict.PASS_OVER
        self._messages -= 1
        self._bytes -= size
        return Verdict.TAKE

    def is_spent(self, now: float) -> bool:
        self._fill(now)
        return self._messages < 1 or self._bytes < 1

    def is_full(self, now: float) -> bool:
        self._fill(now)
        return self._messages >= self.messages and self._bytes >= self.bytes and not self._received

    def _fill(self, now: float) -> None:
        past, self._at = max(0.0, now - self._at), now
        self._messages = min(self.messages, self._messages + past * self.messages_a_second)
        self._bytes = min(self.bytes, self._bytes + past * self.bytes_a_second)
        self._received = max(0.0, self._received - past * RECEIVED * self.messages_a_second)


RECEIVED = 10
"""How much cheaper it is to receive and skip a message than to read it."""
