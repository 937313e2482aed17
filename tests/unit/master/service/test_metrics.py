"""A scrape of the master, parsed by Prometheus' own parser."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from outrider.master.core.account.causes import CAUSES
from outrider.master.core.k8s.values.requests import Request
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.counters import STEP_BOUNDS
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.service import job_metrics, metrics
from outrider.wire.ids import JobName, MemberId, RankIndex, Role
from tests.unit.master.core.play import Play, job, running
from tests.unit.master.core.ps_play import PsPlay, ps_job


def read(*jobs: State, now: float = 0.0, **replica: object) -> dict[tuple[str, frozenset[str]], float]:
    """The value of each sample, by its name and the values of its labels."""
    text = metrics.Scrape(jobs, now, **replica).text().decode()  # type: ignore[arg-type]
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.values())): sample.value for sample in samples}


def value(read: Mapping[tuple[str, frozenset[str]], float], name: str, *labels: str) -> float:
    return read[name, frozenset(labels)]


def test_a_running_job_is_seen_with_its_members_and_its_faults() -> None:
    play = running(4)
    play.crash("worker-2")
    play.run(5.0)
    found = read(play.state, now=play.now)
    assert value(found, "outrider_job_phase", "", "digits", "running") == 1
    assert value(found, "outrider_job_phase", "", "digits", "failed") == 0
    assert value(found, "outrider_members", "", "digits", "running") == 4
    assert value(found, "outrider_members_desired", "", "digits") == 4
    assert value(found, "outrider_generations_total", "", "digits") == 2
    assert value(found, "outrider_restarts_total", "", "digits") == 1
    assert value(found, "outrider_faults_total", "", "digits", "WorkerExited") == 1
    assert 0 < value(found, "outrider_seconds_lost_total", "", "digits") < 5
    assert 0 < value(found, "outrider_goodput_ratio", "", "digits") <= 1
    assert 0 < value(found, "outrider_goodput_by_steps_ratio", "", "digits") <= 1
    assert value(found, "outrider_mtbf_seconds", "", "digits") == pytest.approx(play.now, abs=0.1)
    status = play.status()
    for window in ("1h", "1d"):
        assert value(found, f"outrider_goodput_{window}_ratio", "", "digits") == status[f"goodput_{window}"]
    assert value(found, "outrider_step", "", "digits") == play.highest_step


def test_counts_go_on_under_the_next_master() -> None:
    play = running(4)
    play.crash("worker-2")
    play.run(5.0)
    next_one = Play(job(4), term=2, saved=play.saved, actors=play.actors, now=play.now, master="m2")
    next_one.run(5.0)
    found = read(next_one.state, now=next_one.now)
    assert value(found, "outrider_faults_total", "", "digits", "WorkerExited") == 1
    assert value(found, "outrider_seconds_lost_total", "", "digits") > 0


def test_jobs_of_a_cluster_are_labelled_by_namespace() -> None:
    states = [State(spec=JobSpec(JobName(key), 1, 1, 1)) for key in ("a/train", "b/train")]
    found = read(*states)
    assert value(found, "outrider_world_size", "a", "train") == 0
    assert value(found, "outrider_world_size", "b", "train") == 0


def test_every_kind_of_fault_is_there_from_the_beginning() -> None:
    rows = (Path(__file__).parents[4] / "docs/reference/events.md").read_text().splitlines()
    documented = {row.split("|")[1].strip() for row in rows if re.match(r"\| \w+ \|( w)? f \|", row)}
    assert set(job_metrics.FAULT_KINDS) == documented
    found = read(State())
    assert {value(found, "outrider_faults_total", "", kind) for kind in documented} == {0.0}


def test_members_have_their_pod_and_node_and_whether_they_run() -> None:
    play = running(2)
    play.is_on("worker-1", "n7")
    found = read(play.state, now=play.now)
    assert value(found, "outrider_member_info", "", "digits", "1", "worker-1", "worker", "n7", "fork") == 1
    assert value(found, "outrider_member_running", "", "digits", "1", "worker-1") == 1
    play.crash("worker-0")
    play.until(lambda: play.stage == "stopping")
    assert value(read(play.state, now=play.now), "outrider_member_running", "", "digits", "1", "worker-1") == 0


def test_only_so_many_members_have_series_of_their_own() -> None:
    state = State()
    for number in range(job_metrics.MOST_MEMBERS + 200):
        name = MemberId(f"worker-{number}")
        state.members[name] = Member(name, Role("worker"), RankIndex(number), 0.0)
    found = read(state)
    assert sum(name == "outrider_member_info" for name, _ in found) == job_metrics.MOST_MEMBERS
    assert value(found, "outrider_members", "", "starting") == job_metrics.MOST_MEMBERS + 200


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a{b}", "ü", "\ud800"])
def test_a_hostile_name_is_one_label(name: str) -> None:
    """Of a node, which nobody but the cluster has checked."""
    state = State(spec=JobSpec(JobName("team/train"), 1, 1, 1))
    member = MemberId("worker-0")
    state.members[member] = Member(member, Role("worker"), RankIndex(0), 0.0, node=name, mode="what a member sent")
    state.counters.incidents = {name: {"MemberLost": 1}}
    text = metrics.Scrape([state], 0.0).text().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    (about,) = (sample.labels for sample in samples if sample.name == "outrider_member_info")
    assert about["node"] == name.encode(errors="replace").decode()
    assert about["mode"] == "", "which has few values"
    (incident,) = (sample for sample in samples if sample.name == "outrider_node_incidents_total")
    assert (incident.labels["node"], incident.value) == (about["node"], 1)


def test_durations_are_histograms() -> None:
    play = running(4)
    play.crash("worker-2")
    play.run(5.0)
    found = read(play.state, now=play.now)
    assert value(found, "outrider_fault_lost_seconds_count", "", "digits", "WorkerExited") == 1
    assert value(found, "outrider_fault_lost_seconds_bucket", "", "digits", "WorkerExited", "10.0") == 1
    assert value(found, "outrider_fault_lost_seconds_bucket", "", "digits", "WorkerExited", "+Inf") == 1
    steps = [found["outrider_step_seconds_bucket", frozenset(("", "digits", str(b)))] for b in STEP_BOUNDS]
    assert steps == sorted(steps)
    assert steps[-1] == value(found, "outrider_step_seconds_count", "", "digits")


def test_productive_and_badput_seconds_are_all_that_is_settled_and_never_decrease() -> None:
    play, before = running(4), dict.fromkeys(CAUSES, 0.0)
    play.crash("worker-2")
    for _ in range(20):
        play.run(0.5)
        found = read(play.state, now=play.now)
        now = {cause: value(found, "outrider_badput_seconds_total", "", "digits", cause) for cause in CAUSES[1:]}
        now[CAUSES[0]] = value(found, "outrider_productive_seconds_total", "", "digits")
        assert all(now[cause] >= before[cause] for cause in CAUSES)
        before = now
    assert before["repeated_steps"] > 0
    assert 0.8 * 4 * play.now < sum(before.values()) <= 4 * play.now


def test_the_tasks_of_a_ps_job_are_one_job() -> None:
    play = PsPlay(ps_job())
    play.until_running()
    play.run(5.0)
    found = read(play.state, now=play.now)
    assert value(found, "outrider_job_phase", "", "digits", "running") == 1
    names = Counter(name for name, _ in found)
    assert names["outrider_step_seconds_count"] == names["outrider_step"] == 1
    assert value(found, "outrider_goodput_ratio", "", "digits") == play.status()["goodput"]
    assert value(found, "outrider_events_total", "", "digits", "MemberReady") == len(play.actors)
    assert ("outrider_events_total", frozenset(("", "digits", "JobStarted"))) not in found


def test_what_is_unknown_is_left_out() -> None:
    assert not any(name == "outrider_goodput_ratio" for name, _ in read(State()))
    assert not any(name in ("outrider_leader", "outrider_api_requests_total") for name, _ in read(State()))


def test_a_replica_counts_what_it_asks_of_the_api_server() -> None:
    found = read(requests={(Request("create", "", "pods"), 201): 3}, leads=True)
    assert value(found, "outrider_api_requests_total", "create", "", "pods", "201") == 3
    assert value(found, "outrider_leader") == 1
    assert any(name == "process_resident_memory_bytes" for name, _ in found)
