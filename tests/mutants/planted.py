"""Bugs planted into the real cores, each a small swap in memory that is taken back afterwards.

They judge the simulation: laws that no bug can break are no laws. Each must be caught within 1,000 seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from master.core import (
    assignment,
    checks,
    copies,
    generations,
    giving_up,
    handing_over,
    keeping,
    lapsing,
    links,
    log_rules,
    memory,
    network,
    orders,
    pace,
    pairing,
    recovery,
    restoring,
    rules,
    scaling,
    spares,
    stragglers,
)
from master.core import events as master_events
from master.core import reducer as master
from master.core.actions import DeletePod
from master.core.member import Placed
from master.core.ps import moving
from master.core.ps import reducer as ps
from master.core.ps.passing import let
from sidecar.core import link, neighbourhood, supervision, unsupervised
from wire.messages import Remembered

Swap = tuple[Any, str | type, Any]


@contextmanager
def planted(swaps: list[Swap]) -> Iterator[None]:
    """Replaces attributes of modules and rows of tables, and puts them back."""
    kept: list[Swap] = []
    for where, name, value in swaps:
        kept.append((where, name, where[name] if isinstance(where, dict) else getattr(where, str(name))))
        _put(where, name, value)
    try:
        yield
    finally:
        for where, name, value in reversed(kept):
            _put(where, name, value)


def _put(where: Any, name: str | type, value: Any) -> None:
    if isinstance(where, dict):
        where[name] = value
    else:
        setattr(where, str(name), value)


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def accept_a_stale_generation() -> list[Swap]:
    """The sidecar obeys an old master, and starts what is older than it has heard of or was stopped here."""
    real, welcomed = supervision._why_not, link.welcomed

    def why_not(state: Any, order: Any) -> str:
        why = real(state, order)
        return "" if "older than" in why or "was stopped here" in why else why

    def welcomed_by_any(state: Any, welcome: Any, now: float) -> Any:
        newest = max(state.link.term, state.highest.term)  # each of the two is a defence of its own
        return welcomed(state, replace(welcome, term=max(newest, welcome.term)), now)

    return [(supervision, "_why_not", why_not), (link, "welcomed", welcomed_by_any)]


def forget_an_acknowledgement() -> list[Swap]:
    """The master does not take an acknowledged order off its list."""
    return [(orders, "acknowledge", lambda state, member, number: member.orders.get(number))]


def double_a_rank() -> list[Swap]:
    """The last member of a world is given the ranks of the first."""
    real = assignment.places

    def places(members: Any) -> Any:
        found = real(members)
        last = list(found)[-1]
        if len(found) > 2:
            found[last] = replace(found[last], first_rank=0)
        return found

    return [(assignment, "places", places)]


def judge_before_draining() -> list[Swap]:
    """Deadlines are judged before what has arrived is read."""
    real = master.step

    def step(state: Any, event: Any, now: float) -> Any:
        due = master.next_deadline(state)
        early = real(state, master_events.Woke(), now) if due is not None and due <= now else []
        return [*early, *real(state, event, now)]

    return [(master, "step", step)]


def do_not_repeat_an_order() -> list[Swap]:
    """An order that was lost with its connection is not given again."""

    def once(state: Any, key: str) -> None:
        state.deadlines.set(("order", key), state.now + 1e6)

    def not_again(state: Any, member: Any) -> None:
        for number in member.orders:
            state.deadlines.set(("order", f"{member.id}/{number}"), state.now + 1e6)

    return [(master.DEADLINES, "order", once), (orders, "resend", not_again)]


def start_before_all_have_stopped() -> list[Swap]:
    """The next generation forms without waiting for the members of the old one."""

    def stop(state: Any, world: Any, member: Any, reason: str, hard: bool) -> None:
        generations.stop_member(state, member, world.generation, reason, hard=hard)

    return [(generations, "_stop", stop)]


def forget_to_reap() -> list[Swap]:
    """The sidecar says Stopped as soon as it has ordered the stop."""
    real = supervision.begin_stop

    def begin_stop(state: Any, order: Any, now: float) -> Any:
        actions = real(state, order, now)
        if state.stopping is not None:
            actions = [*actions, *supervision.workers_stopped(state, state.stopping.generation, 0, now)]
        return actions

    return [(supervision, "begin_stop", begin_stop)]


def evict_on_disconnect_alone() -> list[Swap]:
    """A broken connection is taken for a lost member."""
    real = master.HANDLERS[master_events.SidecarDisconnected]

    def disconnected(state: Any, event: Any) -> None:
        member = state.members.get(state.sessions.get(event.session))
        real(state, event)
        if member is not None and member.uid is not None and not member.deleting:
            member.deleting = True
            state.act(DeletePod(member.id, member.uid, 5.0, state.generation, "its connection broke"))

    return [(master.HANDLERS, master_events.SidecarDisconnected, disconnected)]


def take_a_node_for_its_members() -> list[Swap]:
    """What runs on a node that is not Ready is given up, whether it reports or not."""
    real = master.HANDLERS[master_events.NodeSeen]

    def seen(state: Any, event: Any) -> None:
        real(state, event)
        for member in [m for m in state.members.values() if m.node == event.node and not event.is_ready]:
            if member.uid is not None and not member.deleting:
                giving_up.delete(state, member, "its node is not Ready")

    return [(master.HANDLERS, master_events.NodeSeen, seen)]


def ignore_stalled() -> list[Swap]:
    """The master counts its own pause as the members' silence."""
    return [(master.HANDLERS, master_events.Stalled, _nothing)]


