"""Pods that name their own rank index (an Indexed Job's, a JobSet's), recreated while the ones before terminate."""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.actions import CreatePod, PlacePod
from outrider.master.core.events import PodSeen, SpecChanged
from outrider.wire.ids import NO_GENERATION, MemberId, Role
from tests.unit.master.core.play import Play, job


def adopted(members: int, least: int) -> Play:
    play = Play(replace(job(members, least), is_adopted=True))
    play.run(0.1)
    return play


def indexed(members: int, least: int) -> Play:
    """A running job of an Indexed Job's pods."""
    play = adopted(members, least)
    for index in range(members):
        play.appears(f"train-{index}-old", index)
    play.until_running(members)
    play.run(2.0)
    play.actions.clear()
    return play


def uncounted(play: Play, member: str) -> None:
    """Adds a pod that names no rank index."""
    play.create(CreatePod(MemberId(member), Role("worker"), None, NO_GENERATION, ""))


def terminates(play: Play, member: str, grace: float = 30.0) -> None:
    """Deletes a pod, which is gone when its grace is over."""
    actor = play[member]
    play.tell(PodSeen(actor.id, actor.uid, Role("worker"), actor.rank_index, "terminating", "it was deleted",
                      grace=grace))  # fmt: skip
    play.after(grace, lambda: None if actor.gone else (play.lose(member), None)[1])


def grow(play: Play, saving: str, members: int) -> None:
    """Finishes a checkpoint, so that waiting members join."""
    play.save(saving)
    play.save(saving)
    play.until_running(members)


def ranks(play: Play) -> dict[str, int]:
    return {member: int(place.rank_index) for member, place in play.places().items()}


def test_two_pods_that_are_recreated_at_once_get_the_rank_indexes_of_their_own_predecessors() -> None:
    for first, second in ((0, 1), (1, 0)):
        play = indexed(3, 1)
        terminates(play, "train-0-old")
        terminates(play, "train-1-old")
        play.appears(f"train-{first}-new", first)
        play.run(0.5)
        play.appears(f"train-{second}-new", second)
        play.run(60.0)
        assert ranks(play) == {"train-0-new": 0, "train-1-new": 1, "train-2-old": 2}


def test_the_rank_index_of_a_terminating_pod_waits_for_its_own_successor() -> None:
    play = indexed(3, 1)
    terminates(play, "train-1-old", 4.0)
    terminates(play, "train-0-old")
    play.appears("train-0-new", 0)
    play.run(10.0)
    grow(play, "train-2-old", 2)
    assert ranks(play) == {"train-0-new": 0, "train-2-old": 2}
    play.appears("train-1-new", 1)
    play.run(5.0)
    grow(play, "train-2-old", 3)
    assert ranks(play) == {"train-0-new": 0, "train-1-new": 1, "train-2-old": 2}


def test_it_trains_on_until_its_successor_is_ready() -> None:
    play = indexed(3, 3)
    terminates(play, "train-1-old")
    play.appears("train-1-new", 1)
    assert play.is_running(3)
    play.until_next(3, 10.0)
    assert ranks(play)["train-1-new"] == 1
    assert not play["train-1-old"].gone


def test_a_pod_beyond_the_size_of_the_job_takes_no_rank_index() -> None:
    play = indexed(4, 2)
    play.tell(SpecChanged(replace(play.spec, replicas=3)))
    play.lose("train-1-old")
    play.run(30.0)
    assert ranks(play) == {"train-0-old": 0, "train-2-old": 2}


def test_the_label_that_a_pod_came_with_is_not_rewritten() -> None:
    play = indexed(2, 1)
    terminates(play, "train-0-old")
    play.appears("train-0-new", 0)
    play.run(60.0)
    assert ranks(play) == {"train-0-new": 0, "train-1-old": 1}
    assert not [action for action in play.actions if isinstance(action, PlacePod)]


def test_a_member_with_a_vacant_rank_index_gives_way_to_the_pod_that_names_it() -> None:
    play = adopted(3, 2)
    uncounted(play, "train-x")
    play.appears("train-2", 2)
    play.until_running(2, 90.0)
    assert ranks(play) == {"train-x": 0, "train-2": 2}
    play.appears("train-0", 0)
    play.run(5.0)
    grow(play, "train-2", 3)
    assert ranks(play) == {"train-0": 0, "train-x": 1, "train-2": 2}
    shown = [a.rank_index for a in play.actions if isinstance(a, PlacePod) and a.member == "train-x"]
    assert (shown[0], shown[-1]) == (0, 1)


def test_a_new_master_knows_which_members_named_their_rank_index_and_which_were_assigned_one() -> None:
    play = adopted(2, 1)
    play.appears("train-1", 1)
    uncounted(play, "train-x")
    play.until_running(2)
    terminates(play, "train-1", 60.0)
    play.appears("another-1", 1)
    play["train-x"].rank_index = play.member("train-x")["rank_index"]  # as its label says by now
    play.run(1.0)
    after = Play(play.spec, term=2, saved=play.saved, actors=play.actors, now=play.now, master="m2")
    after.until_running(2)
    held = after.handed_over()["members"].items()
    assert {member: (index, own) for member, (_uid, index, own) in held} == {
        "train-1": (1, 1),
        "another-1": (None, 1),
        "train-x": (0, None),
    }
    terminates(after, "train-1", 20.0)
    after.run(30.0)
    assert ranks(after) == {"train-x": 0, "another-1": 1}


def test_pods_that_name_no_rank_index_replace_any_lost_member() -> None:
    play = adopted(2, 1)
    uncounted(play, "train-a")
    uncounted(play, "train-b")
    play.until_running(2)
    terminates(play, "train-a")
    uncounted(play, "train-c")
    play.run(60.0)
    assert sorted(ranks(play).values()) == [0, 1]
    assert set(ranks(play)) == {"train-b", "train-c"}


def test_two_pods_that_name_the_same_rank_index_and_stay_are_reported() -> None:
    play = indexed(2, 2)
    play.appears("other-1", 1)
    play.run(10.0)
    (event,) = play.announced("RankIndexConflict")
    assert event.reason == (
        "other-1 and train-1-old both name rank index 1: train-1-old has it, and other-1 waits until train-1-old ends. "
        "Delete one of the two pods."
    )
    assert ranks(play) == {"train-0-old": 0, "train-1-old": 1}
    play.lose("train-1-old")
    play.until_running(2)
    assert ranks(play) == {"train-0-old": 0, "other-1": 1}
