"""Links between members: which are down, what is reported, and which member is replaced if training stands still."""

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


def reasons(play: Play, kind: str = "LinkDown") -> list[str]:
    return [each.reason for each in play.announced(kind)]


def deletions(play: Play) -> list[DeletePod]:
    return [each for each in play.actions if isinstance(each, DeletePod)]


def stands_still(play: Play) -> None:
    play.hang(A, waits(14))


def ends_torn(play: Play, member: str = A) -> None:
    play.crash(member, signal=None, code=1, error=CONNECTION, message="Connection closed by peer [10.0.0.3]:4711")


# -- Events -------------------------------------------------------------------------------------------------------
def test_two_members_that_cannot_reach_each_other_are_named_with_their_nodes_and_training_continues() -> None:
    play = Play(job(4))
    play.nodes = {f"worker-{n}": f"n{n}" for n in range(4)}
    play.until_running(4)
    play.run(5)
    play.cut(A, B)
    took = play.until(lambda: bool(reasons(play)), SOON)
    assert took < 6
    (reason,) = reasons(play)
    assert reason.startswith(
        "worker-1 (node n1) and worker-3 (node n3) cannot reach each other: neither has reached the"
    )
    assert reason.endswith("though the master hears both and other members reach each of them.")
    play.run(120)
    assert len(reasons(play)) == 1
    assert (play.generation.number, play.deleted()) == (1, [])


def test_a_link_that_is_up_again_is_reported() -> None:
    play = running(4)
    play.cut(A, B)
    play.until(lambda: bool(reasons(play)), SOON)
    play.heal()
    play.until(lambda: bool(reasons(play, "LinkUp")), SOON)
    assert reasons(play, "LinkUp") == ["worker-1 and worker-3 reach each other again."]
    assert play.status()["network"]["down"] == []


def test_a_short_time_without_an_answer_is_not_reported() -> None:
    play = running(4)
    for _ in range(5):
        play.cut(A, B)
        play.run(2.5)
        play.heal()
        play.run(2.5)
    assert not reasons(play)


def test_a_silent_member_is_not_reported_as_a_link() -> None:
    play = running(4)
    play.freeze(B)
    play.until_next()
    play.run(30)
    assert not reasons(play)
    assert play.announced("MemberSilent")


def test_a_member_that_no_member_reaches_is_not_reported_as_a_link() -> None:
    """The master hears it, but its datagrams may be forbidden."""
    play = running(4)
    for other in ("worker-0", "worker-1", "worker-2"):
        play.cut(B, other)
    play.run(60)
    assert not reasons(play)


def test_two_members_must_have_reached_each_other_before() -> None:
    never = Play(job(2))
    never.round_trips = {"worker-0": 0.0, "worker-1": 0.0}
    never.cut("worker-0", "worker-1")
    never.until_running(2)
    never.run(60)
    assert not reasons(never)
    play = running(2)
    play.cut("worker-0", "worker-1")
    play.until(lambda: bool(reasons(play)), SOON)
    assert "though the master hears both." in reasons(play)[0]


def test_a_link_down_in_one_direction_is_reported_as_such_and_no_member_is_replaced() -> None:
    play = running(4)
    play.cut(A, B, one_way=True)
    play.until(lambda: bool(reasons(play)), SOON)
    stands_still(play)
    assert reasons(play)[0].startswith("worker-1 has not reached worker-3 for 10")
    assert reasons(play)[0].endswith("though worker-3 reaches worker-1.")
    play.run(40)
    assert play.deleted() == []


def test_a_member_whose_links_are_all_slow_is_reported_once() -> None:
    play = running(4)
    play.round_trips = {A: 0.15}
    play.until(lambda: bool(reasons(play, "LinkSlow")), 60)
    play.run(60)
    assert reasons(play, "LinkSlow") == [
        "The links of worker-1 are slow: a round trip takes 150.0 ms, while the job's other links take 0.4 ms."
    ]
    assert play.status()["network"]["slow"][0]["members"] == [A]
    assert {m["id"]: m["round_trip_ms"] for m in play.status()["members"]}[A] == 150.0
    play.round_trips = {}
    play.until(lambda: bool(reasons(play, "LinkRecovered")), 60)


def test_if_all_links_are_slow_none_is_reported() -> None:
    play = running(4)
    play.round_trips = {f"worker-{n}": 0.15 for n in range(4)}
    play.run(120)
    assert not reasons(play, "LinkSlow")


# -- consequences -------------------------------------------------------------------------------------------------
def test_if_training_stands_still_since_then_the_younger_of_the_two_is_replaced_at_no_cost() -> None:
    play = running(4)
    play.cut(A, B)
    stands_still(play)
    took = play.until(lambda: bool(play.announced("NetworkPartition")), 30)
    assert took < 16
    fault = play.announced("NetworkPartition")[0]
    assert fault.member == B
    assert fault.reason.startswith("No rank has completed a step for 1")
    assert "worker-1 and worker-3 cannot reach each other" in fault.reason
    assert fault.reason.endswith("and other members reach each of them; worker-3 is replaced.")
    play.until_next(4)
    assert B not in play.world
    assert play.restarts_used() == 0


def test_a_long_save_or_evaluation_is_not_a_standstill() -> None:
    for phase in ("checkpoint", "eval"):
        play = running(4)
        play.cut(A, B)
        stands_still(play)
        for actor in play.actors.values():
            actor.phase = phase
        play.run(60)
        assert play.deleted() == []


def test_a_hang_long_after_a_link_broke_has_another_cause() -> None:
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


