"""The Events of members that have to leave: which members continue, when the job is resized, which are replaced."""

from __future__ import annotations

from outrider.master.core.actions import CreatePod
from outrider.master.core.events import OwnerSized, PodGone, PodSeen, ScaleRequested, StopAsked
from outrider.wire.ids import Role
from outrider.wire.messages.membership import Leaving
from tests.unit.master.core.adopted import adopted
from tests.unit.master.core.play import Play, job, running


def delete(play: Play, member: str, grace: float = 10.0) -> None:
    """The platform terminates a member's pod."""
    actor = play[member]
    why = f"it was deleted with {grace:.0f} s of grace"
    play.tell(PodSeen(actor.id, actor.uid, Role("worker"), actor.rank_index, "terminating", why, grace=grace))


def stops(play: Play) -> str:
    play.until(lambda: play.stage != "running", 40.0)
    return play.message


def test_the_event_names_the_members_that_continue() -> None:
    play = adopted(3, 2)
    delete(play, "train-2")
    assert (
        stops(play) == "train-2 has to leave now (it was deleted with 10 s of grace); the others continue without it."
    )
    play.until_running(2)


def test_the_last_member_that_continues_is_named() -> None:
    play = adopted(2, 1)
    delete(play, "train-1")
    assert stops(play).endswith("; train-0 continues without it.")
    play.until_running(1)


def test_the_event_names_no_member_that_continues_if_too_few_are_left() -> None:
    play = adopted(2, 2)
    delete(play, "train-1")
    assert stops(play).endswith(
        "; only 1 of the 2 members that a generation needs would be left, so training continues when a replacement is "
        "ready."
    )


def test_the_event_of_the_last_member_says_that_no_other_is_left() -> None:
    play = adopted(1, 1)
    delete(play, "train-0")
    assert stops(play).endswith("; no member is left until a replacement is ready.")


def test_a_job_whose_owner_is_scaled_to_0_waits_and_says_so() -> None:
    play = adopted(2, 1)
    play.tell(OwnerSized(0))
    for member in ("train-1", "train-0"):
        delete(play, member)
    assert stops(play).endswith("; the owner of the pods was scaled to 0.")
    for member in ("train-1", "train-0"):
        play.actors[member].gone = True
        play.tell(PodGone(play[member].id, play[member].uid, "it was deleted"))
    play.run(5.0)
    assert (play.phase, play.message) == (
        "pending",
        "the owner of the pods is scaled to 0; training continues when it is scaled up",
    )
    play.actors.clear()
    for index in range(2):
        play.appears(f"train-{index}", index)
    play.tell(OwnerSized(2))
    assert play.message == "waiting for train-0, train-1: a generation needs at least 1 member, none is ready"
    play.until_running(2)
    assert play.phase == "running"


def test_a_resize_for_leaving_members_says_when_it_comes_at_the_latest_and_what_may_come_first() -> None:
    play = running(3, 1, grow_patience=600.0)
    play.say(play["worker-1"], Leaving("SIGTERM", 30.0))
    play.say(play["worker-2"], Leaving("SIGTERM", 30.0))
    assert [a.reason for a in play.announced("ResizePending")] == [
        "The generation will shrink from 3 to 2 members, at the next finished checkpoint or in 25 s, when worker-1 "
        "must have left; if its replacement is ready earlier, the generation keeps its size.",
        "The generation will shrink from 3 to 1 member, at the next finished checkpoint or in 25 s, when worker-1 "
        "must have left; if the replacements are ready earlier, the generation keeps its size.",
    ]
    assert play.until_next(3) < 4.0, "the replacements came first"


def test_a_second_drain_with_a_later_end_is_not_reported() -> None:
    """Its pod has a shorter grace than its spec says, and its sidecar knows only the spec."""
    play = running(3, 2)
    delete(play, "worker-1", grace=1.0)
    play.run(0.01)
    play.say(play["worker-1"], Leaving("SIGTERM", 10.0))
    (reported,) = play.announced("MemberDraining")
    assert reported.reason.startswith("worker-1 has to leave (it was deleted with 1 s of grace) and has 1 s; a ")


