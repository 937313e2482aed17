"""The reasons about connections and silence, word for word: each is a log line."""

from __future__ import annotations

import pytest

from outrider.master.core.actions import CloseSession, ProbeMember, Send
from outrider.master.core.events import PodSeen, SidecarDisconnected, SidecarSaid, Stalled, StopAsked
from outrider.master.core.membership.connections import TICKET_EVERY
from outrider.wire.ids import Generation, JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Stop
from outrider.wire.messages.links import Probe
from outrider.wire.messages.membership import PROTOCOL_VERSION, Hello, Refused, Welcome
from tests.unit.master.core.play import Actor, Play, job, running

WORKER = Role("worker")


def refused(play: Play, session: str, member: str, uid: str = "", job_name: str = "digits",
            version: int = PROTOCOL_VERSION) -> Refused | None:  # fmt: skip
    """Sends a Hello that differs from the member's own in these fields."""
    own = play.actors.get(member)
    hello = Hello(JobName(job_name), MemberId(member), PodUid(uid or (own.uid if own else "u")), WORKER, RankIndex(1),
                  "token", version=version)  # fmt: skip
    actions = play.tell(SidecarSaid(session, hello))
    answers = [a for a in actions if isinstance(a, Send) and isinstance(a.message, Refused)]
    if not answers:
        return None
    message = answers[0].message
    assert isinstance(message, Refused)
    assert answers[0].reason == message.reason
    assert [a for a in actions if isinstance(a, CloseSession)] == [
        CloseSession(session, message.reason, play.generation)
    ]
    return message


# -- Hello --------------------------------------------------------------------------------------------------------
def test_a_hello_of_another_job_is_refused_for_good_and_reported() -> None:
    play = running(2)
    answer = refused(play, "s", "worker-1", job_name="letters")
    assert answer is not None
    assert answer.reason == "worker-1 belongs to job 'letters', but this is the master of job 'digits'."
    assert answer.retry_after == -1.0
    assert [(a.reason, a.member) for a in play.announced("SidecarRejected")] == [(answer.reason, "worker-1")]


def test_a_hello_with_another_uid_is_refused_for_good_and_each_uid_is_reported_once() -> None:
    play = running(2)
    uid = play["worker-1"].uid
    for session, other in (("a", "x"), ("b", "x"), ("c", "y")):
        answer = refused(play, session, "worker-1", uid=other)
        assert answer is not None
        assert answer.retry_after == -1.0
        assert answer.reason == (
            f"worker-1 belongs to the pod with uid {uid}, but this connection comes from a pod with uid {other}; "
            "only one of them can be worker-1."
        )
    assert len(play.announced("SidecarRejected")) == 2
    assert {a.severity for a in play.announced("SidecarRejected")} == {"warning"}


def test_a_pod_that_the_platform_has_not_listed_tries_again_and_is_not_reported() -> None:
    play = Play(job(2))
    play.creates_pods = False
    play.run(0.1)
    answer = refused(play, "s", "worker-0")
    assert answer is not None
    assert answer.reason == "The platform has not listed a pod worker-0 of job 'digits' yet; the sidecar tries again."
    assert answer.retry_after == 0.2
    assert not play.announced("SidecarRejected")


def test_the_refusal_of_a_newer_version_says_what_to_do() -> None:
    play = running(2)
    answer = refused(play, "s", "worker-1", version=PROTOCOL_VERSION + 1)
    assert answer is not None
    assert answer.retry_after == 5.0
    assert answer.reason.endswith(
        f", but this master supports versions up to {PROTOCOL_VERSION}. The member continues and tries again; "
        "run the same version of Outrider on both."
    )
    assert len(play.announced("SidecarRejected")) == 1


@pytest.mark.parametrize("fails", [True, False])
def test_a_past_pod_learns_why_it_is_refused_and_the_refusal_is_not_reported(fails: bool) -> None:
    play = running(3, 2)
    if fails:
        play.fail("worker-2")
    else:
        play.lose("worker-2")
    answer = refused(play, "late", "worker-2")
    assert answer is not None
    assert answer.retry_after == -1.0
    why = "its pod failed" if fails else "its pod is gone"
    assert answer.reason == f"worker-2 is no longer a member of job 'digits': {why}."
    assert not play.announced("SidecarRejected")


# -- connections --------------------------------------------------------------------------------------------------
def test_an_older_connection_is_closed_for_the_newer_one() -> None:
    play = running(2)
    old = play["worker-1"].session
    play.connect(play["worker-1"])
    closed = [(a.session, a.reason) for a in play.actions if isinstance(a, CloseSession)]
    assert closed == [(old, "worker-1 has a newer connection.")]
    assert [s.reason for s in play.sent(Welcome)] == ["worker-1 is connected."]


def test_a_welcome_has_the_jobs_policy() -> None:
    play = Play(job(1, silent_after=7.0, stop_grace=0.3, handler_grace=4.0, save_grace=50.0))
    play.until_running(1)
    message = play.sent(Welcome)[0].message
    assert isinstance(message, Welcome)
    assert (message.term, message.report_every, message.silent_after) == (1, 1.0, 7.0)
    assert (message.stop_grace, message.handler_grace, message.save_grace) == (0.3, 4.0, 50.0)
    assert not message.hands_off


