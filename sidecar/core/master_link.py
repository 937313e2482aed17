"""The way to the master: made, lost, made again; and who is a master.

Losing the master costs nothing: training goes on, and what was missed is said after the next Welcome. A master whose
term is lower than one that has welcomed this member was paused and does not know that it is history: it is not obeyed.

A member that reaches no neighbour either is another matter: `sidecar.core.self_fencing`.
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
"""Seconds that Hello waits for the hooks where an earlier sidecar served this member: they reconnect within 2 s, and a
Hello that forgets what runs would cost a generation."""

AT_ONCE = 5
"""So many refusals are asked about again as soon as the master wants it: it may only not have seen the pod yet."""
SLOWEST = 5.0
"""Seconds between two Hellos of a member that is refused again and again."""


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
    return [Announce("MasterLost", "the link to the master broke; training goes on", state.generation, "warning")]


def welcomed(state: State, welcome: Welcome, now: float) -> list[Action]:
    link = state.link
    if not link.up:
        return []  # it was on its way when the link broke
    newest = max(link.term, state.highest.term)  # a restarted sidecar knows it by what runs here
    if welcome.term < newest:
        why = f"a master of term {welcome.term} is not obeyed: one of term {newest} has been here"
        return [Announce("OldMaster", why, state.generation, "warning")]
    link.term, link.welcomed, link.hello_at = welcome.term, True, None
    link.ticket, link.refusal, link.refusals = welcome.ticket, "", 0
    link.report_every = max(0.1, welcome.report_every)
    link.silent_after = welcome.silent_after
    link.graces = (welcome.stop_grace, welcome.handler_grace, welcome.save_grace)
    if welcome.neighbours:
        peer_health.told(state, welcome.neighbours, now)
    told = hands_off.told(state, welcome.hands_off, "the master only observes this job")
    again = [
        *planned_save.again(state),
        *log_lines.again(state, now),
        *data_position.again(state),
        *checkpoints.again(state),
    ]
    return [*told, *outbox.everything(state, now), *again]


def refused(state: State, refusal: Refused, now: float) -> list[Action]:
    link = state.link
    link.welcomed, link.report_at = False, None
    text = f"the master does not serve this member: {refusal.reason}"
    lines: list[Action] = [] if link.refusal == text else [Announce("Refused", text, severity="warning")]
    link.refusal, link.refusals = text, link.refusals + 1
    if refusal.hands_off:
        lines += hands_off.told(state, True, refusal.reason)
    if refusal.retry_after < 0:
        link.hello_at = None
        return [*lines, *member_end.refused_for_good(state, refusal.reason, now)]
    pause = max(refusal.retry_after, min(refusal.retry_after * 2.0 ** max(link.refusals - AT_ONCE, 0), SLOWEST))
    link.hello_at = now + pause if link.up else None  # a new link says Hello by itself
    return lines
