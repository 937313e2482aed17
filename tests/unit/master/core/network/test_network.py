"""Links between members: who cannot see whom, what is told of it, and who goes when training stands still for it."""

from __future__ import annotations

import pytest

from outrider.master.core.actions import DeletePod
from outrider.master.core.events import ActionFailed
from outrider.master.core.network import link_health
from outrider.master.core.state import links as state_links
from outrider.master.core.state.links import Links
from outrider.wire.messages.links import LinkSeen, Probe
from tests.unit.master.core.play import Play, job, running
from tests.unit.master.core.ranks import elsewhere, is_stopped, waits

A, B = "worker-1", "worker-3"
SOON = 20.0
CONNECTION = "torch.distributed.DistBackendError"


def told(play: Play, kind: str = "LinkDown") -> list[str]:
    return [each.reason for each in play.announced(kind)]


def deletions(play: Play) -> list[DeletePod]:
    return [each for each in play.actions if isinstance(each, DeletePod)]


def stands_still(play: Play) -> None:
    play.hang(A, waits(14))


def ends_torn(play: Play, member: str = A) -> None:
    play.crash(member, signal=None, code=1, error=CONNECTION, message="Connection closed by peer [10.0.0.3]:4711")


# -- what is told -------------------------------------------------------------------------------------------------
def test_two_that_cannot_see_each_other_are_named_with_their_nodes_and_trained_on_where_steps_are_made() -> None:
    play = Play(job(4))
    play.nodes = {f"worker-{n}": f"n{n}" for n in range(4)}
    play.until_running(4)
    play.run(5)
    play.cut(A, B)
    took = play.until(lambda: bool(told(play)), SOON)
    assert took < 6
    (reason,) = told(play)
    assert reason.startswith("worker-1 (node n1) and worker-3 (node n3) cannot see each other: neither has found the")
    assert reason.endswith("though the master hears both and others find each of them.")
    play.run(120)
    assert len(told(play)) == 1
    assert (play.generation.number, play.deleted()) == (1, [])


def test_it_is_told_when_they_see_each_other_again() -> None:
    play = running(4)
    play.cut(A, B)
    play.until(lambda: bool(told(play)), SOON)
    play.heal()
    play.until(lambda: bool(told(play, "LinkUp")), SOON)
    assert told(play, "LinkUp") == ["worker-1 and worker-3 see each other again."]
    assert play.status()["network"]["down"] == []


def test_a_moment_without_an_answer_is_not_told() -> None:
    play = running(4)
    for _ in range(5):
        play.cut(A, B)
        play.run(2.5)
        play.heal()
        play.run(2.5)
    assert not told(play)


def test_who_is_silent_or_cut_off_from_everybody_is_no_pair() -> None:
    play = running(4)
    play.freeze(B)
    play.until_next()
    play.run(30)
    assert not told(play)
    assert play.announced("MemberSilent")


def test_one_that_nobody_reaches_though_the_master_hears_it_is_in_no_pair() -> None:
    """Its datagrams may be forbidden."""
    play = running(4)
    for other in ("worker-0", "worker-1", "worker-2"):
        play.cut(B, other)
    play.run(60)
    assert not told(play)


def test_of_two_members_both_must_have_found_each_other_before() -> None:
    never = Play(job(2))
    never.round_trips = {"worker-0": 0.0, "worker-1": 0.0}
    never.cut("worker-0", "worker-1")
    never.until_running(2)
    never.run(60)
    assert not told(never)
    play = running(2)
    play.cut("worker-0", "worker-1")
    play.until(lambda: bool(told(play)), SOON)
    assert "though the master hears both." in told(play)[0]


def test_one_direction_alone_is_told_as_such_and_nobody_goes_for_it() -> None:
    play = running(4)
    play.cut(A, B, one_way=True)
    play.until(lambda: bool(told(play)), SOON)
    stands_still(play)
    assert told(play)[0].startswith("worker-1 has not found worker-3 for 10")
    assert told(play)[0].endswith("though worker-3 finds worker-1.")
    play.run(40)
    assert play.deleted() == []


