"""The node check in a job: which members are measured when, the consequences, and that nothing waits for ever."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.master.core.actions import CreatePod
from outrider.master.core.events import LeaseLost, LeaseRegained, ScaleRequested, SidecarSaid, SpecChanged
from outrider.master.core.nodecheck.rounds import ROUND_SECONDS
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Start
from outrider.wire.messages.membership import Finish, Hello, Refused
from outrider.wire.messages.node_check import Check, Checked
from tests.unit.master.core.play import Play, job, running
from tests.unit.master.core.ranks import elsewhere


def begun(members: int = 4, bad: dict[str, str] | None = None, least: int | None = None, **policy: object) -> Play:
    play = Play(job(members, least, node_check=True, **policy))
    play.bad = bad or {}
    return play


def lines(play: Play) -> list[str]:
    return [each.reason for each in play.announced("NodeCheckRound")]


def verdicts(play: Play) -> dict[str, Any]:
    return {name: text for each in play.status()["node_check"] for name, text in each.get("verdicts", {}).items()}  # type: ignore[attr-defined]


# -- the first generation -----------------------------------------------------------------------------------------
def test_without_the_node_check_no_member_is_measured() -> None:
    assert running(4).sent(Check) == []


def test_all_members_are_measured_in_two_rounds_before_the_first_generation() -> None:
    play = begun()
    play.until_running(4)
    checks = [each.message for each in play.sent(Check)]
    assert [check.round for check in checks] == [0] * 4 + [1] * 4
    assert play.actions.index(play.sent(Check)[-1]) < play.actions.index(play.sent(Start)[0])
    assert lines(play) == [
        "check round 0: elapsed 1.01 s {0: 0.060, 1: 0.060, 2: 0.060, 3: 0.060}",
        "check round 0: status {0: ok, 1: ok, 2: ok, 3: ok}",
        "check round 1: elapsed 1.01 s {0: 0.060, 1: 0.060, 2: 0.060, 3: 0.060}",
        "check round 1: status {0: ok, 1: ok, 2: ok, 3: ok}",
    ]


def test_a_port_that_a_probe_has_used_is_not_the_rendezvous() -> None:
    play = begun()
    play.until_running(4)
    probed = {each.message.port for each in play.sent(Check)}
    assert play.sent(Start)[0].message.master_port not in probed


def test_no_member_is_measured_again_before_a_restart() -> None:
    play = begun()
    play.until_running(4)
    play.run(2)
    before = len(play.sent(Check))
    play.crash("worker-1")
    play.until_next(4)
    assert len(play.sent(Check)) == before


def test_a_single_member_is_measured_alone_and_trains() -> None:
    play = begun(1)
    play.until_running(1)
    assert [(each.message.alone, each.message.awaited) for each in play.sent(Check)] == [(True, ())]


# -- faulty -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("what", ["dies", "mute", "absurd"])
def test_a_bad_member_is_excluded_and_its_replacement_is_measured_and_joins(what: str) -> None:
    play = begun(4, {"worker-1": what})
    play.until_running(4)
    assert play.world == ["worker-0", "worker-4", "worker-2", "worker-3"]
    assert all(each.member != "worker-1" for each in play.sent(Start))
    assert {each.message.round for each in play.sent(Check, "worker-4")} == {2}, "rounds count on"
    assert play.state_of("worker-1") == "failed"


def test_the_excluded_member_ends_with_code_3_and_reports_which_check_failed() -> None:
    play = begun(4, {"worker-1": "dies"})
    play.until_running(4)
    finish = play.sent(Finish, "worker-1")[0].message
    assert finish.exit_code == 3
    assert finish.last_words.startswith("worker-1 failed the node check: compute: round 0: died after 1.00 s")
    assert "SIGKILL" in finish.last_words


def test_an_exclusion_costs_no_budget() -> None:
    play = begun(4, {"worker-1": "dies"}, max_relaunches=0, max_restarts=0)
    play.until_running(4)
    assert play.relaunches_used() == 0
    assert {a.relaunches for a in play.actions if isinstance(a, CreatePod)} == {0}
    assert [fault.kind for fault in play.faults()] == ["MemberExcluded"]


def test_new_pods_keep_off_the_node_of_one_that_failed() -> None:
    play = begun(4, {"worker-1": "dies"})
    play.nodes = {f"worker-{n}": f"node-{n}" for n in range(5)}
    play.until_running(4)
    assert play.status()["excluded_nodes"] == ["node-1"]


def test_after_three_exclusions_at_a_rank_index_the_next_member_trains() -> None:
    play = begun(4, {f"worker-{n}": "dies" for n in (1, 4, 5, 6)})
    play.until_running(4, 120)
    assert [each for each in play.actors if play.state_of(each) == "failed"] == ["worker-1", "worker-4", "worker-5"]
    assert "worker-6" in play.world
    assert "3 members before it were excluded at rank index 1" in play.announced("ExclusionSkipped")[0].reason


def test_if_most_members_fail_none_is_excluded() -> None:
    play = begun(4, {f"worker-{n}": "dies" for n in range(3)})
    play.until_running(4)
    assert play.announced("MemberExcluded") == []
    assert "No member is excluded" in play.announced("NodeCheckInconclusive")[0].reason


def test_two_members_that_cannot_reach_each_other_train_with_a_warning() -> None:
    play = begun(2, {"worker-1": "mute"})
    play.until_running(2)
    assert play.announced("MemberExcluded") == []
    assert "it may not be the cause" in play.announced("NodeCheckInconclusive")[0].reason


def test_a_spare_that_fails_is_replaced_at_no_cost() -> None:
    play = begun(2, {"worker-2": "dies"}, spares=1, max_relaunches=0)
    play.until_running(2)
    play.until(lambda: "worker-3" in play.ready(), 60)
    assert play.member("worker-3")["rank_index"] is None


def test_after_three_exclusions_of_spares_the_next_one_stays() -> None:
    play = begun(2, {f"worker-{n}": "dies" for n in range(2, 9)}, spares=1, max_relaunches=0)
    play.until_running(2)
    play.until(lambda: bool(play.announced("ExclusionSkipped")), 200)
    assert [each.member for each in play.announced("MemberExcluded")] == ["worker-2", "worker-3", "worker-4"]


# -- stragglers ---------------------------------------------------------------------------------------------------
def test_a_straggler_trains_with_a_warning() -> None:
    play = begun(4, {"worker-1": "slow"})
    play.until_running(4)
    assert "worker-1" in play.world
    assert "0.250 s in its best round, 5.0 times the median" in play.announced("NodeCheckStraggler")[0].reason
    assert verdicts(play)["1"].startswith("straggler: compute")
    assert [line for line in lines(play) if "status" in line] == [
        "check round 0: status {0: ok, 1: slow, 2: ok, 3: ok}",
        "check round 1: status {0: ok, 1: slow, 2: ok, 3: ok}",
    ]


def test_a_straggler_is_replaced_if_the_user_wants_that() -> None:
    play = begun(4, {"worker-1": "slow"}, exclude_stragglers=True)
    play.until_running(4)
    assert play.world == ["worker-0", "worker-4", "worker-2", "worker-3"]
    assert "is too slow for the node check: compute" in play.sent(Finish, "worker-1")[0].message.last_words


@pytest.mark.parametrize(
    ("policy", "node", "is_excluded"), [({}, "", False), ({"is_isolated": True}, "", True), ({}, "n0", True)]
)
def test_load_in_a_members_own_container_makes_it_slow_on_a_shared_machine_too(
    policy: dict[str, bool], node: str, is_excluded: bool
) -> None:
    play = begun(4, {"worker-1": "loaded"}, exclude_stragglers=True, **policy)
    play.nodes = {f"worker-{number}": node for number in range(5)}
    play.until_running(4)
    assert [each.member for each in play.announced("MemberExcluded")] == ["worker-1"] * is_excluded


@pytest.mark.parametrize(("machine", "is_excluded"), [("one", False), ("of its own", True), ("", True)])
def test_nodes_of_one_machine_disturb_each_other(machine: str, is_excluded: bool) -> None:
    play = begun(4, {"worker-1": "crowded"}, exclude_stragglers=True)
    play.nodes = {f"worker-{number}": f"node-{number}" for number in range(5)}
    play.machines = dict.fromkeys(play.nodes, "one") | {"worker-1": machine}
    play.until_running(4)
    assert [each.member for each in play.announced("MemberExcluded")] == ["worker-1"] * is_excluded


def test_a_round_of_two_lists_the_others_whose_earlier_results_are_valid() -> None:
    play = begun(4, {"worker-1": "slow"}, exclude_stragglers=True)
    play.until_running(4)
    text = next(line for line in lines(play) if line.startswith("check round 2: status"))
    measured, _, others = text.partition("; not measured again (earlier result is valid): ")
    named = {*measured.partition("{")[2].rstrip("}").replace(": ok", "").split(", "), *others.split(", ")}
    assert named == {"0", "1", "2", "3"}
    assert len(others.split(", ")) == 2


def test_a_message_of_an_excluded_member_is_not_a_second_fault() -> None:
    play = begun(4, {"worker-1": "slow"}, exclude_stragglers=True)
    play.until(lambda: bool(play.announced("MemberExcluded")))
    play.run(5)
    play.actions.clear()
    hello = Hello(play.spec.name, MemberId("worker-1"), PodUid("it was"), Role("worker"), RankIndex(1), "token")
    play.tell(SidecarSaid("again", hello))
    assert "is no longer a member" in play.sent(Refused, "worker-1")[0].reason
    assert not play.announced("SidecarRejected")


# -- new members --------------------------------------------------------------------------------------------------
def test_a_replacement_is_measured_with_an_idle_healthy_member() -> None:
    play = begun(3)
    play.until_running(3)
    play.run(2)
    play.actions.clear()
    play.lose("worker-1")
    play.until_next(3)
    checks = play.sent(Check)
    assert {each.member for each in checks} >= {"worker-3"}
    assert len(checks) == 2
    assert all(each.message.compute for each in checks)


def test_a_member_that_fails_with_one_helper_is_measured_with_another_before_it_is_judged() -> None:
    play = begun(3)
    play.until_running(3)
    play.run(2)
    play.apart = {"worker-0", "worker-3"}
    play.lose("worker-1")
    play.until_next(3)
    rest = "not measured again (earlier result is valid): 2"
    assert f"check round 2: status {{0: unreachable, 1: unreachable}}; {rest}" in lines(play)
    assert not play.announced("MemberExcluded")
    assert play.world == ["worker-0", "worker-3", "worker-2"]


def test_a_bad_member_that_lost_its_helper_is_measured_with_another_and_excluded() -> None:
    play = begun(4, {"worker-4": "mute"})
    play.until_running(4)
    play.run(2)
    play.lose("worker-1")
    play.until(lambda: play.state_of("worker-4") == "checking", 60)
    check = play.sent(Check, "worker-4")[-1].message
    (helper,) = [*(peer.member for peer in check.peers), *check.awaited]
    play.lose(helper)
    play.until(lambda: bool(play.announced("MemberExcluded")), 120)
    assert play.announced("MemberExcluded")[0].member == "worker-4"
    assert all(each.message.peers or each.message.awaited for each in play.sent(Check, "worker-4"))


def test_of_two_members_that_cannot_reach_each_other_neither_is_excluded_though_one_had_passed() -> None:
    play = begun(2)
    play.until_running(2)
    play.run(2)
    play.apart = {"worker-0", "worker-2"}
    play.lose("worker-1")
    play.until_next(2)
    assert not play.announced("MemberExcluded")
    assert play.announced("NodeCheckInconclusive")[0].member == "worker-2"
    play.run(60)
    assert play.is_running(2)
    assert not play.announced("NodeCheckRequested")


def test_while_the_others_train_one_of_them_helps_with_the_all_gather_only() -> None:
    play = begun(3, least=2)
    play.until_running(3)
    play.run(2)
    play.actions.clear()
    play.lose("worker-1")
    play.until_next(2)
    play.until(lambda: "worker-3" in play.ready(), 30)
    new, helper = (next(each for each in play.sent(Check) if (each.member == "worker-3") == is_new)
                   for is_new in (True, False))  # fmt: skip
    assert new.message.compute
    assert new.message.awaited == (helper.member,)
    assert not helper.message.compute
    assert helper.message.port == 0
    play.save("worker-0")
    play.until_next(3)
    assert "worker-3" in play.world


def test_a_bad_replacement_never_joins_a_generation_that_trains() -> None:
    play = begun(3, {"worker-3": "mute"}, least=2)
    play.until_running(3)
    play.run(2)
    play.lose("worker-1")
    play.until(lambda: "worker-4" in play.ready(), 60)
    assert play.announced("MemberExcluded")[0].member == "worker-3"
    assert all(each.member != "worker-3" for each in play.sent(Start))


@pytest.mark.parametrize(("node", "is_excluded"), [("n0", False), ("n9", True)])
def test_a_new_member_is_not_slow_because_others_train_on_its_machine(node: str, is_excluded: bool) -> None:
    play = begun(3, {"worker-3": "crowded"}, least=2, exclude_stragglers=True)
    play.nodes = {"worker-0": "n0", "worker-1": "n1", "worker-2": "n2", "worker-3": node}
    play.until_running(3)
    play.run(2)
    play.lose("worker-1")
    play.until(lambda: "worker-3" in play.ready() or play.state_of("worker-3") == "failed", 30)
    assert [each.member for each in play.announced("MemberExcluded")] == ["worker-3"] * is_excluded


def test_a_check_is_aborted_when_the_generation_that_helps_with_it_ends() -> None:
    play = begun(3, least=2)
    play.until_running(3)
    play.run(2)
    play.lose("worker-1")
    play.until(lambda: play.is_checking(), 30)
    play.crash("worker-0")
    play.until_next(2)
    assert play.announced("NodeCheckAborted")
    play.until(lambda: "worker-3" in play.ready(), 60)


def test_a_job_that_grows_measures_its_new_members() -> None:
    play = Play(job(3, 2, node_check=True))
    play.tell(ScaleRequested(2))
    play.until_running(2)
    play.tell(ScaleRequested(3))
    play.until(lambda: "worker-2" in play.ready(), 30)
    assert play.sent(Check, "worker-2")


# -- faults during a check ----------------------------------------------------------------------------------------
def test_a_member_that_is_lost_while_it_is_measured_makes_no_other_faulty() -> None:
    play = begun()
    play.until(lambda: play.is_checking())
    play.lose("worker-2")
    play.until_running(4)
    assert play.announced("MemberExcluded") == []
    assert "worker-4" in play.world


def test_a_member_that_freezes_while_it_is_measured_blocks_nothing() -> None:
    play = begun(4, least=3)
    play.until(lambda: play.is_checking())
    play.freeze("worker-2")
    play.until_running(limit=200)
    assert play.announced("MemberExcluded") == []


def test_a_sidecar_that_never_answers_blocks_nothing() -> None:
    play = begun(4)
    play.until(lambda: play.is_checking())
    play["worker-2"].answers_checks = False
    play.until(lambda: play.is_running(), 300)
    assert "worker-2" not in play.world or play.announced("ExclusionSkipped")


def test_an_answer_of_an_older_round_is_ignored() -> None:
    play = begun(2)
    play.until(lambda: any(each.message.round == 1 for each in play.sent(Check)))
    late = play.sent(Check, "worker-0")[0].message
    play.say(play["worker-0"], Checked(late.order, 0, "died"))
    play.until_running(2)
    assert play.announced("MemberExcluded") == []


def test_an_order_that_was_lost_with_its_connection_is_given_again() -> None:
    play = begun(2)
    play.until(lambda: play.is_checking())
    play["worker-1"].session = ""
    play.reconnect("worker-1")
    play.until_running(2)


def test_a_new_master_does_not_measure_members_again() -> None:
    before = begun(2)
    before.until_running(2)
    before.run(2)
    after = Play(before.spec, term=2, saved=before.saved, actors=before.actors, now=before.now + 1, master="m2")
    after.run(0.3)
    after.crash("worker-1")
    after.until_next(2)
    assert after.sent(Check) == []
    assert [each["round"] for each in after.status()["node_check"]] == [0, 1]


def test_a_member_that_is_not_yet_measured_trains_when_the_user_switches_the_check_off() -> None:
    play = begun(2)
    play.until(lambda: play.is_checking())
    play.tell(SpecChanged(job(2)))
    play.until_running(2)


# -- evidence -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("members", "spares"), [(4, 0), (2, 1)])
def test_after_two_faults_on_one_node_its_members_are_checked(members: int, spares: int) -> None:
    """Even if a spare makes the other members enough for a generation: it has no rank index."""
    play = begun(members, spares=spares)
    play.nodes = {f"worker-{n}": f"node-{n % 4}" for n in range(8)}
    play.until_running(members)
    for _ in range(2):
        play.run(70)
        play.crash("worker-1")
        play.until_next(members)
    assert [each.member for each in play.announced("NodeCheckRequested")] == ["worker-1"]
    rounds = {each.message.round for each in play.sent(Check, "worker-1")}
    assert rounds > {0, 1}, "it is measured again before the generation after the second fault"


def test_a_machine_that_has_become_bad_is_found_by_the_requested_check() -> None:
    play = begun(3)
    play.nodes = {f"worker-{n}": f"node-{n % 3}" for n in range(6)}
    play.until_running(3)
    for _ in range(2):
        play.run(70)
        play["worker-1"].bad = "dies"
        play.crash("worker-1")
        play.until_next(3)
    assert play.announced("NodeCheckRequested")
    assert "worker-1" not in play.world


def test_the_culprit_of_a_hang_is_measured_before_it_trains_again() -> None:
    play = begun(3)
    play.until_running(3)
    play.run(2)
    play["worker-2"].bad = "dies"
    play.hang("worker-2", elsewhere(13))
    play.until_next(3, 200)
    requested = play.announced("NodeCheckRequested")
    assert [each.reason for each in requested] == [
        "worker-2 will be checked before its next generation: it caused a hang."
    ]
    assert "worker-2" not in play.world


def test_without_the_node_check_evidence_causes_no_check() -> None:
    play = running(3)
    play.hang("worker-2", elsewhere(13))
    play.until_next(3, 200)
    assert not play.announced("NodeCheckRequested")
    assert not play.sent(Check)


# -- Events and status --------------------------------------------------------------------------------------------
def test_the_status_keeps_the_rounds() -> None:
    play = begun(4, {"worker-1": "dies"})
    play.until_running(4)
    first = play.status()["node_check"][0]
    assert first["round"] == 0
    assert first["members"]["1"]["status"] == "failed (died)"  # type: ignore[index]
    assert first["members"]["0"]["compute"] == 0.05  # type: ignore[index]
    assert "faulty: compute" in verdicts(play)["1"]


def test_of_many_members_only_those_that_stand_out_are_named() -> None:
    play = begun(40, {"worker-7": "slow"})
    play.until_running(40)
    assert lines(play)[0].startswith("check round 0: elapsed 1.01 s {7: 0.260, ")
    assert lines(play)[0].endswith("… 24 more}")
    assert lines(play)[1].endswith("status {7: slow, … 39 ok}")
    assert all(len(line) < 900 for line in lines(play))


def test_a_round_that_began_as_the_lease_was_lost_gets_its_whole_time_once_it_is_held_again() -> None:
    """No member could be asked meanwhile, and one that is not asked reports no new port: waiting for it is in vain."""
    play = begun(2)
    play.run(1.0)
    for actor in play.actors.values():
        actor.answers_checks = False
    play.until(lambda: bool(play.sent(Check)))
    play.tell(LeaseLost("The API server is away."))
    play.run(2 * ROUND_SECONDS)
    for actor in play.actors.values():
        actor.answers_checks = True
    play.tell(LeaseRegained())
    play.until_running(2)
    assert all("no answer" not in line for line in lines(play))
