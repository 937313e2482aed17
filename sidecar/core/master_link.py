"""The link to the master: up, lost and up again; and which masters are obeyed.

Losing the master costs nothing: training continues, and what it missed is sent after the next Welcome. A master whose
term is lower than that of one that has welcomed this member is not obeyed: it was paused and does not know that it has
been replaced. For a member that reaches no neighbour either, see `sidecar.core.self_fencing`.
"""

from __future__ import annotations

from outrider.sidecar.core import (
    checkpoints,
    data_position,
    hands_off,
    log_lines,
    member_end,
    outbox,
    peer_health,
    planned_save,
    unsupervised,
)
from outrider.sidecar.core.actions import Action, Announce
from outrider.sidecar.core.state import State
from outrider.wire.messages.membership import Refused, Welcome

HOOKS_FIRST = 2.5
"""Seconds that Hello waits for the hooks if an earlier sidecar served this member: they reconnect within 2 s, and a
Hello that omits the running generation would cost that generation."""

AT_ONCE = 5
"""Number of refusals after which Hello is repeated as soon as the master permits: it may not have seen the pod yet."""
SLOWEST = 5.0
"""Longest pause in seconds between two Hellos of a member that is refused repeatedly."""


def connected(state: State, now: float) -> list[Action]:
    state.link.up, state.link.welcomed = True, False
    away = "" if state.link.down_since is None else f" after {now - state.link.down_since:.1f} s"
    state.link.down_since = None
    line = Announce("MasterConnected", f"the link to the master is up{away}", state.generation)
    if state.unsure_until is not None:
        state.link.hello_at = now + HOOKS_FIRST
        return [line]
    return [line, *outbox.hello(state, now)]


def disconnected(state: State, now: float) -> list[Action]:
    link = state.link
    if not link.up:
        return []
    link.up = link.welcomed = link.report_due = False
    link.hello_at = link.report_at = None
    link.down_since = now
    unsupervised.master_lost(state, now)
    return [Announce("MasterLost", "the link to the master broke; training continues", state.generation, "warning")]


def welcomed(state: State, welcome: Welcome, now: float) -> list[Action]:
    link = state.link
    if not link.up:
        return []  # it was in flight when the link broke
    newest = max(link.term, state.highest.term)  # a restarted sidecar knows the term by the generation that runs
    if welcome.term < newest:
        why = f"orders of a master of term {welcome.term} are ignored: a master of term {newest} has served this member"
        return [Announce("OldMaster", why, state.generation, "warning")]
    link.term, link.welcomed, link.hello_at = welcome.term, True, None
    link.ticket, link.refusal, link.refusals = welcome.ticket, "", 0
    link.report_every = max(0.1, welcome.report_every)
    link.silent_after = welcome.silent_after
    link.graces = (welcome.stop_grace, welcome.handler_grace, welcome.save_grace)
    if welcome.neighbours:
        peer_health.neighbours_changed(state, welcome.neighbours, now)
    mode = hands_off.ordered(state, welcome.hands_off, "the master only observes this job")
    again = [
        *planned_save.again(state),
        *log_lines.again(state, now),
        *data_position.again(state),
        *checkpoints.again(state),
    ]
    return [*mode, *outbox.everything(state, now), *again]


def refused(state: State, refusal: Refused, now: float) -> list[Action]:
    link = state.link
    link.welcomed, link.report_at = False, None
    text = f"the master does not serve this member: {refusal.reason}"
    lines: list[Action] = [] if link.refusal == text else [Announce("Refused", text, severity="warning")]
    link.refusal, link.refusals = text, link.refusals + 1
    if refusal.hands_off:
        lines += hands_off.ordered(state, True, refusal.reason)
    if refusal.retry_after < 0:
        link.hello_at = None
        return [*lines, *member_end.refused_for_good(state, refusal.reason, now)]
    pause = max(refusal.retry_after, min(refusal.retry_after * 2.0 ** max(link.refusals - AT_ONCE, 0), SLOWEST))
    link.hello_at = now + pause if link.up else None  # a new link sends Hello by itself
    return lines