def reuse_the_old_port() -> list[Swap]:
    """A member offers the same port for every rendezvous."""
    real = supervision.port_found

    def port_found(state: Any, port: int) -> Any:
        return real(state, 10_000 + sum(map(ord, str(state.me.uid))) * 17)

    return [(supervision, "port_found", port_found)]


def charge_deletions() -> list[Swap]:
    """A member that was deleted or lost costs a restart."""
    begin, blame = recovery.begin, recovery._take_blame

    def begin_charged(state: Any, kind: str, reason: str, member: Any, *, free: bool = False) -> None:
        begin(state, kind, reason, member)

    def blame_charged(state: Any, member: Any, kind: str, reason: str, *, free: bool = True) -> bool:
        return blame(state, member, kind, reason, free=False)

    return [(recovery, "begin", begin_charged), (recovery, "_take_blame", blame_charged)]


def never_regrow() -> list[Swap]:
    """A world that has shrunk stays small."""
    return [(scaling, "consider", _nothing)]


def lose_the_saved_number() -> list[Swap]:
    """A new master counts generations from one again."""
    real = handing_over.restore

    def restore(state: Any, saved: Any) -> None:
        real(state, saved)
        state.number = 0
        state.saved_world = None

    return [(handing_over, "restore", restore)]


def train_on_when_cut_off() -> list[Swap]:
    """A member that reaches nobody never stops."""
    return [(neighbourhood, "is_cut_off", lambda _state, _now: False)]


def stop_when_the_master_is_gone() -> list[Swap]:
    """A neighbour that answers is no sign of life."""
    real = neighbourhood.probed

    def probed(state: Any, neighbour: Any, reachable: bool, now: float) -> Any:
        around = state.neighbourhood
        kept = around.sign_at, around.unanswered
        found = real(state, neighbour, reachable, now)
        around.sign_at, around.unanswered = kept
        return found

    return [(neighbourhood, "probed", probed)]


def forget_what_a_place_needs() -> list[Swap]:
    """A replacement is as small as the container that ran out of memory."""
    return [(memory, "needed", lambda _state, _rank_index: 0)]


def forget_who_says_its_place() -> list[Swap]:
    """The place of one that goes is given to whoever is ready first."""
    return [(spares, "Placed", lambda uid, rank_index, _own: Placed(uid, rank_index, None))]


def look_for_no_hangs() -> list[Swap]:
    """A rank that makes no step while it lives is waited for, for ever."""
    return [(master.DEADLINES, "hang", _nothing)]