def test_a_link_that_is_slow_and_a_member_whose_links_all_are_are_told_once() -> None:
    play = running(4)
    play.round_trips = {A: 0.15}
    play.until(lambda: bool(told(play, "LinkSlow")), 60)
    play.run(60)
    assert told(play, "LinkSlow") == [
        "The links of worker-1 are slow: a round trip takes 150.0 ms, where the job's others take 0.4 ms."
    ]
    assert play.status()["network"]["slow"][0]["members"] == [A]
    assert {m["id"]: m["round_trip_ms"] for m in play.status()["members"]}[A] == 150.0
    play.round_trips = {}
    play.until(lambda: bool(told(play, "LinkRecovered")), 60)


def test_where_all_links_are_slow_none_is() -> None:
    play = running(4)
    play.round_trips = {f"worker-{n}": 0.15 for n in range(4)}
    play.run(120)
    assert not told(play, "LinkSlow")


# -- what is done -------------------------------------------------------------------------------------------------
def test_where_no_step_is_made_since_the_younger_of_the_two_is_replaced_and_it_costs_no_restart() -> None:
    play = running(4)
    play.cut(A, B)
    stands_still(play)
    took = play.until(lambda: bool(play.announced("NetworkPartition")), 30)
    assert took < 16
    fault = play.announced("NetworkPartition")[0]
    assert fault.member == B
    assert fault.reason.startswith("No rank has completed a step for 1")
    assert "worker-1 and worker-3 cannot see each other" in fault.reason
    assert fault.reason.endswith("and others find each of them; worker-3 is replaced.")
    play.until_next(4)
    assert B not in play.world
    assert play.restarts_used() == 0


def test_a_long_save_or_evaluation_is_no_standstill() -> None:
    for phase in ("checkpoint", "eval"):
        play = running(4)
        play.cut(A, B)
        stands_still(play)
        for actor in play.actors.values():
            actor.phase = phase
        play.run(60)
        assert play.deleted() == []


def test_who_has_trained_on_with_a_link_that_was_cut_does_not_stand_still_for_it() -> None:
    play = running(4)
    play.cut(A, B)
    play.run(30)
    play.hang("worker-0", elsewhere(13))
    play.until(lambda: bool(play.announced("HangDetected")), 100)
    assert play.deleted() == []


def test_a_deletion_that_fails_is_tried_again_for_the_same_reason() -> None:
    play = running(4)
    play.stuck = {B}
    play.cut(A, B)
    stands_still(play)
    play.until(lambda: bool(play.deleted()), 60)
    order = deletions(play)[-1]
    play.tell(ActionFailed(order, "the API server is not reached"))
    play.until(lambda: deletions(play)[-1] is not order, SOON)
    assert deletions(play)[-1].reason == order.reason


def test_the_one_with_more_cut_links_goes() -> None:
    play = running(5)
    for other in ("worker-1", "worker-3"):
        play.cut("worker-0", other)
    stands_still(play)
    play.until(lambda: bool(play.announced("NetworkPartition")), 30)
    assert [each.member for each in play.announced("NetworkPartition")] == ["worker-0"]


def test_errors_of_torch_distributed_alone_are_explained_and_cost_nothing() -> None:
    play = running(4, max_restarts=1, max_restarts_asked=True)
    play.cut(A, B)
    ends_torn(play)
    play.until(lambda: bool(play.announced("NetworkPartition")), 20)
    assert play.announced("NetworkPartition")[0].reason.startswith(
        "Ranks ended with errors of torch.distributed alone, and"
    )
    play.until(lambda: play.is_running(4) and B not in play.world, 30)
    assert play.restarts_used() == 0


def test_without_a_restart_left_the_job_waits_until_it_is_known_whether_a_link_is_cut() -> None:
    play = running(4, max_restarts=0, max_restarts_asked=True)
    play.cut(A, B)
    ends_torn(play)
    play.until(lambda: play.is_running(4) and B not in play.world, 30)
    assert play.ended() is None
    (parted,) = play.announced("NetworkPartition")
    assert (parted.member, parted.severity) == (B, "warning")
    assert [(f.kind, f.member, f.reason) for f in play.faults()] == [("NetworkPartition", B, parted.reason)]


def test_errors_of_torch_distributed_without_a_cut_link_cost_a_restart_as_ever() -> None:
    play = running(4)
    ends_torn(play)
    play.until_next(4, 5)
    play.run(30)
    assert (play.restarts_used(), play.deleted()) == (1, [])


