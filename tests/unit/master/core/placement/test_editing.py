"""A job whose spec is edited while it runs."""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.actions import CreatePod
from outrider.master.core.events import CreateRejected, PodGone, PodSeen, PodsListed, SpecChanged, StopAsked
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.membership import Finish
from tests.unit.master.core.play import Play, job, running


def edit(play: Play, *, suspended: bool = False, **changes: object) -> None:
    play.tell(SpecChanged(replace(play.spec, **changes), suspended))  # type: ignore[arg-type]


def test_a_suspended_job_stops_its_generation_and_deletes_its_members() -> None:
    play = running(3)
    edit(play, suspended=True)
    play.until(lambda: not play.members())
    assert sorted(play.deleted()) == ["worker-0", "worker-1", "worker-2"]
    assert play.phase == "suspended"
    assert not play.faults()
    play.run(60)
    assert not [a for a in play.actions if isinstance(a, CreatePod)]


def test_a_resumed_job_creates_its_members_again_and_that_is_not_a_relaunch() -> None:
    play = running(2, max_relaunches=0)
    edit(play, suspended=True)
    play.until(lambda: not play.members())
    edit(play)
    play.until_running(2)
    assert play.world == ["worker-2", "worker-3"]
    assert play.relaunches_used() == 0


def test_a_job_that_begins_suspended_creates_no_pod_until_it_is_resumed_with_its_spec_of_then() -> None:
    play = Play(job(2))
    edit(play, suspended=True)
    play.run(60)
    assert not [a for a in play.actions if isinstance(a, CreatePod)]
    assert (play.phase, play.message) == ("suspended", "The job is suspended.")
    edit(play, suspended=True, min_members=3, max_members=3, replicas=3)
    edit(play)
    play.until_running(3)


def test_a_new_size_is_a_wish_for_that_many_members() -> None:
    play = running(2, 1)
    edit(play, max_members=3, replicas=3)
    play.until(lambda: bool(play.announced("ResizePending")))
    play.save("worker-0")
    play.save("worker-0")
    play.until_running(3)


def test_a_master_that_follows_knows_the_size_that_the_job_has_now() -> None:
    play = running(3, 1)
    after = Play(
        replace(play.spec, replicas=2), term=2, saved=play.saved, actors=play.actors, now=play.now, master="m2"
    )
    edit(after)
    assert after.wanted() == 2


def test_a_job_that_another_master_ran_and_that_is_suspended_stops() -> None:
    play = running(2)
    after = Play(play.spec, term=2, saved=play.saved, actors=play.actors, now=play.now, master="m2")
    edit(after, suspended=True)
    after.until(lambda: after.phase == "suspended" and not after.members())


def test_the_pods_of_an_adopted_job_are_made_by_its_owner() -> None:
    play = Play(job(2, is_adopted=True))
    play.run(30)
    assert not [a for a in play.actions if isinstance(a, CreatePod)]
    assert not play.ended()


def test_the_sidecar_of_a_failed_pod_is_ordered_to_finish() -> None:
    """The trainer's container has ended for good, and the sidecar's container would keep the pod running."""
    play = running(2)
    actor = play["worker-1"]
    play.tell(PodSeen(actor.id, actor.uid, Role("worker"), actor.rank_index, "failed", "Error", exit_code=129))
    assert play.sent(Finish, "worker-1")


def test_members_of_another_owner_have_names_of_any_kind() -> None:
    play = Play(job(2, is_adopted=True))
    play.run(1)
    pods = [PodSeen(MemberId(name), PodUid(name), Role("worker"), None, "running") for name in ("a-x7k2p", "b", "c-3")]
    play.tell(PodsListed(tuple(pods)))
    play.run(5)
    assert set(play.members()) == {"a-x7k2p", "b", "c-3"}


def test_the_next_pod_of_a_name_is_a_member_if_its_owner_reuses_names() -> None:
    play = Play(job(2, is_adopted=True))
    play.run(1)
    for number in range(2):
        play.tell(PodSeen(MemberId(f"db-{number}"), PodUid(f"u{number}"), Role("worker"), RankIndex(number), "running"))
    play.tell(PodGone(MemberId("db-0"), PodUid("u0"), "deleted"))
    play.tell(PodSeen(MemberId("db-0"), PodUid("u9"), Role("worker"), RankIndex(0), "pending"))
    assert play.member("db-0")["state"] == "starting", "the pending one"
    play.tell(PodSeen(MemberId("db-1"), PodUid("u8"), Role("worker"), RankIndex(1), "running"))
    play.run(1)
    held = {each: (uid, index) for each, (uid, index, _own) in play.handed_over()["members"].items()}
    assert held == {"db-0": ("u9", 0), "db-1": ("u8", 1)}


