"""In-memory checkpoints of this member: complete ones, the step that every rank has, replicas from other members.

The master decides which member sends a replica to which. Without a master ranks continue saving, and the last step that
all ranks have stays in memory. That step never decreases within a generation. Once worker processes are about to start,
the sidecar writes nothing into the memory, because they write into it themselves. The exception is a save to the
checkpoint path: only the member of rank 0 writes those, and that member is never sent one.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.sidecar.core import outbox
from outrider.sidecar.core.actions import Action, Announce, FetchCopies, KeepCopies, StopFetching
from outrider.sidecar.core.state import State
from outrider.wire.messages.checkpoints import Copy, Fetch, Fetched, Kept, Remembered, Saved
from outrider.wire.messages.generation import Start

MOST_REPEATED = 16
"""Most saves of a generation that are reported again after a Welcome."""


def remembered(state: State, report: Remembered) -> list[Action]:
    """Reports that a rank has a complete checkpoint in memory."""
    if state.work is None or state.work.generation != report.generation:
        return []
    state.work.remembered[report.rank] = report
    return _send(state, report)


def saved(state: State, report: Saved) -> list[Action]:
    """Reports that a rank has saved to storage."""
    if state.work is not None and state.work.generation == report.generation:
        known = state.work.saved
        known.pop(report.path, None)
        known[report.path] = replace(report, again=True)
        if len(known) > MOST_REPEATED:
            del known[next(iter(known))]
    return outbox.say(state, report, f"{report.path} was saved", report.generation)


def again(state: State) -> list[Action]:
    """Repeats the reports after a Welcome."""
    if state.work is None:
        return []
    actions = [action for _, report in sorted(state.work.remembered.items()) for action in _send(state, report)]
    for each in state.work.saved.values():
        actions += outbox.say(state, each, f"{each.path} was saved before", each.generation)
    return actions


def _send(state: State, report: Remembered) -> list[Action]:
    return outbox.say(state, report, f"step {report.step} of rank {report.rank} is in memory", report.generation)


def begins(state: State, start: Start) -> list[Action]:
    """Protects the checkpoint that all ranks start from until all ranks have a newer one."""
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
        return []  # the transfer is in progress
    own = any(not each.held for each in order.wanted)
    is_read_only = order.marked and state.work is not None and state.work.generation == order.generation
    if own and state.work is not None and not is_read_only:
        refused = f"worker processes of generation {state.work.generation} use this memory"
        return _answer(state, Fetched(order.order, order.generation, order.step, error=refused))
    stopped = stop_fetching(state)
    state.fetching = order
    nproc = (state.trainer.nproc if state.trainer else None) or (state.me.nproc if state.me else 1)
    reason = order.reason or f"replicas of step {order.step} are fetched"
    return [*stopped, FetchCopies(order, nproc, order.generation, reason)]


def fetched(state: State, answer: Fetched, copies: tuple[Copy, ...] = ()) -> list[Action]:
    """Sends the complete checkpoints, then the answer: the generation that the transfer was for may be over."""
    if state.fetching is None or state.fetching.order != answer.order:
        return []
    state.fetching, state.fetched = None, answer
    how = f"could not be fetched: {answer.error}" if answer.error else f"was fetched in {answer.seconds:.2f} s"
    line = Announce("CopyFetched", f"step {answer.step} {how}", answer.generation,
                    "warning" if answer.error else "normal")  # fmt: skip
    if answer.error:
        return [line, *_answer(state, answer)]
    state.copies = copies
    return [line, *outbox.ready(state), *_answer(state, answer)]


def _answer(state: State, answer: Fetched) -> list[Action]:
    return outbox.say(state, answer, f"the master ordered to fetch step {answer.step}", answer.generation)


def stop_fetching(state: State) -> list[Action]:
    """Stops the transfer in progress, before worker processes start or another replica is fetched."""
    current, state.fetching = state.fetching, None
    if current is None:
        return []
    return [StopFetching(state.generation, f"step {current.step} is no longer needed")]