def take_a_save_for_a_hang() -> list[Swap]:
    """Whatever a rank does has the time of a step."""

    def ruling(_watch: Any, known: Any, spec: Any, now: float) -> tuple[str, float]:
        return pace.STEP, pace.limit(known, spec, pace.STEP, now)

    return [(pace, "ruling", ruling)]


def train_on_bad_machines() -> list[Swap]:
    """Who did not pass the node check trains all the same."""
    return [(checks, "_exclude", lambda *_args: False)]


def condemn_after_one_round() -> list[Swap]:
    """Whoever fails in the first round of the node check is left out, its partner with it."""
    real = pairing._finding

    def finding(*args: Any) -> Any:
        found = real(*args)
        return replace(found, verdict="faulty") if found.verdict == "unclear" else found

    return [(pairing, "_finding", finding), (checks, "ROUNDS", 1)]


def name_whoever_is_slower() -> list[Swap]:
    """A member that is a little slower than the others, as one always is, is called a straggler."""
    return [(stragglers, "TIMES_THE_OTHERS", 1.0), (stragglers, "STANDS_OUT", 0.0)]


def believe_one_of_two() -> list[Swap]:
    """Whoever misses another one cannot see it, whatever that one and the others say."""

    def cuts(known: Any, heard: Any, _size: int, now: float) -> Any:
        missing = [(a, b, known.rows[a][b].missing_since) for a, b in sorted(known.missing) if a in heard]
        return [links.Cut(*links.pair_of(a, b), since, True) for a, b, since in missing if now - since > 0.5]

    return [(links, "cuts", cuts)]


def begin_again_on_a_cut_link() -> list[Swap]:
    """A world whose members cannot see each other begins again in place, for ever."""
    return [(network, "part", lambda *_args: False)]


def follow_a_dry_run() -> list[Swap]:
    """A rule of the user's that is only to be tried is followed."""
    real = rules._first

    def first(state: Any, fits: Any, *args: Any) -> Any:
        kept = state.spec
        state.spec = replace(kept, rules=tuple(rule._replace(dry_run=False) for rule in kept.rules))
        try:
            return real(state, fits, *args)
        finally:
            state.spec = kept

    return [(rules, "_first", first)]


def restart_for_an_old_line() -> list[Swap]:
    """A line that a rank has written in an older generation begins the running one again."""
    real = log_rules.follow

    def follow(state: Any, member: Any, said: Any) -> None:
        newest = state.world.generation if state.world is not None else said.generation
        real(state, member, replace(said, generation=newest))

    return [(log_rules, "follow", follow)]


def start_without_copies() -> list[Swap]:
    """Who lacks the checkpoint that the others have in memory is given nothing."""
    return [(restoring, "waits", lambda _state, _world: False)]


def begin_from_what_some_have() -> list[Swap]:
    """A world is told to begin from the newest save of the marked path, whoever of it lacks that one."""

    def begun_from(places: Any, there: Any) -> Any:
        saves = set().union(*copies._marked(places, there))
        return max(saves, key=copies._age, default=None)

    return [(copies, "begun_from", begun_from)]


def wait_for_copies_for_ever() -> list[Swap]:
    """The deadline of copies passes unnoticed."""
    return [(master.DEADLINES, "fetch", lambda _state, _number: None)]


def keep_what_some_have() -> list[Swap]:
    """A step is kept as soon as one rank has it."""
    real = keeping.remembered

    def remembered(state: Any, member: Any, message: Any) -> None:
        real(state, member, message)
        if state.world is not None and message.generation == state.world.generation:
            keeping._keep(state, state.world, message.step)

    return [(master.MESSAGES, Remembered, remembered)]


def keep_without_a_partner() -> list[Swap]:
    """A sharded step is kept when every rank has it, though no partner holds a copy."""

    def copy(state: Any, world: Any, _keeping: Any, step: int) -> None:
        keeping._keep(state, world, step)

    return [(keeping, "_copy", copy)]


# -- jobs with parameter servers
def stop_who_trains_for_a_lost_worker() -> list[Swap]:
    """A worker whose pod is gone ends the worlds of the others, as in an all-reduce job."""
    real = ps.HANDLERS[master_events.PodGone]

    def gone(job: Any, event: Any) -> None:
        real(job, event)
        for seat in list(job.of("worker")):
            if event.member.startswith("worker") and seat.runs is not None:
                let(job, seat, partial(generations.stop, seat.state, f"{event.member} is lost."))

    return [(ps.HANDLERS, master_events.PodGone, gone)]