def requested(play: Play) -> list[CreatePod]:
    return [action for action in play.actions if isinstance(action, CreatePod)]


# -- a changed template -------------------------------------------------------------------------------------------
def held_up(play: Play, member: str) -> None:
    actor = play[member]
    why = "the container main waits: ImagePullBackOff"
    play.tell(PodSeen(actor.id, actor.uid, Role("worker"), actor.rank_index, "pending", why, cannot_start=True))


def test_a_changed_template_is_for_new_pods_and_stops_nobody() -> None:
    play = running(2)
    play.tell(SpecChanged(play.spec, has_new_template=True))
    play.run(20.0)
    assert [a.reason for a in play.announced("TemplateChanged")] == [
        "New pods get the changed template; running pods keep theirs until they are replaced."
    ]
    assert play.generation.number == 1
    assert not play.deleted()


def test_pods_that_could_not_start_are_recreated_with_the_changed_template_at_no_cost() -> None:
    play = Play(job(2, max_relaunches=0))
    play.until(lambda: len(play.actors) == 2)
    for member in ("worker-0", "worker-1"):
        play[member].unheard = True
        held_up(play, member)
    play.run(1.0)
    assert not play.deleted()
    play.tell(SpecChanged(play.spec, has_new_template=True))
    play.until_running(2)
    assert play.deleted() == ["worker-0", "worker-1"]
    assert play.announced("PodRecreated")[0].reason == (
        "worker-0 is recreated with the changed template: it could not start, the container main waits: "
        "ImagePullBackOff."
    )
    assert not play.faults()
    assert {pod.relaunches for pod in requested(play)} == {0}


def test_a_refused_pod_is_requested_at_once_when_the_template_was_changed() -> None:
    play = Play(job(1))
    play.creates_pods = False
    for times in range(1, 5):
        play.until(lambda times=times: len(requested(play)) == times, 100.0)
        play.tell(CreateRejected(requested(play)[-1], "Pod is invalid: spec.hostPID"))
    play.creates_pods = True
    play.tell(SpecChanged(play.spec, has_new_template=True))
    play.until_running(1, 5.0)


def test_pods_of_another_controller_are_not_recreated() -> None:
    play = Play(replace(job(1), is_adopted=True))
    play.run(0.1)
    play.appears("train-0", 0)
    play["train-0"].unheard = True
    held_up(play, "train-0")
    play.tell(SpecChanged(play.spec, has_new_template=True))
    play.run(5.0)
    assert not play.deleted()


def test_a_spare_that_could_not_start_is_recreated_with_the_changed_template_too() -> None:
    play = Play(job(1, spares=1))
    play.until(lambda: len(play.actors) == 2)
    play["worker-1"].unheard = True
    held_up(play, "worker-1")
    play.tell(SpecChanged(play.spec, has_new_template=True))
    play.run(10.0)
    assert play.deleted() == ["worker-1"]
    assert [(pod.member, pod.rank_index) for pod in requested(play)[2:]] == [("worker-2", None)]


def test_a_job_that_is_resumed_before_its_generation_has_stopped_continues_as_soon_as_it_has() -> None:
    play = running(2)
    edit(play, suspended=True)
    before = play.phase
    edit(play)
    assert play.announced("JobResumed")
    assert play.phase == before
    play.until_next(2)


def test_an_ignored_field_is_reported_once_as_long_as_it_is_set() -> None:
    play = running(1)
    for remarks in (("a: not followed.",), ("a: not followed.", "b: not followed."), (), ("a: not followed.",)):
        edit(play, remarks=remarks)
    assert [event.reason[0] for event in play.announced("FieldIgnored")] == ["a", "b", "a"]


def test_an_edit_of_a_job_that_is_over_changes_nothing() -> None:
    play = running(1)
    play["worker-0"].stubborn = True
    play.tell(StopAsked("enough"))
    assert play.is_over
    assert not play.is_ended
    before = play.status()
    assert play.tell(SpecChanged(replace(play.spec, replicas=9), suspended=True, has_new_template=True)) == []
    assert play.status() == before
