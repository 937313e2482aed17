"""Rules of the user about a node's conditions and taints."""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.actions import CreatePod, DeletePod
from outrider.master.core.events import NodeSeen, SpecChanged
from outrider.master.core.spec import Rule
from outrider.wire.messages.membership import Finish, Leaving
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Play, job

UNHEALTHY = NodeSeen("b", True, conditions=(("GpuUnhealthy", "True"), ("KernelDeadlock", "False")))
HEALTHY = NodeSeen("b", True, conditions=(("GpuUnhealthy", "False"), ("KernelDeadlock", "False")))
TAINTED = NodeSeen("b", True, taints=("maintenance",))
PLACES = {"worker-0": "a", "worker-1": "b", "worker-2": "c", "worker-3": "a", "worker-4": "b"}


def by_condition(action: str, status: str = "True") -> Rule:
    return Rule((), action, ("GpuUnhealthy", status))


def trains(*rules: Rule, members: int = 3, least: int | None = None, **policy: object) -> Play:
    """worker-1 is on node b."""
    play = Play(job(members, least, rules=rules, **policy))
    play.nodes = dict(PLACES)
    play.until_running(members)
    play.run(2)
    play.actions.clear()
    return play


def made(play: Play) -> list[CreatePod]:
    return [a for a in play.actions if isinstance(a, CreatePod)]


def test_members_of_a_node_are_replaced_elsewhere_and_train_until_then() -> None:
    play = trains(by_condition("replaceNode"))
    play.tell(UNHEALTHY)
    assert play.is_running(3), "make before break"
    assert [(a.member, a.avoid) for a in made(play)] == [("worker-3", ("b",))]
    play.until_next(3)
    assert sorted(play.world) == ["worker-0", "worker-2", "worker-3"]
    play.run(1)
    assert play.deleted() == ["worker-1"]
    (met,) = play.announced("NodeRuleMet")
    assert (
        met.reason
        == "Node b: rule 1 of recovery.rules requires replaceNode for GpuUnhealthy=True. Members there: worker-1."
    )
    assert play.restarts_used() == 0
    assert not play.announced("MemberFailed")


def test_a_rule_may_name_a_taint() -> None:
    play = trains(Rule((), "replace", taint="maintenance"))
    play.tell(UNHEALTHY)
    assert not made(play)
    play.tell(TAINTED)
    play.until_next(3)
    assert sorted(play.world) == ["worker-0", "worker-2", "worker-3"]


def test_new_pods_avoid_the_node_while_the_rule_applies_and_for_a_day_with_replace_node() -> None:
    for action, avoided in (("replace", []), ("replaceNode", ["b"])):
        play = trains(by_condition(action))
        play.tell(UNHEALTHY)
        assert play.status()["excluded_nodes"] == ["b"]
        play.until_next(3)
        play.tell(HEALTHY)
        assert play.status()["excluded_nodes"] == avoided
        (over,) = play.announced("NodeRuleCleared")
        assert over.reason == "Node b: rule 1 of recovery.rules no longer applies."


def test_a_pod_that_lands_on_the_node_later_stays_there() -> None:
    play = trains(by_condition("replace"), members=2)
    play.nodes = {f"worker-{number}": "b" for number in range(9)}
    play.tell(UNHEALTHY)
    play.until_next(2)
    play.run(30)
    play.tell(UNHEALTHY)
    play.run(30)
    assert len(made(play)) == 1


def test_pods_that_were_created_before_the_node_was_known_are_replaced_too() -> None:
    play = Play(job(2, 1, rules=(by_condition("replaceNode"),)))
    play.run(0.05)
    play.tell(replace(play.pod(play["worker-0"]), node="b"))
    play.tell(UNHEALTHY)
    play.tell(replace(play.pod(play["worker-1"]), node="b"))
    play.nodes = {"worker-2": "a", "worker-3": "a"}
    play.run(30)
    assert sorted(play.world) == ["worker-2", "worker-3"]