def test_only_a_connected_member_receives_a_new_ticket() -> None:
    play = running(2)
    play.run(TICKET_EVERY)
    (renewed,) = play.sent(Welcome, "worker-1")
    assert renewed.reason == "worker-1 receives a new ticket."
    play.tell(SidecarDisconnected(play["worker-1"].session))
    play.run(TICKET_EVERY)
    assert len(play.sent(Welcome, "worker-1")) == 1


def test_workers_that_a_restarted_sidecar_does_not_find_are_reported() -> None:
    play = running(2)
    play["worker-1"].running = Generation(0, 0)
    play.reconnect("worker-1", highest=Generation(0, 0))
    play.until_next(2, 10)
    (gone,) = play.announced("WorkersGone")
    assert gone.reason == "worker-1's sidecar was restarted and finds no worker processes of generation 1.1."


def test_workers_that_a_sidecar_reports_as_gone_are_reported() -> None:
    play = running(2)
    play["worker-1"].running = Generation(0, 0)
    play.reconnect("worker-1")
    play.until_next(2, 10)
    (gone,) = play.announced("WorkersGone")
    assert gone.reason == "worker-1 reports that none of its worker processes of generation 1.1 is left."


def test_a_leftover_of_an_earlier_job_is_stopped_by_its_generation() -> None:
    play = Play(job(1))
    play.creates_pods = False
    play.run(0.1)
    actor = Actor(MemberId("worker-0"), PodUid("u0"), RankIndex(0))
    actor.running = actor.highest = Generation(0, 1)
    play.actors[actor.id] = actor
    play.tell(PodSeen(actor.id, actor.uid, WORKER, actor.rank_index, "running"))
    play.connect(actor)
    assert {s.reason for s in play.sent(Stop)} == {"worker-0 still runs generation 0.1, which is over."}
    play.until_running(1)


@pytest.mark.parametrize("hard", [False, True])
def test_a_stop_has_the_grace_periods_of_the_job_and_a_hard_one_none(hard: bool) -> None:
    play = running(2, stop_grace=0.3, handler_grace=4.0, save_grace=50.0)
    if hard:
        play.tell(StopAsked("Ctrl-C twice", hard=True))
    else:
        play.crash("worker-0")
    message = play.sent(Stop, "worker-1")[0].message
    assert isinstance(message, Stop)
    assert message.generation == Generation(1, 1)
    graces = (message.grace, message.handler_grace, message.save_grace)
    assert graces == ((0.0, 0.0, 0.0) if hard else (0.3, 4.0, 50.0))


# -- silence ------------------------------------------------------------------------------------------------------
def test_a_member_that_peers_reach_is_reported_once_with_those_peers_and_what_it_does() -> None:
    play = running(4)
    play["worker-2"].unheard = True
    play.run(10)
    (reported,) = play.announced("MasterCannotReachMember")
    assert reported.reason == (
        "worker-2 has been silent for 3.0 s, but worker-0, worker-1, worker-3 can reach it: "
        "it is not replaced and continues training."
    )
    assert (reported.member, reported.severity) == ("worker-2", "warning")
    first, later = play.sent(Probe)[0], play.sent(Probe)[-1]
    assert isinstance(first.message, Probe)
    assert (first.message.member, first.message.address, first.message.port) == ("worker-2", "127.0.0.1", 9000)
    assert first.reason == f"worker-2 has been silent for 1.8 s. {first.member} is asked to probe it."
    assert later.reason == f"worker-2 is still silent. {later.member} is asked to probe it."


def test_a_spare_that_peers_reach_is_not_reported_as_training() -> None:
    play = running(3, spares=1)
    play.until(lambda: "worker-3" in play.ready())
    play.run(2)
    play["worker-3"].unheard = True
    play.run(10)
    (reported,) = play.announced("MasterCannotReachMember")
    assert reported.reason.endswith(", but worker-0, worker-1, worker-2 can reach it: it is not replaced.")


def test_a_member_without_peers_is_probed_by_the_master() -> None:
    play = running(1)
    play.creates_pods = False
    play.freeze("worker-0")
    play.until(lambda: any(isinstance(a, ProbeMember) for a in play.actions), 5)
    (probe,) = [a for a in play.actions if isinstance(a, ProbeMember)]
    assert (probe.address, probe.port, probe.generation) == ("127.0.0.1", 9000, Generation(1, 1))
    assert probe.reason == (
        "worker-0 has been silent for 1.8 s. No other member can probe it, so the master probes it itself."
    )


@pytest.mark.parametrize(("is_replaced", "place"), [(False, "with rank index 1"), (True, "as a spare")])
def test_a_returned_member_is_reported_with_its_rank_index(is_replaced: bool, place: str) -> None:
    play = running(4, 3, max_relaunches=10 if is_replaced else 0)
    play.freeze("worker-1")
    play.until(lambda: bool(play.announced("MemberSilent")), 5)
    play.run(5)
    play.thaw("worker-1")
    play.run(1)
    (back,) = play.announced("MemberReturned")
    assert back.reason == f"worker-1 is heard again and returns {place}."
    assert back.member == "worker-1"


def test_a_pause_of_the_master_is_reported_with_its_length() -> None:
    play = running(2)
    play.now += 20.0
    play.tell(Stalled(20.0))
    (reported,) = play.announced("MasterStalled")
    assert reported.reason == (
        "The master was paused for 20 s, so it ignores the silence of members in that time. Check its CPU limit."
    )
    assert reported.severity == "warning"
