"""Bugs planted into the real cores, each a small swap in memory that is taken back afterwards (`seams`).

They judge the simulation: laws that no bug can break are no laws. Each must be caught within 1,000 seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from outrider.master.core import events as told
from outrider.master.core.actions import Action, Send
from outrider.master.core.faults import delete_pod
from outrider.master.core.generation import lifecycle
from outrider.master.core.hangs import limits as hangs_limits
from outrider.master.core.ps.task_adapter import let
from outrider.master.core.state import links as state_links
from outrider.master.core.state.links import Cut
from outrider.master.core.step import next_deadline
from outrider.sidecar.core import events as heard
from outrider.wire.messages.checkpoints import Fetch, Fetched, Kept, Remembered
from outrider.wire.messages.generation import Start, Stop
from outrider.wire.messages.log_lines import LineMatched
from outrider.wire.messages.membership import Hello, Welcome
from tests.mutants.seams import Swap, hears, is_followed_by, real, row, swap, wants


@contextmanager
def planted(swaps: list[Swap]) -> Iterator[None]:
    """Puts all of them in place, and back."""
    kept = [each.kept() for each in swaps]
    for each in swaps:
        each.put()
    try:
        yield
    finally:
        for each in reversed(kept):
            each.put()


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def accept_a_stale_generation() -> list[Swap]:
    """The sidecar obeys an old master, and starts what is older than it has heard of or was stopped here."""
    why_not = real("why a start is refused")

    def never_for_its_age(state: Any, order: Any) -> str:
        why = why_not(state, order)
        return "" if "older than" in why or "was stopped here" in why else why

    def of_the_newest_master(event: Any) -> Any:
        """Each of the two is a defence of its own."""
        message = getattr(event, "message", None)
        return replace(event, message=replace(message, term=1000)) if isinstance(message, Welcome) else event

    return [swap("why a start is refused", never_for_its_age), hears("sidecar step", of_the_newest_master)]


def forget_an_acknowledgement() -> list[Swap]:
    """The master does not take an acknowledged order off its list."""
    return [swap("acknowledge an order", _nothing)]


def double_a_rank() -> list[Swap]:
    """The last member of a world is given the ranks of the first."""
    places = real("places of a world")

    def doubled(members: Any) -> Any:
        found = places(members)
        last = list(found)[-1]
        if len(found) > 2:
            found[last] = replace(found[last], first_rank=0)
        return found

    return [swap("places of a world", doubled)]


def judge_before_draining() -> list[Swap]:
    """Deadlines are judged before what has arrived is read."""
    step = real("master step")

    def judged(state: Any, event: Any, now: float) -> Any:
        due = next_deadline(state)
        early = step(state, told.Woke(), now) if due is not None and due <= now else []
        return [*early, *step(state, event, now)]

    return [swap("master step", judged)]


def do_not_repeat_an_order() -> list[Swap]:
    """An order that was lost with its connection is not given again."""
    given: set[tuple[str, int]] = set()

    def once(action: Action) -> Action | None:
        order = (action.member, action.message.order) if isinstance(action, Send) and _is_order(action) else None
        if order is None or order not in given:
            given.update([order] if order is not None else [])
            return action
        return None

    return [wants("master step", once)]


def _is_order(action: Send) -> bool:
    return hasattr(action.message, "order")


def start_before_all_have_stopped() -> list[Swap]:
    """The next generation forms without waiting for the members of the old one."""
    return [swap("is worth waiting for", lambda _member: False)]


def forget_to_reap() -> list[Swap]:
    """The sidecar says Stopped as soon as it has ordered the stop."""

    def reaped(event: Any, _actions: list[Any]) -> Iterator[Any]:
        message = getattr(event, "message", None)
        if isinstance(message, Stop):
            yield heard.WorkersStopped(message.generation, 0)

    return [is_followed_by("sidecar step", reaped)]


def evict_on_disconnect_alone() -> list[Swap]:
    """A broken connection is taken for a lost member."""
    disconnected = real("master events")[told.SidecarDisconnected]

    def evicted(state: Any, event: Any) -> None:
        members = [member for member in _members(state) if member.session == event.session]
        disconnected(state, event)
        for member in members:
            _delete(state, member, "its connection broke")

    return [row("master events", told.SidecarDisconnected, evicted)]


def take_a_node_for_its_members() -> list[Swap]:
    """What runs on a node that is not Ready is given up, whether it reports or not."""
    node_seen = real("master events")[told.NodeSeen]

    def given_up(state: Any, event: Any) -> None:
        node_seen(state, event)
        for member in _members(state):
            if member.node == event.node and not event.is_ready:
                _delete(state, member, "its node is not Ready")

    return [row("master events", told.NodeSeen, given_up)]


def _members(state: Any) -> list[Any]:
    return list(state.members.values())


def _delete(state: Any, member: Any, reason: str) -> None:
    if member.uid is not None and not member.deleting:
        delete_pod.delete(state, member, reason)


def ignore_stalled() -> list[Swap]:
    """The master counts its own pause as the members' silence."""
    return [hears("master step", lambda event: None if isinstance(event, told.Stalled) else event)]