def begin_with_some_past_the_lease() -> list[Swap]:
    """Whoever is there, whether or not all of the saved world are."""

    def some(state: Any, world: Any) -> list[Any]:
        return [state.members[i] for i in world.order if i in state.ready]

    return [(lapsing, "_all_of", some), (lapsing, "_is_reserved", lambda *_: True)]


def forget_who_is_to_move() -> list[Swap]:
    """A parameter server that is to have other resources keeps those that it has."""
    return [(moving, "advance", _nothing)]


def forget_that_a_master_spoke() -> list[Swap]:
    """A command that has trained in a world is let go where it waits for the next one."""
    return [(unsupervised, "master_spoke", lambda _state: [])]


MUTANTS: dict[str, Callable[[], list[Swap]]] = {
    plant.__name__: plant
    for plant in (
        accept_a_stale_generation, forget_an_acknowledgement, double_a_rank, judge_before_draining,
        take_a_node_for_its_members, do_not_repeat_an_order, start_before_all_have_stopped, forget_to_reap,
        evict_on_disconnect_alone,
        ignore_stalled, reuse_the_old_port, charge_deletions, never_regrow, lose_the_saved_number,
        train_on_when_cut_off, stop_when_the_master_is_gone, forget_what_a_place_needs,
        train_on_bad_machines, condemn_after_one_round,
        forget_who_says_its_place,
        look_for_no_hangs, take_a_save_for_a_hang, name_whoever_is_slower,
        believe_one_of_two, begin_again_on_a_cut_link,
        follow_a_dry_run, restart_for_an_old_line,
        start_without_copies, begin_from_what_some_have, wait_for_copies_for_ever, keep_what_some_have,
        keep_without_a_partner, begin_with_some_past_the_lease,
        stop_who_trains_for_a_lost_worker, forget_who_is_to_move,
        forget_that_a_master_spoke,
    )
}  # fmt: skip
OF_PS_JOBS = ("stop_who_trains_for_a_lost_worker", "forget_who_is_to_move")
"""Those that the simulation of jobs with parameter servers has to catch."""
CAUGHT_AT = {
    "double_a_rank": 0,
    "forget_an_acknowledgement": 1,
    "take_a_node_for_its_members": 24,
    "judge_before_draining": 32,
    "start_before_all_have_stopped": 4,
    "forget_to_reap": 1,
    "evict_on_disconnect_alone": 6,
    "do_not_repeat_an_order": 22,
    "reuse_the_old_port": 1,
    "charge_deletions": 13,
    "ignore_stalled": 34,
    "never_regrow": 4,
    "stop_when_the_master_is_gone": 0,
    "lose_the_saved_number": 8,
    "train_on_bad_machines": 7,
    "condemn_after_one_round": 7,
    "forget_what_a_place_needs": 70,
    "look_for_no_hangs": 22,
    "take_a_save_for_a_hang": 10,
    "forget_who_says_its_place": 108,
    "name_whoever_is_slower": 7,
    "believe_one_of_two": 12,
    "train_on_when_cut_off": 26,
    "accept_a_stale_generation": 268,
    "follow_a_dry_run": 29,
    "restart_for_an_old_line": 9,
    "begin_again_on_a_cut_link": 16,
    "start_without_copies": 20,
    "begin_from_what_some_have": 86,
    "keep_what_some_have": 0,
    "keep_without_a_partner": 12,
    "wait_for_copies_for_ever": 673,
    "begin_with_some_past_the_lease": 180,
    "forget_who_is_to_move": 0,
    "stop_who_trains_for_a_lost_worker": 7,
    "forget_that_a_master_spoke": 221,
}
"""The first seed that caught each, when all were played last: it is tried first."""
QUICK = ("double_a_rank", "forget_to_reap", "reuse_the_old_port")
"""Caught within a few seeds: played by every test run."""
