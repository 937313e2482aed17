"""Checkpoints in this member's memory: which copies are whole, which step every rank has, what comes from others.

Who gets a copy from whom is the master's decision. Without a master ranks go on saving, and what was kept last stays.
A kept step never goes back within a generation; and nothing is written into the memory once worker processes are about
to begin, because they write into it themselves then; but for a save of the marked path, which only the member of rank 0
writes, and which that one is never sent.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.sidecar.core import outbox
from outrider.sidecar.core.actions import Action, Announce, FetchCopies, KeepCopies, StopFetching
from outrider.sidecar.core.state import State
from outrider.wire.messages.checkpoints import Copy, Fetch, Fetched, Kept, Remembered, Saved
from outrider.wire.messages.generation import Start

MOST_SAID_AGAIN = 16


def remembered(state: State, said: Remembered) -> list[Action]:
    """A rank's copy is whole."""
    if state.work is None or state.work.generation != said.generation:
        return []
    state.work.remembered[said.rank] = said
    return _say(state, said)


def saved(state: State, said: Saved) -> list[Action]:
    """A rank has saved to storage."""
    if state.work is not None and state.work.generation == said.generation:
        known = state.work.saved
        known.pop(said.path, None)
        known[said.path] = replace(said, again=True)
        if len(known) > MOST_SAID_AGAIN:
            del known[next(iter(known))]
    return outbox.say(state, said, f"{said.path} was saved", said.generation)


def again(state: State) -> list[Action]:
    """After a Welcome."""
    if state.work is None:
        return []
    actions = [action for _, said in sorted(state.work.remembered.items()) for action in _say(state, said)]
    for each in state.work.saved.values():
        actions += outbox.say(state, each, f"{each.path} was saved before", each.generation)
    return actions


def _say(state: State, said: Remembered) -> list[Action]:
    return outbox.say(state, said, f"step {said.step} of rank {said.rank} is in memory", said.generation)


def begins(state: State, start: Start) -> list[Action]:
    """What all ranks begin from is not written over, before there is one that all have again."""
    if start.begins_from < 0:
        return []
    return kept(state, Kept(start.generation, start.begins_from))


def kept(state: State, message: Kept) -> list[Action]:
    newest = (message.generation, message.step)
    if newest <= state.kept:
        return []
    state.kept = newest
    return [KeepCopies(message.step, message.generation, f"every rank has version {message.step} in memory")]


def fetch(state: State, order: Fetch) -> list[Action]:
    if state.fetched is not None and state.fetched.order == order.order:
        return _answer(state, state.fetched)
    if state.fetching is not None and state.fetching.order == order.order:
        return []  # it is on its way
    own = any(not each.held for each in order.wanted)
    is_read_only = order.marked and state.work is not None and state.work.generation == order.generation
    if own and state.work is not None and not is_read_only:
        refused = f"worker processes of generation {state.work.generation} use this memory"
        return _answer(state, Fetched(order.order, order.generation, order.step, error=refused))
    stopped = stop_fetching(state)
    state.fetching = order
    nproc = (state.trainer.nproc if state.trainer else None) or (state.me.nproc if state.me else 1)
    reason = order.reason or f"copies of step {order.step} are taken over"
    return [*stopped, FetchCopies(order, nproc, order.generation, reason)]


def fetched(state: State, answer: Fetched, copies: tuple[Copy, ...] = ()) -> list[Action]:
    """Before the answer the master hears what is whole here now: the world that it was for may be over."""
    if state.fetching is None or state.fetching.order != answer.order:
        return []
    state.fetching, state.fetched = None, answer
    how = f"was not taken over: {answer.error}" if answer.error else f"was taken over in {answer.seconds:.2f} s"
    line = Announce("CopyFetched", f"step {answer.step} {how}", answer.generation,
                    "warning" if answer.error else "normal")  # fmt: skip
    if answer.error:
        return [line, *_answer(state, answer)]
    state.copies = copies
    return [line, *outbox.ready(state), *_answer(state, answer)]


def _answer(state: State, answer: Fetched) -> list[Action]:
    return outbox.say(state, answer, f"step {answer.step} was asked to be taken over", answer.generation)


def stop_fetching(state: State) -> list[Action]:
    """Before worker processes start, or another copy is fetched."""
    going_on, state.fetching = state.fetching, None
    if going_on is None:
        return []
    return [StopFetching(state.generation, f"step {going_on.step} is not waited for any more")]
