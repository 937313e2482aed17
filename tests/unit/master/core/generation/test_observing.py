"""An observe-only job trains, its faults are seen, and every remedy is only reported."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from outrider.master.core.actions import (
    Action,
    Announce,
    CreatePod,
    DeletePod,
    FollowOwner,
    HidePod,
    ResizeOwner,
    Send,
    WriteReplicas,
)
from outrider.master.core.events import NodeSeen, RestartRequested, ScaleRequested, SpecChanged, StopAsked
from outrider.master.core.generation.observe_only import filtered
from outrider.master.core.spec import Rule
from outrider.master.core.state.job import State
from outrider.wire.ids import Generation, MemberId, OrderId, PodUid
from outrider.wire.messages.checkpoints import SaveState
from outrider.wire.messages.generation import Start, Stop
from outrider.wire.messages.membership import Finish, Leaving, Refused, Welcome
from tests.unit.master.core.play import Play, job, names, running

FIRST, MEMBER = Generation(1, 1), MemberId("worker-0")


def observed(members: int = 2, least: int | None = None, **policy: object) -> Play:
    return running(members, least, observed=True, **policy)


def touches(action: Action) -> bool:
    """All actions that stop, delete, resize or recreate something."""
    if isinstance(action, Send):
        is_refusal = isinstance(action.message, Refused) and action.message.retry_after < 0
        return is_refusal or isinstance(action.message, Stop | Finish | SaveState)
    return isinstance(action, DeletePod | HidePod | ResizeOwner | FollowOwner | WriteReplicas)


def would(play: Play) -> list[str]:
    return [each.reason for each in play.announced("DryRun")]


def test_its_first_generation_is_formed_and_trains_and_its_members_know_that_it_is_observed() -> None:
    play = Play(job(2, observed=True))
    play.until_running(2)
    assert len(play.sent(Start)) == 2
    assert all(each.message.hands_off for each in play.sent(Welcome))  # type: ignore[union-attr]
    play.run(5)
    assert play.step() > 0
    assert would(play) == []


def test_a_rank_that_dies_is_seen_and_the_dry_run_is_reported_once() -> None:
    play = observed()
    play.crash("worker-1")
    play.run(3)
    assert [each.member for each in play.announced("WorkerExited")] == ["worker-1"]
    (said,) = would(play)
    assert said.startswith("Would stop generation 1.1: Rank 1 on worker-1 was killed by SIGKILL")
    play.crash("worker-0")
    play.run(100)
    assert len(would(play)) == 1, "the generation would have been stopped long before"
    assert play.status()["dry_run"] == [said]
    assert play.generation.number == 1


@pytest.mark.parametrize(
    ("hurt", "said"),
    [
        (lambda play: play.lose("worker-1"), "Would create a member for rank index 1: the rank index is vacant."),
        (lambda play: play.fail("worker-1"), "Would create a member for rank index 1: the rank index is vacant."),
        (lambda play: play.freeze("worker-1"), "Would delete the pod of worker-1: worker-1 has been silent for"),
        (lambda play: play.lose_trainer("worker-1"), "Would stop generation 1.1: worker-1: the template was killed"),
        (lambda play: play.say(play["worker-1"], Leaving("gone", 60.0)), "Would create a spare: worker-1 has to leave"),
        (lambda play: play.tell(RestartRequested(False)), "Would stop generation 1.1: A restart was requested."),
        (lambda play: play.tell(ScaleRequested(1)), "Would stop generation 1.1: "),
        (lambda play: play.tell(StopAsked("by hand")), "Would end the job: by hand."),
        (lambda play: play.tell(SpecChanged(play.spec, True)), "Would stop generation 1.1: "),
    ],
)  # fmt: skip
def test_each_remedy_is_reported_and_none_is_done(hurt: Callable[[Play], object], said: str) -> None:
    play = observed(2, 1)
    hurt(play)
    play.run(100)
    if "worker-0" in play.world:
        play.save("worker-0")
    play.run(1000)
    assert [each for each in would(play) if each.startswith(said)], would(play)
    assert not [action for action in play.actions if touches(action) or isinstance(action, CreatePod)]
    assert not play.sent(Start)


def test_a_silent_member_is_a_member_again_when_it_is_heard() -> None:
    play = observed()
    play.freeze("worker-1")
    play.run(60)
    assert play.announced("MemberSilent")
    play.thaw("worker-1")
    play.run(10)
    assert play.is_running(2)
    assert not [each for each in play.sent(Refused) if each.message.retry_after < 0]  # type: ignore[union-attr]


def test_if_all_have_ended_with_0_the_job_has_succeeded_and_its_members_may_finish() -> None:
    play = observed()
    for member in names(0, 1):
        play.done(member)
    play.run(10)
    assert play.announced("JobSucceeded")
    end = play.ended()
    assert end is not None
    assert end.exit_code == 0
    assert len({each.member for each in play.sent(Finish)}) == 2


def test_if_no_member_is_left_the_job_is_over_as_without_outrider() -> None:
    play = observed()
    play.crash("worker-1")
    play.fail("worker-1")
    play.fail("worker-0")
    play.run(10)
    end = play.ended()
    assert end is not None
    assert end.exit_code != 0
    assert "the job is only observed" in end.reason
    assert not play.deleted()


def test_a_generation_that_has_ended_by_itself_restarts_if_its_containers_do() -> None:
    """As if the kubelet restarts a failed container: nothing of the old generation runs, so nothing is stopped."""
    play = observed()
    for member in names(0, 1):
        play.lose_trainer(member)
    assert play.until_running(2) > 0
    assert play.generation.number == 2
    assert not [action for action in play.actions if touches(action)]


def test_a_master_that_follows_touches_nothing_either() -> None:
    play = observed()
    play.crash("worker-1")
    actors = play.actors
    later = Play(play.spec, term=2, saved=play.saved, actors=actors, now=play.now + 1)
    later.run(60)
    assert not [action for action in later.actions if touches(action)]
    assert not later.sent(Start)


def deeds(play: Play, member: str, chance: random.Random) -> list[Callable[[], object]]:
    return [
        lambda: play.crash(member),
        lambda: play.lose(member),
        lambda: play.fail(member),
        lambda: play.freeze(member),
        lambda: play.thaw(member),
        lambda: play.lose_trainer(member),
        lambda: play.reconnect(member),
        lambda: play.save(member),
        lambda: play.done(member),
        lambda: play.tell(ScaleRequested(chance.randint(1, 4))),
        lambda: play.tell(RestartRequested(chance.random() < 0.5)),
        lambda: play.say(play[member], Leaving("drained", 30.0)),
    ]


@pytest.mark.parametrize("seed", range(40))
def test_nothing_that_can_happen_makes_it_touch_anything(seed: int) -> None:
    chance = random.Random(seed)
    play = observed(4, chance.choice((1, 2, 4)), spares=chance.choice((0, 1)), replace_after=5.0)
    for _ in range(12):
        member = chance.choice(list(play.actors))
        if play.is_ended or play[member].gone or play[member].failed is not None:
            continue
        chance.choice(deeds(play, member, chance))()
        play.run(chance.choice((0.1, 3.0, 40.0)))
    succeeded = play.announced("JobSucceeded")
    touching = [a for a in play.actions if touches(a) or isinstance(a, CreatePod)]
    assert not [a for a in touching if not (succeeded and isinstance(a, Send) and isinstance(a.message, Finish))]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (DeletePod(MEMBER, PodUid("u"), 30.0, FIRST, "x"), "Would delete the pod of worker-0: x"),
        (WriteReplicas(3, FIRST, "x"), "Would resize to 3: x"),
        (HidePod(MEMBER, PodUid("u"), FIRST, "x"), ""),
        (Send("s", MEMBER, SaveState(OrderId(1), FIRST, 30.0), FIRST, "x"), "Would ask worker-0 to save: x"),
        (Send("s", MEMBER, Stop(OrderId(1), FIRST), FIRST, "x"), "Would stop generation 1.1 on worker-0: x"),
        (Announce("MemberRemoved", "x", FIRST), ""),
    ],
)
def test_every_action_that_touches_something_is_reported_instead(wanted: Action, said: str) -> None:
    job_ = State(spec=job(2, observed=True))
    reported = filtered(job_, [wanted, wanted])
    assert [each.reason for each in reported if isinstance(each, Announce)] == [said] * bool(said)
    assert filtered(State(spec=job(2)), [wanted]) == [wanted]


def test_a_member_that_would_be_refused_for_good_is_to_try_again() -> None:
    (sent,) = filtered(State(spec=job(2, observed=True)), [Send("s", MEMBER, Refused("no", -1.0), FIRST, "x")])
    assert isinstance(sent, Send)
    assert sent.message == Refused("no", 5.0)


def test_only_the_newest_reports_are_remembered() -> None:
    job_ = State(spec=job(2, observed=True))
    for number in range(600):
        assert filtered(job_, [WriteReplicas(number, FIRST, "x")])
    assert len(job_.would) == 500
    assert filtered(job_, [WriteReplicas(599, FIRST, "x")]) == []


@pytest.mark.parametrize(
    ("what", "said"),
    [("dies", "Would exclude worker-1: "), ("", "")],
)
def test_a_member_that_fails_the_node_check_still_trains(what: str, said: str) -> None:
    play = Play(job(3, observed=True, node_check=True))
    play.bad["worker-1"] = what
    play.until_running(3)
    assert [each for each in would(play) if said and each.startswith(said)] == would(play)
    assert bool(would(play)) == bool(said)
    assert not [action for action in play.actions if touches(action)]


def test_a_job_that_would_choose_another_size_reports_it() -> None:
    play = Play(replace(job(4, 1, observed=True), replicas=2, scaling="throughput", scale_cooldown=0.0))
    play.pace = lambda world: 0.37
    play.until_running(2)
    play.run(60)
    assert [each for each in would(play) if each.startswith("Would resize to 4: ")]
    assert (len(play.world), play.wanted()) == (2, 2)


def test_the_action_of_a_rule_is_reported() -> None:
    play = observed(rules=(Rule((3,), "replace"), Rule((), "fail", taint="maintenance")))
    play.tell(replace(play.pod(play["worker-0"]), node="b"))
    play.tell(NodeSeen("b", True, taints=("maintenance",)))
    play.crash("worker-1", signal=None, code=3)
    play.run(5)
    said = "\n".join(would(play))
    assert "Would end the job as failed: Node b: rule 2 of recovery.rules requires fail for taint maintenance" in said
    assert "Would fail worker-1: " in said
    assert play.ended() is None
