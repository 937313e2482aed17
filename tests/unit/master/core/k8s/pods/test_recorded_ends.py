"""What becomes of a pod that ends, is ended or has to go, played from what clusters showed (docs/adr/0026)."""

from __future__ import annotations

import pytest

from tests.unit.master.core.k8s.pods.recordings import ORDINARY, Recording

NATIVE = "v1.36"
DEPARTURES = ("MemberDraining", "MemberGone", "MemberRemoved")


def play(name: str, *deleted: str, version: str = NATIVE) -> Recording:
    return Recording(version, name, deleted).play()


def test_a_trainer_that_is_killed_fails_within_restart_limit_and_its_pod_stays() -> None:
    job = play("trainer-sigkill")
    assert job.said("MemberFailed")[0].startswith(
        "The pod of worker-1 failed with exit code 137: the trainer's container ended."
    )
    assert job.said("ReplacementLimitReached") == [
        "Rank index 1 stays vacant: its pods have failed as often as restartLimit (0) allows."
    ]
    assert (job.made, job.removed(), job.said(*DEPARTURES)) == (["worker-0", "worker-1"], [], [])


@pytest.mark.parametrize("version", [NATIVE, ORDINARY])
def test_an_init_container_that_fails_ends_the_job_after_restart_limit(version: str) -> None:
    job = play("init-container-fails", version=version)
    why = "failed with exit code 3: the init container download ended."
    assert job.said("MemberFailed") == [f"The pod of worker-{n} {why}" for n in range(3)]
    assert "as often as restartLimit (2) allows" in job.said("ReplacementLimitReached")[0]
    assert why in job.said("JobFailed")[0]
    assert (job.removed(), job.said(*DEPARTURES)) == ([], [])


def test_a_container_that_is_out_of_memory_as_a_whole_gets_more_each_time() -> None:
    """Template and ranks die at once, as the kernel has it where a kubelet sets memory.oom.group."""
    job = play("trainer-oomkilled-with-its-template")
    assert [job.made_with(f"worker-{n}").memory_limit for n in (1, 2, 3)] == [0, 400 << 20, 800 << 20]
    assert [text.split(":", 1)[0] for text in job.said("MemberFailed")] == [
        f"The pod of worker-{n} failed with exit code 137" for n in (1, 2, 3)
    ]
    assert all("(OOMKilled); its replacement gets" in text for text in job.said("MemberFailed"))
    ended = next(line["at"] for line in job.members["oomg-worker-1"].lines if line.get("exit") == 137)
    assert job.made_at["worker-2"] - ended < 1.0, "the status that says so came 0.73 s after the end"
    assert job.restarts_used() == 0
    assert job.said(*DEPARTURES) == []


@pytest.mark.parametrize(
    ("version", "name", "member", "why"),
    [
        (NATIVE, "pod-deleted-grace-30", "deleted-worker-1", "it was deleted with a grace period of 30 s"),
        (NATIVE, "pod-evicted", "evicted-worker-1", "EvictionByEvictionAPI"),
        (NATIVE, "node-drained", "drained-worker-1", "EvictionByEvictionAPI"),
        (ORDINARY, "pod-deleted-grace-30", "deleted-worker-1", "SIGTERM"),
        (ORDINARY, "pod-evicted", "evicted-worker-1", "it was deleted with a grace period of 30 s"),
    ],
)
def test_a_pod_that_has_to_go_is_replaced_while_it_trains_and_that_costs_nothing(
    version: str, name: str, member: str, why: str
) -> None:
    job = play(name, member, version=version)
    assert len(job.said("MemberDraining")) == 1
    assert why in job.said("MemberDraining")[0]
    assert job.said("MemberFailed", "MemberLost", "MemberLeftEarly", "ReplacementLimitReached") == []
    assert len(job.said("GenerationRunning")) == 2
    assert job.members[member].code == 0


def test_members_that_a_drain_takes_all_at_once_are_all_replaced() -> None:
    job = play("node-drained", "drained-worker-0", "drained-worker-1", version=ORDINARY)
    assert len(job.said("MemberDraining")) == 2
    assert job.made == ["worker-0", "worker-1", "worker-2", "worker-3"]
    assert job.said("MemberFailed", "MemberLost", "ReplacementLimitReached") == []


@pytest.mark.parametrize(
    ("version", "name"), [(NATIVE, "job-succeeds"), (NATIVE, "job-succeeds-under-load"), (ORDINARY, "job-succeeds")]
)
def test_a_job_that_is_done_has_succeeded_and_its_sidecars_too(version: str, name: str) -> None:
    job = play(name, version=version)
    assert job.kinds()[-1] == "JobSucceeded"
    assert {member.code for member in job.members.values()} == {0}
    assert job.said(*DEPARTURES, "MemberFailed") == []


def test_a_trainer_that_its_kubelet_restarts_continues_in_its_pod() -> None:
    job = play("trainer-sigkill-onfailure")
    assert job.said("PodRestarted")[0].startswith(
        "The platform has restarted a container of worker-1: RestartedTrainer"
    )
    assert (job.made, len(job.said("GenerationRunning")), job.said(*DEPARTURES, "MemberFailed")) == (
        ["worker-0", "worker-1"],
        2,
        [],
    )


def test_exit_codes_that_a_rule_replaces_for_are_counted() -> None:
    job = play("trainer-exit-1-replaced")
    assert len(job.said("MemberFailed")) == 2
    assert job.said("ReplacementLimitReached") == [
        "Rank index 1 stays vacant: its pods have failed as often as restartLimit (1) allows."
    ]
    assert job.said(*DEPARTURES) == []


def test_a_job_whose_owner_is_suspended_is_suspended_and_waits_for_no_member() -> None:
    job = Recording(NATIVE, "job-suspended-resumed")
    job.play(until=16.0)
    assert (job.status()["phase"], job.status()["message"]) == ("suspended", "The owner of the pods is suspended.")
    assert job.said("JobSuspended") == [
        "The owner of the pods is suspended. Its members stop with all grace periods and are deleted."
    ]
    over = [job.members[name].over_at for name in ("susp-0-c2vpk", "susp-1-6zcx6")]
    assert all(13.4 < at < 15.0 for at in over), "it was suspended at 13.4; 15 s were their grace"
    job.play()
    assert job.said("JobResumed") == ["The owner of the pods is resumed and creates them again."]
    assert (len(job.said("GenerationRunning")), job.status()["phase"]) == (2, "running")
    assert job.said("MemberFailed", "MemberLost", "MemberLeftEarly", "ReplacementLimitReached") == []


def test_what_an_ordinary_sidecar_would_make_of_these_signals_is_a_departure() -> None:
    """Nothing that a sidecar sees tells the two apart, so that it must know which it is."""
    job = Recording(NATIVE, "trainer-sigkill", is_native=False).play()
    assert "worker-1 has to leave (SIGTERM)" in job.said("MemberDraining")[0]
