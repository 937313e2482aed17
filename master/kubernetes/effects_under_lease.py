"""What a master may do past its Lease: only begin a saved world again (`membership.past_lease`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from outrider.master.core.actions import Action
from outrider.master.core.membership import past_lease
from outrider.master.service.effects import MasterEffects


class PastLease(Exception):
    """What is not done now; the core wants it again later, if it still does."""


class EffectsUnderLease:
    """A master that was frozen finds out here, before it acts."""

    def __init__(self, effects: MasterEffects, is_master: Callable[[], bool]) -> None:
        self._effects, self._is_master = effects, is_master

    def perform(self, action: Action) -> Coroutine[object, object, None] | None:
        if not self._is_master() and not past_lease.may_be_done(action):
            raise PastLease("the Lease has run out, and another replica may be the master")
        return self._effects.perform(action)