def reuse_the_old_port() -> list[Swap]:
    """A member offers the same port for every rendezvous."""
    step, ports = real("sidecar step"), dict[int, tuple[Any, int]]()

    def found(state: Any, event: Any, now: float) -> Any:
        if isinstance(event, heard.PortFound):
            _state, port = ports.setdefault(id(state), (state, event.port))
            event = replace(event, port=port)
        return step(state, event, now)

    return [swap("sidecar step", found)]


def charge_deletions() -> list[Swap]:
    """A member that was deleted or lost costs a restart."""
    begin = real("begin a recovery")

    def charged(state: Any, kind: str, reason: str, member: Any, *, free: bool = False) -> None:
        begin(state, kind, reason, member)

    return [swap("begin a recovery", charged)]


def never_regrow() -> list[Swap]:
    """A world that has shrunk stays small."""
    return [swap("consider another size", _nothing)]


def lose_the_saved_number() -> list[Swap]:
    """A new master counts generations from one again."""

    def began(event: Any) -> Any:
        if not isinstance(event, told.Began) or not event.saved:
            return event
        kept = {**event.saved["saved"], "number": 0, "world": None}
        return replace(event, saved={**event.saved, "saved": kept})

    return [hears("master step", began)]


def train_on_when_cut_off() -> list[Swap]:
    """A member that reaches nobody never stops."""
    return [swap("is cut off", lambda _state, _now: False)]


def stop_when_the_master_is_gone() -> list[Swap]:
    """A neighbour that answers is no sign of life, but for the first time, by which it is known to be there."""
    probed, met = real("a neighbour was probed"), dict[tuple[int, Any], Any]()

    def unanswered(state: Any, neighbour: Any, reachable: bool, now: float) -> Any:
        is_first = (id(state), neighbour) not in met
        met[id(state), neighbour] = state
        return probed(state, neighbour, reachable and is_first, now)

    return [swap("a neighbour was probed", unanswered)]


def forget_what_a_place_needs() -> list[Swap]:
    """A replacement is as small as the container that ran out of memory."""
    return [swap("memory that a place needs", lambda _state, _rank_index: 0)]


def forget_who_says_its_place() -> list[Swap]:
    """The place of one that goes is given to whoever is ready first."""
    adopt = real("take over a pod")

    def adopted(state: Any, pod: Any) -> Any:
        member = adopt(state, pod)
        member.own_index = None
        return member

    return [swap("take over a pod", adopted)]


def look_for_no_hangs() -> list[Swap]:
    """A rank that makes no step while it lives is waited for, for ever."""
    return [row("master deadlines", "hang", _nothing)]


def take_a_save_for_a_hang() -> list[Swap]:
    """Whatever a rank does has the time of a step."""

    def ruling(_watch: Any, known: Any, spec: Any, now: float) -> tuple[str, float]:
        return hangs_limits.STEP, hangs_limits.limit(known, spec, hangs_limits.STEP, now)

    return [swap("what has how much time", ruling)]


