"""A scrape of the master, parsed by Prometheus' own parser."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from outrider.master.core.k8s.values.requests import Request
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.job import State
from outrider.master.service import metrics
from outrider.wire.ids import JobName
from tests.unit.master.core.play import Play, job, running


def read(*jobs: State, now: float = 0.0, **replica: object) -> dict[tuple[str, frozenset[str]], float]:
    """The value of each sample, by its name and the values of its labels."""
    text = metrics.text(jobs, now, **replica).decode()  # type: ignore[arg-type]
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


def test_what_is_unknown_is_left_out() -> None:
    assert not any(name == "outrider_goodput_ratio" for name, _ in read(State()))
    assert not any(name in ("outrider_leader", "outrider_api_requests_total") for name, _ in read(State()))


def test_a_replica_counts_what_it_asks_of_the_api_server() -> None:
    found = read(requests={(Request("create", "", "pods"), 201): 3}, leads=True)
    assert value(found, "outrider_api_requests_total", "create", "", "pods", "201") == 3
    assert value(found, "outrider_leader") == 1
    assert any(name == "process_resident_memory_bytes" for name, _ in found)