def test_a_second_drain_with_a_sooner_end_is_reported() -> None:
    play = running(3)
    delete(play, "worker-1", grace=60.0)
    play.say(play["worker-1"], Leaving("SIGTERM", 10.0))
    assert [reported.reason for reported in play.announced("MemberDraining")][1:] == [
        "worker-1 has to leave (SIGTERM) and has only 10 s."
    ]


def test_a_dismissed_member_is_not_drained_again() -> None:
    play = running(3, 2)
    play.tell(ScaleRequested(2))
    play.save("worker-0")
    play.until(lambda: bool(play.announced("MemberRemoved")), 60.0)
    gone = play.announced("MemberRemoved")[0]
    assert gone.member is not None
    play.say(play[gone.member], Leaving(gone.reason, 10.0))
    assert not play.announced("MemberDraining")


def test_growth_waits_for_a_checkpoint_or_its_patience_as_before() -> None:
    play = running(4, 2)
    play.lose("worker-3")
    play.run(20)
    (pending,) = play.announced("ResizePending")
    assert pending.reason == (
        "The generation will grow from 3 to 4 members, at the next finished checkpoint or in 600 s."
    )


def test_a_replacement_names_the_member_it_replaces_and_whether_that_may_return() -> None:
    play = running(4, 4)
    play.say(play["worker-1"], Leaving("SIGTERM", 30.0))
    play.say(play["worker-2"], Leaving("SIGTERM", 30.0))
    assert [a.reason for a in play.announced("ReplacementCreated")] == [
        "worker-4 is created as a spare: worker-1 has to leave.",
        "worker-5 is created as a spare: worker-1 and worker-2 have to leave.",
    ]


def test_a_replacement_of_a_silent_member_may_prove_not_to_be_needed() -> None:
    play = running(3, 3)
    play.freeze("worker-1")
    play.until(lambda: bool(play.announced("ReplacementCreated")), 30.0)
    assert play.announced("ReplacementCreated")[0].reason.endswith("worker-1 may not come back.")


def test_a_running_generation_is_reported_once_with_the_step_before_it() -> None:
    play = Play(job(2))
    play.until_running(2)
    assert [a.reason for a in play.announced("GenerationRunning")] == ["Generation 1.1 runs with 2 members, 2 ranks."]
    play.run(3.0)
    play.crash("worker-1", step=30)
    play.until_next(2)
    play.run(5.0)
    reported = [a.reason for a in play.announced("GenerationRunning")]
    assert reported[1:] == ["Generation 1.2 runs with 2 members, 2 ranks; the highest step so far is 30."]


def test_a_generation_of_one_member_is_reported_in_the_singular() -> None:
    play = Play(job(1))
    play.until_running(1)
    assert play.message == "generation 1.1 runs with 1 member"


def ends_well(play: Play) -> None:
    """No member is created any more, and no generation forms."""
    play.until(lambda: play.ended() is not None, 20.0)
    assert (play.phase, str(play.generation)) == ("stopped", "1.1")
    assert not any(isinstance(action, CreatePod) for action in play.actions)


def test_members_that_are_drained_while_their_job_ends_get_no_replacements() -> None:
    play = running(2)
    play.tell(StopAsked("its ElasticJob was deleted", within=5.0))
    for member in ("worker-0", "worker-1"):
        play.say(play[member], Leaving("SIGTERM", 5.0))
        delete(play, member, grace=5.0)
    assert not play.announced("MemberDraining")
    ends_well(play)


def test_the_grace_of_a_member_that_ends_after_its_job_forms_no_generation() -> None:
    play = running(2)
    play.say(play["worker-1"], Leaving("SIGTERM", 6.0))
    before = sum(isinstance(action, CreatePod) for action in play.actions)
    play.freeze("worker-0")
    play.tell(StopAsked("by `outrider stop`"))
    play.until(lambda: play.ended() is not None, 120.0)
    assert (play.phase, str(play.generation)) == ("stopped", "1.1")
    assert sum(isinstance(action, CreatePod) for action in play.actions) == before