def train_on_bad_machines() -> list[Swap]:
    """Who did not pass the node check trains all the same."""
    return [swap("findings of a check", _found_to_be("faulty", "ok"))]


def condemn_after_one_round() -> list[Swap]:
    """Whoever fails in the first round of the node check is left out, its partner with it."""
    return [swap("findings of a check", _found_to_be("unclear", "faulty")), swap("least rounds of a check", 1)]


def _found_to_be(what: str, instead: str) -> Callable[..., Any]:
    findings = real("findings of a check")

    def found(*args: Any) -> Any:
        return {member: replace(each, verdict=instead) if each.verdict == what else each
                for member, each in findings(*args).items()}  # fmt: skip

    return found


def name_whoever_is_slower() -> list[Swap]:
    """A member that is a little slower than the others, as one always is, is called a straggler."""
    return [swap("slow: times the others", 1.0), swap("slow: stands out", 0.0)]


def believe_one_of_two() -> list[Swap]:
    """Whoever misses another one cannot see it, whatever that one and the others say."""

    def cuts(known: Any, heard: Any, _size: int, now: float) -> Any:
        missing = [(a, b, known.rows[a][b].missing_since) for a, b in sorted(known.missing) if a in heard]
        return [Cut(*state_links.pair_of(a, b), since, True) for a, b, since in missing if now - since > 0.5]

    return [swap("cut links", cuts)]


def begin_again_on_a_cut_link() -> list[Swap]:
    """A world whose members cannot see each other begins again in place, for ever."""
    return [swap("part two members", lambda *_args: False)]


def follow_a_dry_run() -> list[Swap]:
    """A rule of the user's that is only to be tried is followed."""

    def followed(event: Any) -> Any:
        if not isinstance(event, told.Began | told.SpecChanged):
            return event
        rules = tuple(rule._replace(dry_run=False) for rule in event.spec.rules)
        return replace(event, spec=replace(event.spec, rules=rules))

    return [hears("master step", followed)]


def restart_for_an_old_line() -> list[Swap]:
    """A line that a rank has written in an older generation begins the running one again."""
    step, newest = real("master step"), dict[int, tuple[Any, Any]]()

    def followed(state: Any, event: Any, now: float) -> Any:
        message = getattr(event, "message", None)
        if isinstance(message, LineMatched) and id(state) in newest:
            event = replace(event, message=replace(message, generation=newest[id(state)][1]))
        actions = step(state, event, now)
        for action in actions:
            if isinstance(action, Send) and isinstance(action.message, Start):
                newest[id(state)] = (state, action.message.generation)
        return actions

    return [swap("master step", followed)]


def start_without_copies() -> list[Swap]:
    """Who lacks the checkpoint that the others have in memory is given nothing."""
    return [swap("a start waits for copies", lambda _state, _world: False)]


def begin_from_what_some_have() -> list[Swap]:
    """A world is told to begin from the newest save of the marked path, whoever of it lacks that one."""
    begun_from = real("what all have of the marked path")

    def of_some(places: Any, there: Any) -> Any:
        each = [begun_from([place], there) for place in places]
        return max((v for v in each if v is not None), key=lambda v: (v.generation, v.step), default=None)

    return [swap("what all have of the marked path", of_some)]


def wait_for_copies_for_ever() -> list[Swap]:
    """The deadline of copies passes unnoticed."""
    return [row("master deadlines", "fetch", _nothing)]


def keep_what_some_have() -> list[Swap]:
    """A step is kept as soon as one rank has it."""
    step, members = real("master step"), dict[str, Any]()

    def kept(state: Any, event: Any, now: float) -> Any:
        message = getattr(event, "message", None)
        if isinstance(message, Hello):
            members[event.session] = message.member
        actions = step(state, event, now)
        if isinstance(message, Remembered):
            told_all = Kept(message.generation, message.step)
            actions = [*actions, *(Send(session, member, told_all, message.generation, "one rank has it")
                                   for session, member in members.items())]  # fmt: skip
        return actions

    return [swap("master step", kept)]


