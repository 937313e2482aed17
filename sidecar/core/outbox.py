"""Messages to the master, which are sent again after each Welcome.

A broken link loses the messages in flight, and a new master knows nothing. So nothing is queued: all that still matters
follows from the state, and `everything` sends it after each Welcome. Sending a message twice is harmless.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.sidecar.core import peer_links
from outrider.sidecar.core.actions import Action, ReadPages, SampleUsage, Send
from outrider.sidecar.core.state import Phase, State, Work
from outrider.wire.ids import NO_GENERATION, Generation, OrderId
from outrider.wire.messages.directions import FromSidecar
from outrider.wire.messages.generation import Exited, Ready, Started, Stepped, Stopped, WorkerExit
from outrider.wire.messages.membership import Hello, Leaving, TrainerExited, TrainerLost
from outrider.wire.messages.report import Report, Spent

FIRST = 0
"""The local rank that stands for its member in the time account."""
MANY, SELDOM = 32, 10
"""The number of members above which only every tenth report has what a rank has spent its time on: the seconds are
cumulative, so none is lost, and the master of a thousand members has less to read."""
HELLO_AGAIN = 5.0
"""Seconds after which an unanswered Hello is repeated."""


def say(state: State, message: FromSidecar, reason: str, generation: Generation | None = None) -> list[Action]:
    """Sends to a master that has welcomed us; otherwise nothing, as `everything` sends what is still true later."""
    if not state.link.welcomed:
        return []
    return [Send(message, state.generation if generation is None else generation, reason)]


def hello(state: State, now: float) -> list[Action]:
    """Introduces this member and reports what runs: on a new link, after a refusal, or when a hook has reported
    late."""
    me = state.me
    if me is None or not state.link.up:
        return []
    state.link.hello_at = now + HELLO_AGAIN
    work = state.work
    message = Hello(
        job=me.job,
        member=me.member,
        uid=me.uid,
        role=me.role,
        rank_index=me.rank_index,
        token=me.token,
        address=me.address,
        probe_port=me.probe_port,
        running=work.generation if work and _may_live(state, work) else NO_GENERATION,
        group_rank=work.start.group_rank if work and work.start else None,
        highest=state.highest,
        finished=state.phase is Phase.DONE,
        rung=state.trainer.rung if state.trainer else "",
        rung_reason=state.trainer.rung_reason if state.trainer else "",
        trainer_pid=state.trainer.pid if state.trainer else 0,
        ticket=state.link.ticket,
        isolated=state.isolated,
        machine=me.machine,
        memory_port=me.memory_port,
        memory_key=me.memory_key,
        offers=work is not None and work.offers is not None,
        term=max(state.link.term, state.highest.term),
        unsupervised=state.alone.is_final,
    )
    return [Send(message, state.generation, f"{me.member} introduces itself")]


def _may_live(state: State, work: Work) -> bool:
    """Whether workers may be alive, also if a reconnected hook has not yet reported the ends of those it omits."""
    return state.phase in (Phase.FORKING, Phase.STOPPING) or work.alive > 0 or bool(work.doubt)


def everything(state: State, now: float) -> list[Action]:
    """Sends, after a Welcome, all that the master must know and may have missed."""
    actions = [*lost(state, now), *command_ended(state), *leaving(state, now)]
    if state.work is not None and state.work.pids:
        actions += started(state) + exited(state, state.work.ends(now), now) + stepped(state, now)
    return actions + ready(state) + begin_report(state, now)


def ready(state: State) -> list[Action]:
    trainer, me = state.trainer, state.me
    if state.phase is not Phase.READY or trainer is None or me is None or not state.port or state.ending:
        return []
    message = Ready(
        port=state.port,
        nproc=trainer.nproc or me.nproc,
        rung=trainer.rung,
        rung_reason=trainer.rung_reason,
        trainer_pid=trainer.pid,
        after=state.stopped,
        max_restarts=trainer.max_restarts,
        copies=state.copies,
    )
    return say(state, message, f"no older process runs here, and the {trainer.what} can start worker processes")


def started(state: State) -> list[Action]:
    work = state.work
    if work is None or work.start is None or not work.pids:
        return []
    pids = tuple(pid for _, pid in sorted(work.pids.items()))
    return say(state, Started(work.start_order, work.generation, pids), f"{len(pids)} worker processes run")


def exited(state: State, exits: tuple[WorkerExit, ...], now: float) -> list[Action]:
    work = state.work
    if work is None or not exits:
        return []
    sentence = "; ".join(how_it_ended(each) for each in exits)
    is_of_first = any(exit.local_rank == FIRST for exit in exits)
    spent = aged(work.spent, now) if is_of_first else None
    return say(state, Exited(work.generation, exits, work.alive, spent), sentence)


def aged(spent: tuple[Spent, float] | None, now: float) -> Spent | None:
    """What a rank has spent its time on, as it would be read now: it may be sent long after it was read."""
    if spent is None:
        return None
    found, more = spent[0], max(0.0, now - spent[1])
    return replace(
        found,
        age=found.age + more,
        since_first_step=found.since_first_step + more if found.since_first_step >= 0 else -1.0,
        step_age=found.step_age + more,
        doing_for=found.doing_for + more if found.doing else 0.0,
    )


def stopped(state: State, order: OrderId, generation: Generation, now: float) -> list[Action]:
    age = max(0.0, now - state.stopped_at) if state.stopped_step else 0.0
    spent = aged(state.stopped_spent, now)
    message = Stopped(order, generation, state.stopped_step, age, state.stopped_killed, spent)
    return say(state, message, f"no process of generation {generation} or older runs here", generation)


def stepped(state: State, now: float) -> list[Action]:
    work = state.work
    if work is None or work.stepped is None:
        return []
    step, moment, base = work.stepped
    message = Stepped(work.generation, step, max(0.0, now - moment), base, aged(work.spent, now))
    return say(state, message, f"step {step} is the first new one")


def lost(state: State, now: float) -> list[Action]:
    if state.lost is None:
        return []
    reason, generation, exits, spent = state.lost
    return say(state, TrainerLost(reason, generation, exits, aged(spent, now)), reason, generation)


def command_ended(state: State) -> list[Action]:
    if state.command_ended is None:
        return []
    code, reason = state.command_ended
    return say(state, TrainerExited(code, reason), reason)


def leaving(state: State, now: float) -> list[Action]:
    ending = state.ending
    if ending is None or ending.leave_at is None:
        return []
    grace = max(0.0, ending.announced_grace_until - now)
    return say(state, Leaving(ending.reason, grace), f"this member must end: {ending.reason}")


# -- the report
#
def begin_report(state: State, now: float) -> list[Action]:
    """Requests fresh numbers; the report is sent with `UsageSampled`, the last of them.

    A report that is still due when the next one begins is sent with the numbers at hand, as a sign of life must not
    wait.
    """
    link = state.link
    if not link.welcomed:
        link.report_at = None
        return []
    overdue = report(state, now) if link.report_due else []
    link.report_at, link.report_due = now + link.report_every, True
    actions: list[Action] = list(overdue)
    if state.phase is Phase.RUNNING:
        actions.append(ReadPages(state.generation, "a report is due"))
    return [*actions, SampleUsage(_trainer_pids(state), state.generation, "a report is due")]


def report(state: State, now: float) -> list[Action]:
    """Sends the report, which is also the sign of life."""
    state.link.report_due = False
    work, me = state.work, state.me
    ranks = work.ranks if work else ()
    message = Report(
        generation=state.generation,
        state="starting" if state.phase is Phase.FORKING else str(state.phase),
        step=max((rank.step for rank in ranks), default=0),
        step_seconds=max((rank.step_seconds for rank in ranks), default=0.0),
        cpu=state.cpu,
        memory_mib=state.memory_mib,
        gpus=state.gpus,
        pids=_living(work),
        ranks=ranks,
        sidecar_pid=me.sidecar_pid if me else 0,
        own=work.own if work else (),
        links=peer_links.due_rows(state, now),
        spent=aged(work.spent, now) if work and _accounts(state, work) else None,
    )
    if work is not None:
        work.own = ()
    return say(state, message, "a report is due")


def _accounts(state: State, work: Work) -> bool:
    """Whether this report has what the first rank has spent its time on: in a large job only some have."""
    work.reports += 1
    is_large = work.start is not None and work.start.group_world_size > MANY
    return state.phase is Phase.RUNNING and (not is_large or work.reports % SELDOM == 0)


def _living(work: Work | None) -> tuple[int, ...]:
    return tuple(pid for rank, pid in sorted(work.pids.items()) if rank not in work.exits) if work else ()


def _trainer_pids(state: State) -> tuple[int, ...]:
    roots = [each.pid for each in (state.trainer, state.launcher) if each is not None]
    return tuple(sorted({*roots, *_living(state.work)}))


def how_it_ended(exit: WorkerExit) -> str:
    """A sentence on how one worker process ended."""
    who = f"worker process of local rank {exit.local_rank} (pid {exit.pid})"
    if exit.out_of_memory:
        what = "lost a process that was" if exit.error_type else "was"
        return f"{who} {what} killed because its container exceeded its memory limit"
    if exit.code is None:
        return f"{who} was killed by signal {exit.signal}" if exit.signal else f"{who} ended, its exit code is unknown"
    error = f": {exit.error_type}: {exit.error_message}" if exit.error_type else ""
    return f"{who} ended with exit code {exit.code}{error}"
