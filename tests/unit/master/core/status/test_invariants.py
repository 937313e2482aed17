"""The invariants can fail, and a long random life of a job does not break them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from outrider.master.core.actions import DeletePod, Send
from outrider.master.core.events import RestartRequested, ScaleRequested
from outrider.master.core.state.timers import Deadlines
from outrider.master.core.status.invariants import Broken, check, check_actions
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, RankIndex
from outrider.wire.messages.generation import Start
from outrider.wire.messages.membership import Leaving
from tests.tiers import witnesses
from tests.unit.master.core.play import Play, job, running


def test_a_rank_that_is_assigned_twice_is_noticed() -> None:
    play = running(2)
    world = play.state.world
    assert world is not None
    world.places[MemberId("worker-1")] = replace(world.places[MemberId("worker-1")], first_rank=0)
    with pytest.raises(Broken, match="every rank is assigned exactly once"):
        check(play.state)


def test_a_rank_index_that_is_assigned_twice_is_noticed() -> None:
    play = running(2)
    play.state.members[MemberId("worker-1")].rank_index = RankIndex(0)
    with pytest.raises(Broken, match="each rank index has one member"):
        check(play.state)


def test_an_order_that_is_not_repeated_is_noticed() -> None:
    play = running(2)
    play["worker-1"].stubborn = True
    play.crash("worker-0")
    member = play.state.members[MemberId("worker-1")]
    (number,) = member.orders
    play.state.deadlines.cancel(("order", f"worker-1/{number}"))
    with pytest.raises(Broken, match="a pending order is repeated"):
        check(play.state)


def test_a_start_of_another_generation_is_noticed() -> None:
    play = Play(job(2))
    play.until_running()
    sent = play.sent(Start)[0]
    assert isinstance(sent.message, Start)
    wrong = Send(sent.session, sent.member, replace(sent.message, generation=Generation(1, 9)), Generation(1, 9), "")
    with pytest.raises(Broken, match="only sent for the current generation"):
        check_actions(play.state, [wrong])


def test_the_deletion_of_a_healthy_member_is_noticed() -> None:
    play = running(2)
    member = play.state.members[MemberId("worker-1")]
    assert member.uid is not None
    with pytest.raises(Broken, match="marked as being deleted"):
        check_actions(play.state, [DeletePod(member.id, member.uid, 0.0, play.generation, "")])


def test_a_deadline_that_is_set_again_is_due_once() -> None:
    deadlines = Deadlines()
    deadlines.set(("hear", "a"), 1.0)
    deadlines.set(("hear", "a"), 2.0)
    deadlines.set(("hear", "b"), 1.5)
    assert deadlines.next() == 1.5
    assert deadlines.take_due(1.7) == [("hear", "b")]
    assert deadlines.take_due(5.0) == [("hear", "a")]
    assert deadlines.next() is None


def _harm(play: Play, chance: random.Random) -> None:
    living = sorted(m for m, a in play.actors.items() if not a.gone)
    if not living:
        return
    member = chance.choice(living)
    actor = play[member]
    what = chance.choice(["crash", "lose", "freeze", "thaw", "unheard", "heard", "trainer", "reconnect", "save",
                          "scale", "restart", "leave"])  # fmt: skip
    runs = actor.running != NO_GENERATION and not actor.frozen
    match what:
        case "crash" if runs:
            play.crash(member)
        case "lose":
            play.lose(member)
        case "freeze":
            play.freeze(member)
        case "thaw" if actor.frozen:
            play.thaw(member)
        case "unheard":
            actor.unheard = True
        case "heard" if actor.unheard:
            actor.unheard = False
            play.reconnect(member)
        case "trainer" if runs:
            play.lose_trainer(member)
        case "reconnect" if not actor.frozen and actor.session:
            play.reconnect(member)
        case "save" if runs:
            play.save(member)
        case "scale":
            play.tell(ScaleRequested(chance.randint(2, 4)))
        case "restart":
            play.tell(RestartRequested(chance.random() < 0.5))
        case "leave":
            play.say(actor, Leaving("drained", 30.0))


@pytest.mark.parametrize("seed", witnesses(range(30), *range(0, 30, 6)))
def test_a_job_that_is_harmed_at_random_keeps_the_invariants_and_continues_training(seed: int) -> None:
    chance = random.Random(seed)
    play = Play(job(4, 2, spares=chance.randint(0, 1), max_restarts=1000, grow_patience=60.0))
    play.until_running()
    for _ in range(25):
        _harm(play, chance)
        play.run(chance.choice([0.0, 0.02, 0.2, 2.0, 10.0]))
    for member in sorted(m for m, a in play.actors.items() if not a.gone):
        if play[member].frozen:
            play.thaw(member)
        if play[member].unheard:
            play[member].unheard = False
            play.reconnect(member)
    play.run(400)
    assert play.ended() is None, play.message
    assert play.is_running(), play.history()
    made = play.highest_step
    play.run(200)
    assert play.highest_step > made, "training continues"
