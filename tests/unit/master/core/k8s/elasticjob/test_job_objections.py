"""What is wrong with an ElasticJob."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.master.core.k8s.elasticjob.metrics import IMAGENET
from outrider.master.core.k8s.elasticjob.spec import spec_of, with_defaults
from outrider.master.core.k8s.elasticjob.validation import problems
from outrider.master.core.k8s.values.limits import Limits
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.spec import Entry
from tests.unit.master.core.k8s.documents import job, template, with_memory, worker


def scheduled(*entries: Document, **scaling: object) -> Document:
    roles = {"worker": worker(minReplicas=1, maxReplicas=4)}
    return job(roles, scaling={"policy": "schedule", "schedule": list(entries), **scaling})


def test_a_schedule_is_right() -> None:
    assert problems(scheduled({"cron": "0 8 * * MON-FRI", "replicas": 4}, timeZone="Europe/Berlin")) == []


def test_a_schedule_is_of_all_members_and_written_of_workers() -> None:
    roles = {"worker": worker(minReplicas=1, maxReplicas=4), "master": worker()}
    daily = job(roles, scaling={"policy": "schedule", "schedule": [{"cron": "0 8 * * *", "replicas": 3}]})
    assert spec_of(daily).schedule == (Entry("0 8 * * *", 4),)


def test_metrics_without_a_pattern_are_those_of_the_imagenet_example() -> None:
    own = r"loss=(?P<loss>\S+)"
    assert spec_of(job()).metrics_pattern == ""
    assert spec_of(job(metrics={})).metrics_pattern == IMAGENET
    assert spec_of(job(metrics={"logPattern": own})).metrics_pattern == own


@pytest.mark.parametrize(("request_", "limit"), [("1Gi", "2Gi"), ("1Gi", "1024Mi"), ("1Gi", None), (None, "2Gi")])
def test_memory_may_be_asked_for_up_to_its_limit(request_: str | None, limit: str | None) -> None:
    assert problems(with_memory(request_, limit)) == []


def test_a_plain_job_is_right() -> None:
    assert problems(job()) == []


def test_an_installation_may_take_other_sizes() -> None:
    assert problems(job({"worker": worker(replicas=5000)}), limits=Limits(members=5000)) == []
    (said,) = problems(job({"worker": worker(replicas=3)}), limits=Limits(members=2))
    assert said.startswith("spec.replicaSpecs.worker.replicas: 3 is more than the 2 members")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (job({"worker": worker(minReplicas=5, maxReplicas=4)}),
         "spec.replicaSpecs.worker.minReplicas: 5 is more than maxReplicas 4"),
        (job({"worker": worker(replicas=2, minReplicas=3)}),
         "spec.replicaSpecs.worker.replicas: 2 is less than minReplicas 3"),
        (job({"worker": worker(replicas=5, maxReplicas=4)}),
         "spec.replicaSpecs.worker.replicas: 5 is more than maxReplicas 4"),
        (job({"worker": worker(replicas=0)}),
         "spec.replicaSpecs.worker.replicas: 0 must be a whole number from 1 to 32768; spec.suspend: "
         "true lets all members go"),
        (job({"worker": worker(replicas=2.5)}), "spec.replicaSpecs.worker.replicas: 2.5 must be a whole number from 1"),
        (job({"worker": worker(replicas=True)}), "spec.replicaSpecs.worker.replicas: True must be"),
        (job({"worker": worker(replicas=1_000_000)}),
         "spec.replicaSpecs.worker.replicas: 1000000 must be a whole number from 1 to 32768"),
        (job({"worker": worker(replicas=32768)}),
         "spec.replicaSpecs.worker.replicas: 32768 is more than the 4096 members that a job may have here"),
        (job({"worker": worker(replicas=2, maxReplicas=4097)}),
         "spec.replicaSpecs.worker.maxReplicas: 4097 is more than the 4096 members that a job may have here"),
        (job({"worker": worker(replicas=4096)}, spares=1),
         "spec.replicaSpecs: roles and spares together may be 4097 members, and a job may have 4096 here"),
        (job({"worker": worker(restartPolicy="Sometimes")}),
         "spec.replicaSpecs.worker.restartPolicy: Sometimes must be Always, ExitCode, Never or OnFailure"),
        (job({"worker": worker(restartLimit=-1)}),
         "spec.replicaSpecs.worker.restartLimit: -1 must be a whole number from 0"),
        (job({"worker": worker(), "helper": worker()}),
         "spec.replicaSpecs.helper: there is no such role; there are worker, chief, ps, evaluator, master"),
        (job({"worker": worker(), "Worker": worker()}),
         "spec.replicaSpecs.Worker: it is the role worker once more, in other letters"),
        (job({"ps": worker()}), "spec.replicaSpecs.worker: it is missing; every job has workers"),
        (job({}), "spec.replicaSpecs: it is missing"),
        (job({"worker": 4}), "spec.replicaSpecs.worker: 4 must be an object"),
        (job({"worker": {"replicas": 1}}), "spec.replicaSpecs.worker.template.spec.containers: there is none"),
        (job({"worker": {"template": template(containers=[])}}),
         "spec.replicaSpecs.worker.template.spec.containers: there is none"),
        (job({"worker": {"template": template(containers=[{"name": "main"}])}}),
         "spec.replicaSpecs.worker.template.spec.containers[0].image: it is missing"),
        (job({"worker": {"template": template(restartPolicy="Always")}}),
         "spec.replicaSpecs.worker.template.spec.restartPolicy: Always would start a trainer again that has succeeded"),
        (with_memory(limit="-5Gi"),
         "spec.replicaSpecs.worker.template.spec.containers[0].resources.limits.memory: -5Gi must be more than 0"),
        (with_memory(limit="5 gigs"),
         "spec.replicaSpecs.worker.template.spec.containers[0].resources.limits.memory: 5 gigs is no amount of memory"),
        (with_memory("2Gi", "1Gi"),
         "spec.replicaSpecs.worker.template.spec.containers[0].resources.requests.memory: 2Gi is more than the limit"),
        (job({"worker": worker(maxMemory="much")}), "spec.replicaSpecs.worker.maxMemory: much is no amount of memory"),
        (job(nprocPerNode=0), "spec.nprocPerNode: 0 must be a whole number from 1"),
        (job(nprocPerNode="4"), "spec.nprocPerNode: 4 must be a whole number from 1"),
        (job(nprocPerNode=1025), "spec.nprocPerNode: 1025 must be a whole number from 1 to 1024"),
        (job(spares=-1), "spec.spares: -1 must be a whole number from 0"),
        (job({"worker": worker(replicas=4, minReplicas=3)}, nodeUnit=2),
         "spec.replicaSpecs.worker.minReplicas: 3 is no multiple of nodeUnit 2"),
        (job(recovery={"silentAfter": "soon"}), "spec.recovery.silentAfter: soon is no duration; write seconds, or"),
        (job(recovery={"atomicSave": "yes"}), "spec.recovery.atomicSave: yes must be true, false or required"),
        (job(recovery={"silentAfter": 0}), "spec.recovery.silentAfter: 0 would leave out every member at once"),
        (job(recovery={"silentAfter": "1m", "replaceAfter": 20}), "spec.recovery.replaceAfter: it is less than"),
        (job(recovery={"hang": {"init": -1}}), "spec.recovery.hang.init: -1 is no duration"),
        (job(recovery={"hang": {"step": "0s"}}), "spec.recovery.hang.step: 0 would take every job for hung; enabled: "),
        (job(recovery={"exitCodes": {"retryable": [1, 2], "permanent": [2]}}),
         "spec.recovery.exitCodes.permanent: 2 is in retryable as well"),
        (job(recovery={"rules": [{"action": "fail"}]}), "spec.recovery.rules[0]: it does not say when; give one of"),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "Xid", "exitCodes": [3]}]}),
         "spec.recovery.rules[0].logPattern: a rule is about one thing, and this one has exitCodes too"),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "Xid (["}]}),
         "spec.recovery.rules[0].logPattern: Xid ([ is no regular expression: unterminated character set at char"),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "(Xid)*"}]}),
         "spec.recovery.rules[0].logPattern: (Xid)* fits an empty line, and so every line; say what must be in it"),
        (job(recovery={"rules": [{"action": "fail", "logPattern": ["Xid"]}]}),
         "spec.recovery.rules[0].logPattern: ['Xid'] must be a text of at most 1000 characters"),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "x" * 1001}]}),
         "spec.recovery.rules[0].logPattern: it has 1001 characters, and may have 1000"),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "(" * 500 + "x" + ")" * 499}]}),
         "spec.recovery.rules[0].logPattern: "),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "\u00e9" * 1000}] * 20}),
         "spec.recovery.rules: all logPatterns together have 40000 bytes, and may have 32768"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3]}] * 65}), "spec.recovery.rules: there are 65"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": 3}]}),
         "spec.recovery.rules[0].exitCodes: 3 must be a list, and each entry a whole number from 0 to 255"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [300]}]}),
         "spec.recovery.rules[0].exitCodes[0]: 300 must be a whole number from 0 to 255"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3], "after": "1h"}]}),
         "spec.recovery.rules[0].after: there is no such field; there are exitCodes, logPattern, nodeCondition, "),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3], "times": 3}]}),
         "spec.recovery.rules[0].within: it is missing; it says for how long what was seen counts towards times"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3], "within": "1h"}]}),
         "spec.recovery.rules[0].within: it means nothing without times"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3], "times": 0, "within": "1h"}]}),
         "spec.recovery.rules[0].times: 0 must be a whole number from 1 to 1000"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3], "times": 2, "within": "0s"}]}),
         "spec.recovery.rules[0].within: 0s is no duration above 0"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3], "dryRun": "yes"}]}),
         "spec.recovery.rules[0].dryRun: yes must be true or false"),
        (job(recovery={"rules": [{"action": "replace", "exitCodes": [3], "nodeCondition": {"type": "GpuLost"}}]}),
         "spec.recovery.rules[0].nodeCondition: a rule is about one thing, and this one has exitCodes too"),
        (job(recovery={"rules": [{"action": "replace", "nodeCondition": "GpuLost"}]}),
         "spec.recovery.rules[0].nodeCondition: GpuLost must be an object with type, status"),
        (job(recovery={"rules": [{"action": "replace", "nodeCondition": {"status": "True"}}]}),
         "spec.recovery.rules[0].nodeCondition.type: it is missing; it must be a text of 1 to 316 characters, as Gpu"),
        (job(recovery={"rules": [{"action": "replace", "nodeCondition": {"type": "GpuLost", "status": "yes"}}]}),
         'spec.recovery.rules[0].nodeCondition.status: yes must be "True", "False" or Unknown'),
        (job(recovery={"rules": [{"action": "replace", "taint": ["gpu"]}]}),
         "spec.recovery.rules[0].taint: ['gpu'] must be a text of at most 316 characters"),
        (job(recovery={"rules": [{"action": "reboot", "exitCodes": [3]}]}),
         "spec.recovery.rules[0].action: reboot must be fail, restart, replace or replaceNode"),
        (scheduled({"cron": "0 8 * * *", "replicas": 8}),
         "spec.scaling.schedule[0].replicas: 8 is more than maxReplicas 4"),
        (scheduled({"cron": "0 8 * *", "replicas": 2}), "spec.scaling.schedule[0].cron: 0 8 * * is no cron expression"),
        (scheduled({"cron": "0 25 * * *", "replicas": 2}), "spec.scaling.schedule[0].cron: 0 25 * * * is no cron"),
        (scheduled({"cron": "0 0 30 2 *", "replicas": 2}), "spec.scaling.schedule[0].cron: 0 0 30 2 * is no cron"),
        (scheduled({"cron": "0 0 * * *", "replicas": 2}, timeZone="Mars/Base"),
         "spec.scaling.timeZone: Mars/Base is none; write it as Europe/Berlin"),
        (scheduled({"cron": "0 0 * * *", "replicas": 2}, timeZone="../etc/passwd"),
         "spec.scaling.timeZone: ../etc/passwd is none"),
        (scheduled({"cron": "0 8 * * *", "replicas": "2"}),
         "spec.scaling.schedule[0].replicas: 2 must be a whole number from 1"),
        (job({"worker": worker(minReplicas=2, maxReplicas=4)},
             scaling={"policy": "schedule", "schedule": [{"cron": "0 8 * * *", "replicas": 1}]}),
         "spec.scaling.schedule[0].replicas: 1 is less than minReplicas 2"),
        (scheduled(*[{"cron": "0 8 * * *", "replicas": 2}] * 65),
         "spec.scaling.schedule: there are 65 entries, and 64 may be there"),
        (scheduled(), "spec.scaling.schedule: it is missing"),
        (scheduled({"cron": "0 8 * * *", "replicas": 2}, policy="throughput"),
         "spec.scaling.schedule: it means nothing without policy: schedule"),
        (job({"worker": worker(maxReplicas=4)}, scaling={"policy": "throughput"}),
         "spec.scaling.policy: throughput needs both minReplicas and maxReplicas of worker"),
        (job({"worker": worker(minReplicas=1, maxReplicas=4)}, scaling={"policy": "fastest"}),
         "spec.scaling.policy: fastest must be none, manual, throughput, efficiency or schedule"),
        (job({"worker": worker(minReplicas=1, maxReplicas=1)}, scaling={"policy": "throughput"}),
         "spec.scaling.policy: throughput has nothing to find, since minReplicas and maxReplicas of worker are both 1"),
        (job(metrics={"logPattern": "loss (?P<loss>["}),
         "spec.metrics.logPattern: loss (?P<loss>[ is no regular expression: unterminated character set at"),
        (job(metrics={"logPattern": "loss (?P<lost>x)"}),
         "spec.metrics.logPattern: there is no metric lost; it may have (?P<epoch>...)"),
        (job(metrics={"logPattern": "loss"}), "spec.metrics.logPattern: loss has no named group; it may have"),
        (job(metrics={"logPattern": "(?P<loss>.*)"}),
         "spec.metrics.logPattern: (?P<loss>.*) fits an empty line, and so every line"),
        (job(metrics={"pattern": "x"}), "spec.metrics.pattern: there is no such field; there is logPattern"),
        (job(runPolicy=7), "spec.runPolicy: 7 must be an object with activeDeadlineSeconds, ttlSecondsAfterFinished, "),
        (job(runPolicy={"activeDeadlineSeconds": 0}),
         "spec.runPolicy.activeDeadlineSeconds: 0 must be a whole number from 1"),
        (job(runPolicy={"ttlSecondsAfterFinished": "1h"}),
         "spec.runPolicy.ttlSecondsAfterFinished: 1h must be a whole number from 0"),
        (job(runPolicy={"cleanPodPolicy": "Some"}),
         "spec.runPolicy.cleanPodPolicy: Some must be All, None or Running"),
        (job(metrics="loss"), "spec.metrics: loss must be an object with logPattern"),
        (job(scaling={"minGain": 1.5}), "spec.scaling.minGain: 1.5 must be a number from 0"),
        (job(scaling={"minGain": float("nan")}), "spec.scaling.minGain: nan must be a number from 0"),
        (job(scaling={"evaluation": "often"}), "spec.scaling.evaluation: often is no duration"),
        (job(name="a" * 52), "metadata.name: with '-worker-' and an id of up to 5 digits it has 65 characters"),
        (job({"worker": worker(), "ps": worker()}, name="7b"), "metadata.name: 7b begins the names of Services"),
        (job(adopts={"apiVersion": "batch/v1", "kind": "Job", "name": "x"}),
         "spec.replicaSpecs.worker.template: a job that adopts the pods of another owner makes none itself"),
        (job({"worker": {"replicas": 1}}, adopts={"kind": "Job", "name": "x"}),
         "spec.adopts.apiVersion: it is missing; it must be a text, as apps/v1"),
        (job({"worker": {"replicas": 1}}, adopts={"apiVersion": "apps/v1?x=", "kind": "StatefulSet", "name": "x"}),
         "spec.adopts.apiVersion: apps/v1?x= must be a text, as apps/v1"),
        (job({"worker": {"replicas": 1}}, adopts={"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "../x"}),
         "spec.adopts.name: ../x must be a text, as train"),
        (job({"worker": {"replicas": 1}}, adopts={"apiVersion": "apps/v1", "kind": "statefulsets", "name": "x"}),
         "spec.adopts.kind: statefulsets must be a text, as StatefulSet"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_the_path_of_the_field(wrong: Document, said: str) -> None:
    sentences = problems(wrong)
    assert any(sentence.startswith(said) for sentence in sentences), sentences
    assert len(sentences) == 1


def test_the_longest_name_that_still_fits_is_right() -> None:
    assert problems(job(name="a" * 50)) == []


def test_a_job_may_have_every_role_in_any_letters() -> None:
    assert problems(job({role: worker() for role in ("Worker", "CHIEF", "Ps", "evaluator")})) == []
    assert problems(job({role: worker() for role in ("Worker", "Master")})) == []


def test_what_its_pods_were_made_with_cannot_be_changed_while_they_run() -> None:
    old, new = job(nprocPerNode=2), job(nprocPerNode=4)
    assert problems(new, old)[0].startswith("spec.nprocPerNode: it cannot be changed while the job runs")
    old["spec"]["suspend"] = True
    assert problems(new, old) == []


def test_the_owner_cannot_be_changed() -> None:
    adopts = {"apiVersion": "batch/v1", "kind": "Job", "name": "x"}
    old = job({"worker": {"replicas": 1}}, adopts=adopts)
    new = job({"worker": {"replicas": 1}}, adopts={**adopts, "name": "y"})
    assert problems(new, old) == ["spec.adopts: it cannot be changed; a job keeps the owner of its pods"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("replicaSpecs", "nprocPerNode", "nodeUnit", "spares", "recovery", "scaling", "adopts", "suspend", "hang",
          "exitCodes", "rules", "schedule", "worker", "PS", "template", "spec", "containers", "resources", "limits",
          "memory", "replicas", "minReplicas", "maxReplicas", "retryable", "permanent", "logPattern",
          "times", "within", "dryRun", "elasticData", "keepGlobalBatch", "saveSignal", "metrics", "elasticPolicy",
          "enableElastic", "pytorchReplicaSpecs", "master")  # fmt: skip
shapes = st.recursive(
    json_values,
    lambda inner: st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5) | st.lists(inner, max_size=2),
    max_leaves=12,
)


@given(shapes)
def test_no_shape_of_a_spec_breaks_the_check(spec: object) -> None:
    broken = {"metadata": {"name": "x"}, "spec": spec}
    assert all(isinstance(sentence, str) for sentence in problems(broken, job()))
    if not isinstance(spec, dict):
        return
    with_defaults(broken, job())


def test_a_node_check_that_cannot_be_meant_is_named() -> None:
    assert problems(job(nodeCheck={"enabled": "yes"})) == ["spec.nodeCheck.enabled: yes must be true or false"]
    assert problems(job(nodeCheck={"excludeStragglers": 1})) == [
        "spec.nodeCheck.excludeStragglers: 1 must be true or false"
    ]


def test_a_wish_about_the_data_that_cannot_be_meant_is_named() -> None:
    assert problems(job(elasticData="yes")) == ["spec.elasticData: yes must be true or false"]
    assert problems(job(keepGlobalBatch=4)) == ["spec.keepGlobalBatch: 4 must be true or false"]
