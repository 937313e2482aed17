"""After its Lease has run out, a master may only start a saved generation again (`membership.past_lease`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from outrider.master.core.actions import Action
from outrider.master.core.membership import past_lease
from outrider.master.service.effects import MasterEffects


class PastLease(Exception):
    """The action is not performed, as the Lease has run out; the core repeats it later if it is still needed."""


class EffectsUnderLease:
    """Checks the Lease before each action, so that a master that was frozen does not act past its Lease."""

    def __init__(self, effects: MasterEffects, is_master: Callable[[], bool]) -> None:
        self._effects, self._is_master = effects, is_master

    def perform(self, action: Action) -> Coroutine[object, object, None] | None:
        if not self._is_master() and not past_lease.may_be_done(action):
            raise PastLease("the Lease has run out; another replica may be the master")
        return self._effects.perform(action)