def test_a_rule_may_end_the_job_or_restart_in_place() -> None:
    play = trains(by_condition("fail"))
    play.tell(UNHEALTHY)
    play.until(lambda: play.ended() is not None, 30)
    assert play.message == "Node b: rule 1 of recovery.rules requires fail for GpuUnhealthy=True."
    play = trains(by_condition("restart"))
    play.tell(UNHEALTHY)
    play.until_next(3)
    play.tell(UNHEALTHY)
    play.run(10)
    assert play.generation.number == 2
    assert not made(play)
    assert play.restarts_used() == 0


def test_a_rule_does_nothing_about_a_node_without_members() -> None:
    play = trains(by_condition("fail"))
    play.tell(replace(UNHEALTHY, node="elsewhere"))
    play.run(5)
    assert play.is_running(3)
    play.tell(replace(HEALTHY, node="elsewhere"))
    assert not play.announced("NodeRuleMet")
    assert not play.announced("NodeRuleCleared"), "its beginning was not reported"


def test_a_rule_that_is_added_later_applies_to_the_known_nodes() -> None:
    play = trains()
    play.tell(UNHEALTHY)
    play.run(5)
    assert not made(play)
    play.tell(SpecChanged(replace(play.spec, rules=(by_condition("replace"),))))
    play.until_next(3)
    assert sorted(play.world) == ["worker-0", "worker-2", "worker-3"]
    play.tell(SpecChanged(replace(play.spec, rules=())))
    assert play.status()["excluded_nodes"] == []


def test_a_new_master_finishes_a_replacement_that_the_last_one_began_once_only() -> None:
    play = trains(by_condition("replaceNode"))
    play.creates_pods = False
    play.tell(UNHEALTHY)
    play.run(1)
    after = successor(play)
    after.nodes = {"worker-3": "b", "worker-4": "b"}
    after.tell(UNHEALTHY)
    after.until_running(3)
    after.until(lambda: "worker-1" in after.deleted(), 60)
    after.until_running(3)
    after.run(30)
    third = successor(after)
    third.tell(UNHEALTHY)
    third.run(60)
    assert not made(third)
    assert third.is_running(3)


def test_the_pod_of_another_controller_is_deleted_so_that_it_creates_another() -> None:
    play = Play(replace(job(2, 1, rules=(by_condition("replace"),)), is_adopted=True))
    play.nodes = {"train-1": "b"}
    play.run(0.1)
    play.appears("train-0", 0)
    play.appears("train-1", 1)
    play.until_running(2)
    play.run(2)
    play.stuck.add("train-1")
    play.tell(UNHEALTHY)
    (deletion,) = [a for a in play.actions if isinstance(a, DeletePod)]
    assert (deletion.member, deletion.grace) == ("train-1", 30.0)
    assert play.is_running(2)
    play.run(26)
    assert play.world == ["train-0"]
    assert play.ended() is None


def test_a_pod_without_a_controller_stays_and_is_reported() -> None:
    play = trains(by_condition("replace"))
    play.tell(replace(play.pod(play["worker-1"]), has_controller=False))
    play.tell(UNHEALTHY)
    play.run(30)
    assert not play.deleted()
    assert not play.sent(Finish)
    (event,) = play.announced("PodNotDeleted")
    assert event.reason.startswith("worker-1 must be replaced (node b: rule 1 of recovery.rules requires replace")


def test_a_rule_about_a_node_may_require_several_matches() -> None:
    play = trains(Rule((), "replace", ("GpuUnhealthy", "True"), times=2, within=600.0))
    for seen in (UNHEALTHY, UNHEALTHY, HEALTHY):
        play.tell(seen)
    play.run(5)
    assert not play.announced("NodeRuleMet"), "it began to apply once"
    play.tell(UNHEALTHY)
    play.until_next(3)
    assert sorted(play.world) == ["worker-0", "worker-2", "worker-3"]
    assert play.announced("NodeRuleMet")[0].reason.startswith(
        "Node b: rule 1 of recovery.rules requires replace for GpuUnhealthy=True, met 2 times within 600 s."
    )


