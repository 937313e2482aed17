"""Members that were cut off: their neighbours, and the return of a member that stopped by itself."""

from __future__ import annotations

import dataclasses

from outrider.master.core.events import SidecarSaid, SpecChanged
from outrider.master.core.generation import probe_ring
from outrider.master.core.state.generation import Place, World
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, RankIndex, Role
from outrider.wire.messages.generation import Start, Stop
from outrider.wire.messages.links import Ping, Pong
from outrider.wire.messages.membership import Welcome
from tests.unit.master.core.play import Play, job, running

WHY = "neither the master nor worker-0 could be reached for 3.0 s: this member is cut off"


def formed(members: int) -> Play:
    play = Play(job(members))
    play.until_running(members)
    return play


def reported(play: Play, member: str) -> list[str]:
    (*_, last) = play.sent(Start, member)
    assert isinstance(last.message, Start)
    return [each.member for each in last.message.neighbours]


def test_in_a_small_generation_each_member_probes_all_others() -> None:
    play = formed(4)
    assert reported(play, "worker-1") == ["worker-0", "worker-2", "worker-3"]
    assert {(n.address, n.port) for n in play.sent(Start)[0].message.neighbours} == {("127.0.0.1", 9000)}  # type: ignore[union-attr]


def test_a_member_alone_has_no_neighbours() -> None:
    assert reported(formed(1), "worker-0") == []


def world(nodes: list[str]) -> tuple[State, World]:
    state, places = State(), {}
    for number, node in enumerate(nodes):
        name = MemberId(f"worker-{number}")
        state.members[name] = Member(name, Role("worker"), RankIndex(number), 0.0, node=node, address="a", probe_port=1)
        places[name] = Place(name, Role("worker"), RankIndex(number), number, number, 1, number, len(nodes))
    return state, World(Generation(1, 1), places, "a", 1, 1, len(nodes), 0.0)


def test_in_a_large_generation_a_member_probes_three_spread_over_it() -> None:
    state, large = world([""] * 100)
    assert [each.member for each in probe_ring.of(state, large, MemberId("worker-10"))] == [
        "worker-35", "worker-60", "worker-85",
    ]  # fmt: skip


def test_neighbours_are_on_other_nodes_if_possible() -> None:
    state, large = world([f"node-{number // 4}" for number in range(16)])
    for number in range(16):
        found = probe_ring.of(state, large, MemberId(f"worker-{number}"))
        nodes = {state.members[each.member].node for each in found}
        assert len(found) == len(nodes) == 3
        assert f"node-{number // 4}" not in nodes
    state, pair = world(["one"] * 5)
    assert len(probe_ring.of(state, pair, MemberId("worker-0"))) == 3


def test_a_member_without_an_address_is_not_a_neighbour() -> None:
    state, small = world([""] * 3)
    state.members[MemberId("worker-1")].probe_port = 0
    del state.members[MemberId("worker-2")]
    assert probe_ring.of(state, small, MemberId("worker-0")) == ()


def test_a_member_that_stopped_by_itself_while_the_master_believed_in_it_costs_no_restart() -> None:
    play = running(3, 2)
    play.run(2)
    isolate(play, "worker-1")
    play.reconnect("worker-1")
    play.until_next(3)
    (fault,) = [each for each in play.faults() if each.kind == "MemberIsolated"]
    assert fault.reason == f"worker-1 reports: {WHY}."
    assert play.restarts_used() == 0
    assert len(play.announced("MemberIsolated")) == 1


def test_a_member_that_is_still_stopping_by_itself_is_a_fault_of_its_generation_too() -> None:
    play = running(3, 2)
    play.run(2)
    play["worker-1"].isolated = WHY
    play.reconnect("worker-1")
    play.until(lambda: bool(play.announced("MemberIsolated")))
    assert play.sent(Stop, "worker-0")
    play.until_next(3)


def test_a_member_that_was_excluded_meanwhile_reports_why_it_stopped_and_returns() -> None:
    play = running(3, 2)
    play.run(2)
    play.freeze("worker-1")
    play.until_next(2)
    isolate(play, "worker-1")
    play.thaw("worker-1")
    play.reconnect("worker-1")
    play.until(lambda: bool(play.announced("MemberIsolated")))
    play.run(10)
    assert [reported.severity for reported in play.announced("MemberIsolated")] == ["warning"]
    assert play.restarts_used() == 0


def test_a_member_that_is_cut_off_again_reports_it_in_the_same_words() -> None:
    play = running(3)
    for times in (1, 2):
        isolate(play, "worker-1")
        play.reconnect("worker-1")
        play.until_next(3)
        assert len(play.announced("MemberIsolated")) == times
    assert play.restarts_used() == 0


def test_faults_that_its_peers_saw_are_explained_and_cost_no_restart() -> None:
    play = running(3, 2)
    play.run(2)
    play.crash("worker-0", signal=None, code=1, error="torch.distributed.DistBackendError", message="closed by peer")
    isolate(play, "worker-1")
    play.reconnect("worker-1")
    play.until_next(3)
    (fault,) = play.faults()
    assert (fault.kind, fault.member) == ("MemberIsolated", "worker-1")
    assert play.restarts_used() == 0


def test_a_new_master_learns_that_a_member_was_cut_off_and_forms_a_new_generation() -> None:
    old = running(3, 2)
    old.run(2)
    isolate(old, "worker-1")
    new = Play(old.spec, term=2, saved=old.saved, actors=old.actors, now=old.now + 1, master="m2")
    new.until_running(3)
    (fault,) = [each for each in new.faults() if each.kind == "MemberIsolated"]
    assert fault.member == "worker-1"
    assert new.restarts_used() == 0


def test_a_ping_is_answered_at_once() -> None:
    play = running(2)
    play.tell(SidecarSaid(play["worker-0"].session, Ping(7)))
    (answer,) = play.sent(Pong)
    assert answer.message == Pong(7)


def test_an_edited_silent_after_is_sent_to_every_member() -> None:
    play = running(2)
    before = len(play.sent(Welcome))
    play.tell(SpecChanged(dataclasses.replace(play.spec, silent_after=30.0)))
    play.tell(SpecChanged(dataclasses.replace(play.spec, silent_after=30.0)))
    reported = play.sent(Welcome)[before:]
    assert [each.message.silent_after for each in reported] == [30.0, 30.0]  # type: ignore[union-attr]


def test_a_restarted_sidecar_receives_its_neighbours_again() -> None:
    play = running(2)
    play.reconnect("worker-0")
    play.run(1)
    (*_, last) = play.sent(Welcome, "worker-0")
    assert [each.member for each in last.message.neighbours] == ["worker-1"]  # type: ignore[union-attr]


def isolate(play: Play, member: str) -> None:
    """The member has stopped by itself and will report it."""
    actor = play[member]
    actor.isolated, actor.stopped, actor.running = WHY, actor.running, NO_GENERATION
