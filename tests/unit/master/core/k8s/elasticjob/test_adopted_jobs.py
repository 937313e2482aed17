"""The ElasticJob that stands for another controller's job."""

from __future__ import annotations

import pytest

from outrider.master.core.k8s.elasticjob.adopted import adopting
from outrider.master.core.k8s.elasticjob.cross_field import validate
from outrider.master.core.k8s.elasticjob.spec import spec_of
from outrider.master.core.spec import JobSpec
from outrider.wire.ids import JobName

OWNER = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "gpt", "namespace": "research", "uid": "owner-uid"},
}


def test_an_owner_is_stood_for_by_a_job_of_its_size_that_goes_with_it() -> None:
    made = adopting(OWNER, 3, {"metadata": {"name": "gpt-0", "namespace": "research"}})
    assert made["metadata"] == {
        "name": "gpt",
        "namespace": "research",
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "gpt", "uid": "owner-uid"}],
    }
    assert validate(made) == []
    assert spec_of(made) == JobSpec(JobName("research/gpt"), 3, 3, 3, is_adopted=True)


def test_annotations_of_a_pod_hold_for_its_job() -> None:
    notes = {"min": "2", "max": "5", "nproc-per-node": "4", "spares": "1", "max-restarts": "0", "node-check": "true",
             "elastic-data": "true", "keep-global-batch": "1", "save-signal": "usr1"}  # fmt: skip
    pod = {"metadata": {"name": "gpt-0", "labels": {"outrider.dev/job": "named"},
                        "annotations": {f"outrider.dev/{note}": value for note, value in notes.items()}}}  # fmt: skip
    made = adopting(OWNER, 3, pod)
    assert made["metadata"]["name"] == "named"
    assert made["spec"]["nodeCheck"] == {"enabled": True}
    assert validate(made) == []
    assert spec_of(made) == JobSpec(JobName("research/named"), 2, 5, 3, nproc=4, spares=1, max_restarts=0,
                                    node_check=True, elastic_data=True, save_signal="SIGUSR1",
                                    keep_global_batch=True, is_adopted=True, max_restarts_asked=True)  # fmt: skip


@pytest.mark.parametrize("note", ["", "none", "-1", "1.5", "9", "0"])
def test_an_annotation_that_cannot_be_meant_is_left_aside(note: str) -> None:
    pod = {"metadata": {"name": "gpt-0", "annotations": {"outrider.dev/min": note}}}
    made = adopting(OWNER, 3, pod)
    assert validate(made) == []
    assert spec_of(made).min_members == 3