def keep_without_a_partner() -> list[Swap]:
    """A sharded step is kept when every rank has it, though no partner holds a copy."""

    def is_held(action: Any) -> bool:
        message = getattr(action, "message", None)
        return isinstance(message, Fetch) and any(wanted.held for wanted in message.wanted)

    def fetched(_event: Any, actions: list[Action]) -> Iterator[Any]:
        for action in actions:
            if isinstance(action, Send) and is_held(action):
                order = action.message
                yield told.SidecarSaid(action.session, Fetched(order.order, order.generation, order.step))

    def unasked(action: Action) -> Action | None:
        return None if is_held(action) else action

    with planted([is_followed_by("master step", fetched)]):
        return [wants("master step", unasked)]


# -- jobs with parameter servers
def stop_who_trains_for_a_lost_worker() -> list[Swap]:
    """A worker whose pod is gone ends the worlds of the others, as in an all-reduce job."""
    pod_gone = real("ps events")[told.PodGone]

    def gone(job: Any, event: Any) -> None:
        pod_gone(job, event)
        for task in list(job.of("worker")):
            if event.member.startswith("worker") and task.runs is not None:
                let(job, task, partial(lifecycle.stop, task.state, f"{event.member} is lost."))

    return [row("ps events", told.PodGone, gone)]


def begin_with_some_past_the_lease() -> list[Swap]:
    """Whoever is there, whether or not all of the saved world are."""

    def some(state: Any, world: Any) -> list[Any]:
        return [member for member in _members(state) if member.id in world.order and member.id in state.ready]

    return [swap("who of the saved world is there", some), swap("number is reserved", lambda *_: True)]


def forget_who_is_to_move() -> list[Swap]:
    """A parameter server that is to have other resources keeps those that it has."""
    return [swap("move a parameter server", _nothing)]


def forget_that_a_master_spoke() -> list[Swap]:
    """A command that has trained in a world is let go where it waits for the next one."""
    return [swap("a master has spoken", lambda _state: [])]


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
    "start_before_all_have_stopped": 6,
    "forget_to_reap": 1,
    "evict_on_disconnect_alone": 6,
    "do_not_repeat_an_order": 22,
    "reuse_the_old_port": 1,
    "charge_deletions": 13,
    "ignore_stalled": 34,
    "never_regrow": 6,
    "stop_when_the_master_is_gone": 0,
    "lose_the_saved_number": 8,
    "train_on_bad_machines": 7,
    "condemn_after_one_round": 7,
    "forget_what_a_place_needs": 70,
    "look_for_no_hangs": 22,
    "take_a_save_for_a_hang": 10,
    "forget_who_says_its_place": 108,
    "name_whoever_is_slower": 8,
    "believe_one_of_two": 12,
    "train_on_when_cut_off": 26,
    "accept_a_stale_generation": 268,
    "follow_a_dry_run": 40,
    "restart_for_an_old_line": 16,
    "begin_again_on_a_cut_link": 16,
    "start_without_copies": 20,
    "begin_from_what_some_have": 86,
    "keep_what_some_have": 0,
    "keep_without_a_partner": 12,
    "begin_with_some_past_the_lease": 180,
    "forget_who_is_to_move": 0,
    "stop_who_trains_for_a_lost_worker": 7,
    "forget_that_a_master_spoke": 221,
    "wait_for_copies_for_ever": 199,
}
"""The first seed that caught each, when all were played last: it is tried first."""
WITNESSES = (
    "double_a_rank", "forget_to_reap", "reuse_the_old_port", "stop_when_the_master_is_gone",
    "start_before_all_have_stopped", "train_on_when_cut_off", "charge_deletions", "lose_the_saved_number",
    "keep_what_some_have", "believe_one_of_two", "judge_before_draining", "forget_what_a_place_needs",
)  # fmt: skip
"""Played by `make test`; the others by `make test-all`."""
