"""The handlers of each message of a member; if several domains need one message, their order is here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outrider.master.core.account import ledger
from outrider.master.core.actions import Send
from outrider.master.core.checkpoints import data_position, memory_tier, planned_save, restore
from outrider.master.core.faults import log_rules, pod_replacement, recovery
from outrider.master.core.generation import orders, progress, readiness
from outrider.master.core.hangs import diagnostics as hangs_diagnostics
from outrider.master.core.hangs import progress_watch
from outrider.master.core.membership import connections as membership_connections
from outrider.master.core.membership import (
    failure_detector,
)
from outrider.master.core.network import partition
from outrider.master.core.nodecheck import rounds as nodecheck_rounds
from outrider.master.core.scaling import autoscaler
from outrider.master.core.scaling import resize as scaling_resize
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.stragglers import remedy as stragglers_remedy
from outrider.wire.messages.checkpoints import Fetched, Remembered, Saved, StateOffered, StateSaved
from outrider.wire.messages.data_position import DataSaid
from outrider.wire.messages.diagnostics import Answer
from outrider.wire.messages.generation import Acknowledged, Exited, Ready, Started, StartFailed, Stepped, Stopped
from outrider.wire.messages.links import Ping, Pong, Probed
from outrider.wire.messages.log_lines import LineMatched, PatternDropped
from outrider.wire.messages.membership import Leaving, TrainerExited, TrainerLost
from outrider.wire.messages.node_check import Checked
from outrider.wire.messages.report import Report


def _exited(state: State, member: Member, message: Exited) -> None:
    ledger.noted(state, member, message.generation, message.spent, max(end.step for end in message.exits), is_last=True)
    recovery.exited(state, member, message)
    partition.ended(state, member)
    pod_replacement.exited(state, member, message)


def _trainer_lost(state: State, member: Member, message: TrainerLost) -> None:
    step = max((end.step for end in message.exits), default=0)
    ledger.noted(state, member, message.generation, message.spent, step, is_last=True)
    recovery.trainer_lost(state, member, message)


def _stopped(state: State, member: Member, message: Stopped) -> None:
    ledger.noted(state, member, message.generation, message.spent, message.step, is_last=True)
    membership_connections.stopped(state, member, message)


def _stepped(state: State, member: Member, message: Stepped) -> None:
    ledger.noted(state, member, message.generation, message.spent, message.step)
    progress.stepped(state, member, message)


def _reported(state: State, member: Member, message: Report) -> None:
    progress.note_report(state, member, message)
    ledger.reported(state, member, message)
    progress_watch.note_report(state, member, message)
    membership_connections.check_report(state, member, message)
    stragglers_remedy.note_report(state, member, message)
    partition.note_report(state, member, message)
    autoscaler.note_report(state, member, message)


def _pinged(state: State, member: Member, message: Ping) -> None:
    """Answers a member that reaches none of its neighbours and checks whether it is cut off."""
    if member.session is not None:
        reason = f"{member.id} checks whether the master hears it."
        state.act(Send(member.session, member.id, Pong(message.number), state.generation, reason))


def _probed(state: State, member: Member, message: Probed) -> None:
    failure_detector.probed(state, member, message)
    partition.probed(state, member, message)


def _fetched(state: State, member: Member, message: Fetched) -> None:
    orders.acknowledge(state, member, message.order)
    restore.fetched(state, member, message)
    memory_tier.fetched(state, member, message)


def _acknowledged(state: State, member: Member, message: Acknowledged) -> None:
    orders.acknowledge(state, member, message.order)
    if state.is_over:
        readiness.stir(state)


MESSAGES: dict[type, Callable[[State, Member, Any], None]] = {
    Ready: membership_connections.ready,
    Started: membership_connections.started,
    StartFailed: membership_connections.start_failed,
    Stopped: _stopped,
    Exited: _exited,
    Report: _reported,
    Stepped: _stepped,
    Saved: progress.saved,
    TrainerLost: _trainer_lost,
    TrainerExited: recovery.trainer_exited,
    Leaving: scaling_resize.leaving,
    Probed: _probed,
    Ping: _pinged,
    Answer: hangs_diagnostics.answered,
    Checked: nodecheck_rounds.answered,
    LineMatched: log_rules.matched,
    PatternDropped: log_rules.dropped,
    DataSaid: data_position.reported,
    StateOffered: planned_save.offered,
    StateSaved: planned_save.saved,
    Remembered: memory_tier.remembered,
    Fetched: _fetched,
    Acknowledged: _acknowledged,
}
