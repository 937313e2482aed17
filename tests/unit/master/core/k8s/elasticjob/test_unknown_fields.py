"""A field that the API server does not know is told by its path in the ElasticJob, not in the pod that was sent."""

from __future__ import annotations

from copy import deepcopy

import pytest

from outrider.master.core.actions import CreatePod
from outrider.master.core.k8s.elasticjob.status import status_of
from outrider.master.core.k8s.injection import webhook as injection_webhook
from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.owners import owner as owners_owner
from outrider.master.core.k8s.pods import unknown_fields
from outrider.master.core.k8s.pods.build import pod_of
from outrider.master.core.k8s.values.names import Document
from outrider.wire.ids import NO_GENERATION, MemberId, RankIndex, Role
from tests.unit.master.core.k8s.documents import job

WORKER, NOW = Role("worker"), "2026-01-01T00:02:00Z"
SPEC = "spec.replicaSpecs.worker.template.spec"


def mistaken() -> Document:
    """A field is misspelt at each depth."""
    env = [{"name": "A", "value": "1"}, {"name": "B", "valu": "2"}]
    mounts = [{"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/b", "subPat": "b"}]
    main = {"name": "main", "image": "train:1", "comand": ["sleep"], "env": env, "volumeMounts": mounts}
    download = {"name": "download", "image": "copy:1", "arg": ["all"]}
    pod = {
        "containers": [{"name": "logs", "image": "logs:1", "command": ["tail"]}, main],
        "initContainers": [download],
        "nodeSelectr": {"gpu": "yes"},
        "volumes": [{"name": "data", "emptyDir": {}, "hostPaht": {}}],
    }
    template = {"metadata": {"labels": {"a": "b"}, "anotations": {"c": "d"}}, "spec": pod, "stauts": {}}
    return job({"worker": {"replicas": 1, "template": template}})


def sent(asked: Document, native: bool) -> Document:
    action = CreatePod(MemberId("worker-0"), WORKER, RankIndex(0), NO_GENERATION, "")
    pod = pod_of(asked, action)
    pod["metadata"]["annotations"]["outrider.dev/container"] = "main"
    place = owners_owner.place_of(pod, "research", {})
    assert place is not None
    injected = injection_webhook.inject(pod, place, Policy("outrider:1", "Always", "tcp://m:1", "k" * 40, native))
    assert injected.changed, injected
    return injected.pod


def warnings(pod: Document) -> list[str]:
    """What a Kubernetes 1.25 or later says of the mistakes above, wherever they are by now, and of one in ours."""
    said = ["spec.nodeSelectr"]
    for kind in ("containers", "initContainers"):
        for n, each in enumerate(pod["spec"][kind]):
            said += [f"spec.{kind}[{n}].{field}" for field in ("comand", "arg") if field in each]
            said += [f"spec.{kind}[{n}].env[{m}].valu" for m, e in enumerate(each.get("env") or ()) if "valu" in e]
            mounts = enumerate(each.get("volumeMounts") or ())
            said += [f"spec.{kind}[{n}].volumeMounts[{m}].subPat" for m, mount in mounts if "subPat" in mount]
    said += [f"spec.volumes[{n}].hostPaht" for n, each in enumerate(pod["spec"]["volumes"]) if "hostPaht" in each]
    said.append("spec.initContainers[0].resizePolicy")
    return [f'unknown field "{path}"' for path in said] + ["would violate PodSecurity", "spec.x: deprecated"]


@pytest.mark.parametrize("native", [False, True])
def test_unknown_fields_are_reported_by_the_users_path_and_ours_are_not(native: bool) -> None:
    pod = sent(mistaken(), native)
    said = warnings(pod)
    assert 'unknown field "spec.containers[1].env[1].valu"' not in said, "ours stand before the user's"
    assert unknown_fields.found(mistaken(), WORKER, pod, said) == [
        "spec.replicaSpecs.worker.template.stauts",
        "spec.replicaSpecs.worker.template.metadata.anotations",
        f"{SPEC}.nodeSelectr",
        f"{SPEC}.containers[1].comand",
        f"{SPEC}.containers[1].env[1].valu",
        f"{SPEC}.containers[1].volumeMounts[1].subPat",
        f"{SPEC}.initContainers[0].arg",
        f"{SPEC}.volumes[0].hostPaht",
    ]


def test_unknown_fields_have_the_path_of_a_pytorchjob_if_the_user_wrote_one() -> None:
    asked = mistaken()
    asked["spec"]["pytorchReplicaSpecs"] = {"Worker": asked["spec"].pop("replicaSpecs")["worker"]}
    pod = sent(mistaken(), native=True)
    told = unknown_fields.found(asked, WORKER, pod, ['unknown field "spec.nodeSelectr"'])
    assert told[-1] == "spec.pytorchReplicaSpecs.Worker.template.spec.nodeSelectr"


def test_the_next_master_reads_them_in_the_condition_for_as_long_as_they_stand_in_the_template() -> None:
    asked, paths = mistaken(), [f"{SPEC}.nodeSelectr", f"{SPEC}.containers[1].comand"]
    status = status_of(asked, {}, [], NOW, (), paths)
    valid = next(each for each in status["conditions"] if each["type"] == "Valid")
    assert (valid["status"], valid["reason"]) == ("True", "UnknownTemplateField")
    assert valid["message"].startswith(f"{paths[0]}: unknown field; the API server creates")
    assert unknown_fields.left_by({**asked, "status": status}) == paths
    mended = deepcopy({**asked, "status": status})
    del mended["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["nodeSelectr"]
    assert unknown_fields.left_by(mended) == paths[1:]


def test_what_stands_in_a_list_without_names_is_known_by_all_that_it_says() -> None:
    asked, theirs = mistaken(), {"key": "gpu", "operater": "Exists"}
    asked["spec"]["replicaSpecs"] = {"ps": {"replicas": 1}, **asked["spec"]["replicaSpecs"]}
    asked["spec"]["replicaSpecs"]["worker"]["template"] = {"spec": {"tolerations": [theirs]}}
    sent_pod = {"spec": {"tolerations": [{"key": "ours", "operater": "Exists"}, theirs]}}
    said = [f'unknown field "spec.tolerations[{n}].operater"' for n in (0, 1)]
    assert unknown_fields.found(asked, WORKER, sent_pod, said) == [f"{SPEC}.tolerations[0].operater"]
    assert unknown_fields.found(asked, Role("evaluator"), sent_pod, said) == [], "the job has no such role any more"


@pytest.mark.parametrize("status", [None, [], {"conditions": [None, {"reason": "UnknownTemplateField"}]}])
def test_a_status_that_says_nothing_of_the_kind_leaves_none(status: object) -> None:
    assert unknown_fields.left_by({**job(), "status": status}) == []