def test_a_dry_run_about_a_node_is_reported_each_time_it_begins_to_apply_but_not_by_a_second_master() -> None:
    play = trains(Rule((), "replaceNode", ("GpuUnhealthy", "True"), dry_run=True))
    for seen in (UNHEALTHY, UNHEALTHY, HEALTHY):
        play.tell(seen)
    play.run(61)
    play.tell(UNHEALTHY)
    assert [event.reason for event in play.announced("RuleDryRun")] == 2 * [
        "Node b: rule 1 of recovery.rules requires replaceNode for GpuUnhealthy=True. Nothing is done, because "
        "dryRun is set; remove it to apply the rule."
    ]
    play.run(20)
    assert play.is_running(3)
    after = successor(play)
    after.tell(UNHEALTHY)
    after.until_running(3)
    assert not after.announced("RuleDryRun")
    assert not made(after)


def test_a_checkpoint_before_the_replacement_is_ready_does_not_shrink_the_job() -> None:
    play = trains(by_condition("replaceNode"), least=2)
    play.tell(UNHEALTHY)
    (pending,) = play.announced("ResizePending")
    assert pending.reason == (
        "The generation will shrink from 3 to 2 members, at the next finished checkpoint if no replacement is "
        "starting by then, or in 295 s, when worker-1 must have left; if its replacement is ready earlier, the "
        "generation keeps its size."
    )
    play.save("worker-0")
    assert play.is_running(3)
    assert not play.announced("ResizeStarted")
    play.until_next(3)
    assert play.generation.number == 2


def test_if_there_is_no_room_for_a_replacement_the_next_checkpoint_shrinks_the_job() -> None:
    play = trains(by_condition("replaceNode"), least=2)
    play.tell(UNHEALTHY)
    play.until(lambda: "worker-3" in play.actors)
    play.tell(replace(play.pod(play["worker-3"]), phase="pending", unschedulable=True))
    play.save("worker-0")
    (resized,) = play.announced("ResizeStarted")
    assert resized.reason.endswith("is finished: the generation will shrink from 3 to 2 members.")


def test_a_rule_applies_to_an_older_pod_when_it_is_scheduled_to_the_node() -> None:
    """The pod was created before the node's condition was read, and lands on it afterwards."""
    for action, is_over in (("fail", True), ("restart", False)):
        play = trains(by_condition(action), members=2)
        play.tell(UNHEALTHY)
        play.until_next(2) if action == "restart" else play.run(0.1)
        play = trains(by_condition(action), members=2)
        play.tell(replace(UNHEALTHY, node="z"))
        generation = play.generation
        play.tell(replace(play.pod(play["worker-0"]), node="z"))
        play.run(5)
        assert play.is_over == is_over
        assert play.generation == generation


def test_a_rule_to_restart_does_nothing_if_the_generation_has_no_member_there() -> None:
    play = trains(by_condition("restart"), members=1, spares=1)
    play.tell(UNHEALTHY)
    play.run(5)
    assert play.announced("NodeRuleMet"), "the spare is there"
    assert (play.world, play.generation.number) == (["worker-0"], 1)


def test_a_member_that_is_silent_or_leaves_already_is_not_replaced_for_a_rule_as_well() -> None:
    play = trains(by_condition("replace"))
    play.say(play["worker-1"], Leaving("SIGTERM", 300.0))
    (spare,) = made(play)
    play.tell(UNHEALTHY)
    assert made(play) == [spare]
    assert len(play.announced("MemberDraining")) == 1
    play = trains(by_condition("replace"), replace_after=60.0)
    play.freeze("worker-1")
    play.until(lambda: bool(play.announced("MemberSilent")))
    play.tell(UNHEALTHY)
    assert play.announced("NodeRuleMet")
    assert not play.announced("MemberDraining")
