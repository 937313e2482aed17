"""What the status of an ElasticJob shows of a job that finds its own size."""

from __future__ import annotations

from outrider.master.core.k8s.elasticjob import scaling as elasticjob_scaling
from tests.unit.master.core.scaling.test_autoscaling import scaled, scaling_status, until


def test_the_status_has_the_fields_and_conditions_that_kubedl_has() -> None:
    play = scaled(1, 4, 1)
    until(play, 2)
    shown = elasticjob_scaling.status(scaling_status(play))
    assert shown is not None
    worker = shown["worker"]
    assert (worker["elasticCondition"], worker["continue"]) == ("Continue", True)
    assert (worker["currentReplicas"], worker["lastReplicas"]) == (2, 1)
    assert worker["measured"][0]["replicas"] == 1
    assert worker["measured"][0]["samplesPerSecond"] > 0
    assert [each["replicas"] for each in worker["decisions"]] == [2]
    assert worker["decisions"][0]["message"].endswith("2 members are tried.")
    assert worker["startTime"].endswith("Z")
    assert "nextEvaluation" not in worker, "it has not settled yet"


def test_a_job_without_a_policy_shows_nothing() -> None:
    assert elasticjob_scaling.status({}) is None


def test_what_the_status_shows_can_be_read_back() -> None:
    play = scaled(1, 4, 1)
    until(play, 4)
    found = scaling_status(play)
    assert elasticjob_scaling.reported(elasticjob_scaling.status(found) or {}) == found
    assert elasticjob_scaling.reported({}) is None