def test_in_a_large_world_a_cut_between_two_that_are_no_neighbours_is_found_by_asking() -> None:
    play = running(24)
    play.cut("worker-7", "worker-8")
    play.run(30)
    assert not told(play)
    play.cut("worker-7", "worker-8")
    ends_torn(play, "worker-7")
    play.until(lambda: bool(play.announced("NetworkPartition")), 20)
    assert len(play.sent(Probe)) <= 2 * 24 + 24 + 10
    play.until(lambda: play.is_running(24) and "worker-8" not in play.world, 30)


def test_a_hang_in_a_large_world_is_put_down_to_a_cut_link_too() -> None:
    play = running(24)
    play.cut("worker-7", "worker-8")
    stands_still(play)
    play.until(lambda: bool(play.announced("NetworkPartition")), 100)
    reason = play.announced("NetworkPartition")[0].reason
    assert reason.startswith("No rank of generation 1.1 has completed a step for 6")
    assert "worker-7 and worker-8 cannot see each other" in reason
    assert not play.announced("HangDetected")


def test_a_process_that_is_stopped_is_to_blame_whatever_links_say() -> None:
    play = running(24)
    play.cut("worker-7", "worker-8")
    play.hang("worker-2", is_stopped())
    play.until(lambda: bool(play.announced("HangDetected")), 100)
    assert play.announced("HangDetected")[0].member == "worker-2"


def test_a_place_is_taken_anew_for_it_once_an_hour_then_the_others_and_then_nobodys() -> None:
    play = running(4)
    for _ in range(4):
        pair = [m for m in play.world if play.member(m)["rank_index"] in (1, 3)]
        play.cuts.clear()
        play.cut(*pair)
        stands_still(play)
        number = play.generation.number
        play.until(lambda number=number: play.is_running(4) and play.generation.number > number, 200)  # type: ignore[misc]
        play.run(5)
    assert [each.member for each in play.announced("NetworkPartition")] == ["worker-3", "worker-1"]
    assert "cannot see each other" in play.announced("HangDetected")[0].reason


def test_a_network_that_is_split_in_two_replaces_nobody() -> None:
    play = running(8)
    for one in range(4):
        for other in range(4, 8):
            play.cut(f"worker-{one}", f"worker-{other}")
    stands_still(play)
    play.until(lambda: bool(play.announced("HangDetected")), 100)
    assert play.deleted() == []


@pytest.mark.parametrize("policy", [{"max_relaunches": 0}, {"max_relaunches": 0, "least": 3}])
def test_where_no_replacement_is_allowed_the_others_go_on_if_they_are_enough(policy: dict[str, int]) -> None:
    play = running(4, **policy)  # type: ignore[arg-type]
    play.cut(A, B)
    stands_still(play)
    play.until_next(None, 200)
    assert (B in play.world) == ("least" not in policy)


def test_a_new_master_knows_whose_place_was_taken_anew() -> None:
    play = running(4)
    play.cut(A, B)
    stands_still(play)
    play.until_next(4, 60)
    play.run(11)
    after = Play(play.spec, term=2, saved=play.saved, actors=play.actors, now=play.now + 1, master="m2")
    after.run(3)
    assert list(after.handed_over()["parted"]) == ["3"]


def test_who_was_cut_off_and_is_back_is_not_told_as_cut_from_those_that_missed_it_meanwhile() -> None:
    """A reports once more what it saw during the cut, when B is heard again and finds it."""
    seen = Links()
    link_health.note(seen, A, [LinkSeen(B, 0.001, 0, 20)], 0.0)
    link_health.note(seen, A, [LinkSeen(B, 0.001, 20, 20, 12.0)], 14.0)
    state_links.heard_again(seen, B, 15.0)
    link_health.note(seen, B, [LinkSeen(A, 0.001, 0, 20)], 15.5)
    link_health.note(seen, A, [LinkSeen(B, 0.001, 20, 20, 14.0)], 16.0)
    assert link_health.cuts(seen, {A, B}, 3, 19.0) == []
    link_health.note(seen, B, [LinkSeen(A, 0.001, 0, 20)], 25.0)
    (cut,) = link_health.cuts(seen, {A, B}, 3, 26.0)
    assert (cut.first, cut.is_both) == (A, False), "it still does not find it"