def test_the_member_with_more_broken_links_is_replaced() -> None:
    play = running(5)
    for other in ("worker-1", "worker-3"):
        play.cut("worker-0", other)
    stands_still(play)
    play.until(lambda: bool(play.announced("NetworkPartition")), 30)
    assert [each.member for each in play.announced("NetworkPartition")] == ["worker-0"]


def test_errors_of_torch_distributed_only_are_explained_and_cost_nothing() -> None:
    play = running(4, max_restarts=1, max_restarts_asked=True)
    play.cut(A, B)
    ends_torn(play)
    play.until(lambda: bool(play.announced("NetworkPartition")), 20)
    assert play.announced("NetworkPartition")[0].reason.startswith(
        "Ranks ended only with errors of torch.distributed, and"
    )
    play.until(lambda: play.is_running(4) and B not in play.world, 30)
    assert play.restarts_used() == 0


def test_without_a_restart_left_the_job_waits_until_it_is_known_whether_a_link_is_down() -> None:
    play = running(4, max_restarts=0, max_restarts_asked=True)
    play.cut(A, B)
    ends_torn(play)
    play.until(lambda: play.is_running(4) and B not in play.world, 30)
    assert play.ended() is None
    (parted,) = play.announced("NetworkPartition")
    assert (parted.member, parted.severity) == (B, "warning")
    assert [(f.kind, f.member, f.reason) for f in play.faults()] == [("NetworkPartition", B, parted.reason)]


def test_errors_of_torch_distributed_without_a_broken_link_cost_a_restart() -> None:
    play = running(4)
    ends_torn(play)
    play.until_next(4, 5)
    play.run(30)
    assert (play.restarts_used(), play.deleted()) == (1, [])


def test_in_a_large_generation_a_broken_link_between_distant_members_is_found_by_requested_probes() -> None:
    play = running(24)
    play.cut("worker-7", "worker-8")
    play.run(30)
    assert not reasons(play)
    play.cut("worker-7", "worker-8")
    ends_torn(play, "worker-7")
    play.until(lambda: bool(play.announced("NetworkPartition")), 20)
    assert len(play.sent(Probe)) <= 2 * 24 + 24 + 10
    play.until(lambda: play.is_running(24) and "worker-8" not in play.world, 30)


def test_a_hang_in_a_large_generation_is_explained_by_a_broken_link_too() -> None:
    play = running(24)
    play.cut("worker-7", "worker-8")
    stands_still(play)
    play.until(lambda: bool(play.announced("NetworkPartition")), 100)
    reason = play.announced("NetworkPartition")[0].reason
    assert reason.startswith("No rank of generation 1.1 has completed a step for 6")
    assert "worker-7 and worker-8 cannot reach each other" in reason
    assert not play.announced("HangDetected")


def test_a_stopped_process_is_the_culprit_whatever_the_links_show() -> None:
    play = running(24)
    play.cut("worker-7", "worker-8")
    play.hang("worker-2", is_stopped())
    play.until(lambda: bool(play.announced("HangDetected")), 100)
    assert play.announced("HangDetected")[0].member == "worker-2"


def test_a_rank_index_is_replaced_once_an_hour_then_the_other_one_and_then_none() -> None:
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
    assert "cannot reach each other" in play.announced("HangDetected")[0].reason


def test_a_network_that_is_split_in_two_halves_replaces_no_member() -> None:
    play = running(8)
    for one in range(4):
        for other in range(4, 8):
            play.cut(f"worker-{one}", f"worker-{other}")
    stands_still(play)
    play.until(lambda: bool(play.announced("HangDetected")), 100)
    assert play.deleted() == []


@pytest.mark.parametrize("policy", [{"max_relaunches": 0}, {"max_relaunches": 0, "least": 3}])
def test_if_no_replacement_is_allowed_the_others_continue_if_they_are_enough(policy: dict[str, int]) -> None:
    play = running(4, **policy)  # type: ignore[arg-type]
    play.cut(A, B)
    stands_still(play)
    play.until_next(None, 200)
    assert (B in play.world) == ("least" not in policy)


def test_a_new_master_knows_which_rank_index_was_replaced() -> None:
    play = running(4)
    play.cut(A, B)
    stands_still(play)
    play.until_next(4, 60)
    play.run(11)
    after = Play(play.spec, term=2, saved=play.saved, actors=play.actors, now=play.now + 1, master="m2")
    after.run(3)
    assert list(after.handed_over()["parted"]) == ["3"]


def test_a_member_that_returns_is_not_cut_off_from_those_that_missed_it_meanwhile() -> None:
    """A reports again what it saw during the cut, when B is heard again and reaches A."""
    seen = Links()
    link_health.note(seen, A, [LinkSeen(B, 0.001, 0, 20)], 0.0)
    link_health.note(seen, A, [LinkSeen(B, 0.001, 20, 20, 12.0)], 14.0)
    state_links.heard_again(seen, B, 15.0)
    link_health.note(seen, B, [LinkSeen(A, 0.001, 0, 20)], 15.5)
    link_health.note(seen, A, [LinkSeen(B, 0.001, 20, 20, 14.0)], 16.0)
    assert link_health.cuts(seen, {A, B}, 3, 19.0) == []
    link_health.note(seen, B, [LinkSeen(A, 0.001, 0, 20)], 25.0)
    (cut,) = link_health.cuts(seen, {A, B}, 3, 26.0)
    assert (cut.first, cut.is_both) == (A, False), "A still does not reach B"
