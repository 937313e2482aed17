"""Field errors of an ElasticJob."""

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
    assert said.startswith("spec.replicaSpecs.worker.replicas: Invalid value: 3: must be at most 2, this")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (job({"worker": worker(minReplicas=5, maxReplicas=4)}),
         "spec.replicaSpecs.worker.minReplicas: Invalid value: 5: must be less than or equal to maxReplicas (4)"),
        (job({"worker": worker(replicas=2, minReplicas=3)}),
         "spec.replicaSpecs.worker.replicas: Invalid value: 2: must be greater than or equal to minReplicas (3)"),
        (job({"worker": worker(replicas=5, maxReplicas=4)}),
         "spec.replicaSpecs.worker.replicas: Invalid value: 5: must be less than or equal to maxReplicas (4)"),
        (job({"worker": worker(replicas=0)}),
         "spec.replicaSpecs.worker.replicas: Invalid value: 0: must be an integer between 1 and 32768; set"),
        (job({"worker": worker(replicas=2.5)}),
         "spec.replicaSpecs.worker.replicas: Invalid value: 2.5: must be an integer between 1 and 32768"),
        (job({"worker": worker(replicas=True)}),
         "spec.replicaSpecs.worker.replicas: Invalid value: true: must be an integer between 1 and 32768"),
        (job({"worker": worker(replicas=1_000_000)}),
         "spec.replicaSpecs.worker.replicas: Invalid value: 1000000: must be an integer between 1 and 32768"),
        (job({"worker": worker(replicas=32768)}),
         "spec.replicaSpecs.worker.replicas: Invalid value: 32768: must be at most 4096, this installation's limit"),
        (job({"worker": worker(replicas=2, maxReplicas=4097)}),
         "spec.replicaSpecs.worker.maxReplicas: Invalid value: 4097: must be at most 4096, this installation's limit "),
        (job({"worker": worker(replicas=4096)}, spares=1),
         "spec.replicaSpecs: Too many: 4097: must have at most 4096 members, spares included, in this installation"),
        (job({"worker": worker(restartPolicy="Sometimes")}),
         'spec.replicaSpecs.worker.restartPolicy: Unsupported value: "Sometimes": supported values: "Always",'),
        (job({"worker": worker(restartLimit=-1)}),
         "spec.replicaSpecs.worker.restartLimit: Invalid value: -1: must be an integer of at least 0"),
        (job({"worker": worker(), "helper": worker()}),
         'spec.replicaSpecs.helper: Unsupported value: "helper": supported values: "worker", "chief", "ps",'),
        (job({"worker": worker(), "Worker": worker()}),
         'spec.replicaSpecs.Worker: Duplicate value: "Worker": the same role as worker; the case of a role is ignored'),
        (job({"ps": worker()}),
         "spec.replicaSpecs.worker: Required value: every job has workers"),
        (job({}), "spec.replicaSpecs: Required value: must have the pods of each role, for example worker: {replicas,"),
        (job({"worker": 4}),
         "spec.replicaSpecs.worker: Invalid value: 4: must be an object"),
        (job({"worker": {"replicas": 1}}),
         "spec.replicaSpecs.worker.template.spec.containers: Required value: the first container is the trainer"),
        (job({"worker": {"template": template(containers=[])}}),
         "spec.replicaSpecs.worker.template.spec.containers: Required value: the first container is the trainer"),
        (job({"worker": {"template": template(containers=[{"name": "main"}])}}),
         "spec.replicaSpecs.worker.template.spec.containers[0].image: Required value"),
        (job({"worker": {"template": template(restartPolicy="Always")}}),
         'spec.replicaSpecs.worker.template.spec.restartPolicy: Unsupported value: "Always": supported values:'),
        (with_memory(limit="-5Gi"),
         'spec.replicaSpecs.worker.template.spec.containers[0].resources.limits.memory: Invalid value: "-5Gi": must'),
        (with_memory(limit="5 gigs"),
         'spec.replicaSpecs.worker.template.spec.containers[0].resources.limits.memory: Invalid value: "5 gigs": must'),
        (with_memory("2Gi", "1Gi"),
         'spec.replicaSpecs.worker.template.spec.containers[0].resources.requests.memory: Invalid value: "2Gi": must '),
        (job({"worker": worker(maxMemory="much")}),
         'spec.replicaSpecs.worker.maxMemory: Invalid value: "much": must be an amount of memory such as 512Mi or'),
        (job(nprocPerNode=0),
         "spec.nprocPerNode: Invalid value: 0: must be an integer between 1 and 1024"),
        (job(nprocPerNode="4"),
         'spec.nprocPerNode: Invalid value: "4": must be an integer between 1 and 1024'),
        (job(nprocPerNode=1025),
         "spec.nprocPerNode: Invalid value: 1025: must be an integer between 1 and 1024"),
        (job(spares=-1),
         "spec.spares: Invalid value: -1: must be an integer between 0 and 512"),
        (job({"worker": worker(replicas=4, minReplicas=3)}, nodeUnit=2),
         "spec.replicaSpecs.worker.minReplicas: Invalid value: 3: must be a multiple of nodeUnit (2)"),
        (job(recovery={"silentAfter": "soon"}),
         'spec.recovery.silentAfter: Invalid value: "soon": must be a number of seconds or a string such as "10m",'),
        (job(recovery={"atomicSave": "yes"}),
         'spec.recovery.atomicSave: Unsupported value: "yes": supported values: true, false, "required"'),
        (job(recovery={"silentAfter": 0}),
         "spec.recovery.silentAfter: Invalid value: 0: must be greater than 0"),
        (job(recovery={"silentAfter": "1m", "replaceAfter": 20}),
         "spec.recovery.replaceAfter: Invalid value: 20: must be greater than or equal to silentAfter (1m)"),
        (job(recovery={"hang": {"init": -1}}),
         'spec.recovery.hang.init: Invalid value: -1: must be a number of seconds or a string such as "10m", "1h30m" '),
        (job(recovery={"hang": {"step": "0s"}}),
         'spec.recovery.hang.step: Invalid value: "0s": must be greater than 0; set recovery.hang.enabled: false to'),
        (job(recovery={"exitCodes": {"retryable": [1, 2], "permanent": [2]}}),
         "spec.recovery.exitCodes.permanent: Invalid value: 2: must not be in retryable too"),
        (job(recovery={"rules": [{"action": "fail"}]}),
         "spec.recovery.rules[0]: Required value: must have one of exitCodes, logPattern, nodeCondition, taint, not"),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "Xid", "exitCodes": [3]}]}),
         "spec.recovery.rules[0].logPattern: Forbidden: may not be set with exitCodes; write two rules"),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "Xid (["}]}),
         'spec.recovery.rules[0].logPattern: Invalid value: "Xid ([": must be a regular expression: unterminated'),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "(Xid)*"}]}),
         'spec.recovery.rules[0].logPattern: Invalid value: "(Xid)*": must not match an empty line, because it then'),
        (job(recovery={"rules": [{"action": "fail", "logPattern": ["Xid"]}]}),
         'spec.recovery.rules[0].logPattern: Invalid value: ["Xid"]: must be a string of at most 1000 characters'),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "x" * 1001}]}),
         "spec.recovery.rules[0].logPattern: Too long: may not be more than 1000 characters"),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "(" * 500 + "x" + ")" * 499}]}),
         "spec.recovery.rules[0].logPattern: "),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "\u00e9" * 1000}] * 20}),
         "spec.recovery.rules: Too many: 40000: must have at most 32768 bytes in all logPatterns together"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3]}] * 65}),
         "spec.recovery.rules: Too many: 65: must have at most 64 items"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": 3}]}),
         "spec.recovery.rules[0].exitCodes: Invalid value: 3: must be a list with each entry an integer between 0 and"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [300]}]}),
         "spec.recovery.rules[0].exitCodes[0]: Invalid value: 300: must be an integer between 0 and 255"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3], "after": "1h"}]}),
         "spec.recovery.rules[0].after: Forbidden: unknown field; known fields: exitCodes, logPattern, nodeCondition,"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3], "times": 3}]}),
         "spec.recovery.rules[0].within: Required value: times needs the period in which it counts, for example 1h"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3], "within": "1h"}]}),
         "spec.recovery.rules[0].within: Forbidden: has no effect without times greater than 1"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3], "times": 0, "within": "1h"}]}),
         "spec.recovery.rules[0].times: Invalid value: 0: must be an integer between 1 and 1000"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3], "times": 2, "within": "0s"}]}),
         'spec.recovery.rules[0].within: Invalid value: "0s": must be greater than 0: a number of seconds or a string'),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3], "dryRun": "yes"}]}),
         'spec.recovery.rules[0].dryRun: Invalid value: "yes": must be true or false'),
        (job(recovery={"rules": [{"action": "replace", "exitCodes": [3], "nodeCondition": {"type": "GpuLost"}}]}),
         "spec.recovery.rules[0].nodeCondition: Forbidden: may not be set with exitCodes; write two rules"),
        (job(recovery={"rules": [{"action": "replace", "nodeCondition": "GpuLost"}]}),
         'spec.recovery.rules[0].nodeCondition: Invalid value: "GpuLost": must be an object with type, status'),
        (job(recovery={"rules": [{"action": "replace", "nodeCondition": {"status": "True"}}]}),
         "spec.recovery.rules[0].nodeCondition.type: Required value: must be a string of 1 to 316 characters, for"),
        (job(recovery={"rules": [{"action": "replace", "nodeCondition": {"type": "GpuLost", "status": "yes"}}]}),
         'spec.recovery.rules[0].nodeCondition.status: Unsupported value: "yes": supported values: "True", "False", "'),
        (job(recovery={"rules": [{"action": "replace", "taint": ["gpu"]}]}),
         'spec.recovery.rules[0].taint: Invalid value: ["gpu"]: must be a string of at most 316 characters'),
        (job(recovery={"rules": [{"action": "reboot", "exitCodes": [3]}]}),
         'spec.recovery.rules[0].action: Unsupported value: "reboot": supported values: "fail", "restart", "replace",'),
        (scheduled({"cron": "0 8 * * *", "replicas": 8}),
         "spec.scaling.schedule[0].replicas: Invalid value: 8: must be less than or equal to maxReplicas (4)"),
        (scheduled({"cron": "0 8 * *", "replicas": 2}),
         'spec.scaling.schedule[0].cron: Invalid value: "0 8 * *": must be a cron expression such as "0 8 * * 1-5":'),
        (scheduled({"cron": "0 25 * * *", "replicas": 2}),
         'spec.scaling.schedule[0].cron: Invalid value: "0 25 * * *": must be a cron expression such as "0 8 * * 1-5"'),
        (scheduled({"cron": "0 0 30 2 *", "replicas": 2}),
         'spec.scaling.schedule[0].cron: Invalid value: "0 0 30 2 *": must be a cron expression such as "0 8 * * 1-5"'),
        (scheduled({"cron": "0 0 * * *", "replicas": 2}, timeZone="Mars/Base"),
         'spec.scaling.timeZone: Invalid value: "Mars/Base": must be a time zone such as Europe/Berlin; the default'),
        (scheduled({"cron": "0 0 * * *", "replicas": 2}, timeZone="../etc/passwd"),
         'spec.scaling.timeZone: Invalid value: "../etc/passwd": must be a time zone such as Europe/Berlin; the'),
        (scheduled({"cron": "0 8 * * *", "replicas": "2"}),
         'spec.scaling.schedule[0].replicas: Invalid value: "2": must be an integer between 1 and 32768'),
        (job({"worker": worker(minReplicas=2, maxReplicas=4)},
             scaling={"policy": "schedule", "schedule": [{"cron": "0 8 * * *", "replicas": 1}]}),
         "spec.scaling.schedule[0].replicas: Invalid value: 1: must be greater than or equal to minReplicas (2)"),
        (scheduled(*[{"cron": "0 8 * * *", "replicas": 2}] * 65),
         "spec.scaling.schedule: Too many: 65: must have at most 64 items"),
        (scheduled(), 'spec.scaling.schedule: Required value: for example [{cron: "0 8 * * 1-5", replicas: 8}, ...]'),
        (scheduled({"cron": "0 8 * * *", "replicas": 2}, policy="throughput"),
         "spec.scaling.schedule: Forbidden: has no effect without policy: schedule"),
        (job({"worker": worker(maxReplicas=4)}, scaling={"policy": "throughput"}),
         'spec.scaling.policy: Invalid value: "throughput": needs both minReplicas and maxReplicas of worker'),
        (job({"worker": worker(minReplicas=1, maxReplicas=4)}, scaling={"policy": "fastest"}),
         'spec.scaling.policy: Unsupported value: "fastest": supported values: "none", "manual", "throughput",'),
        (job({"worker": worker(minReplicas=1, maxReplicas=1)}, scaling={"policy": "throughput"}),
         'spec.scaling.policy: Invalid value: "throughput": needs minReplicas less than maxReplicas of worker; both'),
        (job(metrics={"logPattern": "loss (?P<loss>["}),
         'spec.metrics.logPattern: Invalid value: "loss (?P<loss>[": must be a regular expression: unterminated'),
        (job(metrics={"logPattern": "loss (?P<lost>x)"}),
         'spec.metrics.logPattern: Unsupported value: "(?P<lost>...)": supported values: "(?P<epoch>...)", "(?P<step>'),
        (job(metrics={"logPattern": "loss"}),
         'spec.metrics.logPattern: Invalid value: "loss": must have a named group: (?P<epoch>...), (?P<step>...), (?P'),
        (job(metrics={"logPattern": "(?P<loss>.*)"}),
         'spec.metrics.logPattern: Invalid value: "(?P<loss>.*)": must not match an empty line, because it then'),
        (job(metrics={"pattern": "x"}),
         "spec.metrics.pattern: Forbidden: unknown field; known fields: logPattern"),
        (job(runPolicy=7),
         "spec.runPolicy: Invalid value: 7: must be an object with activeDeadlineSeconds, ttlSecondsAfterFinished,"),
        (job(runPolicy={"activeDeadlineSeconds": 0}),
         "spec.runPolicy.activeDeadlineSeconds: Invalid value: 0: must be an integer of at least 1"),
        (job(runPolicy={"ttlSecondsAfterFinished": "1h"}),
         'spec.runPolicy.ttlSecondsAfterFinished: Invalid value: "1h": must be an integer of at least 0'),
        (job(runPolicy={"cleanPodPolicy": "Some"}),
         'spec.runPolicy.cleanPodPolicy: Unsupported value: "Some": supported values: "All", "None", "Running"'),
        (job(metrics="loss"),
         'spec.metrics: Invalid value: "loss": must be an object with logPattern'),
        (job(scaling={"minGain": 1.5}),
         "spec.scaling.minGain: Invalid value: 1.5: must be a number between 0 and 1"),
        (job(scaling={"minGain": float("nan")}),
         "spec.scaling.minGain: Invalid value: NaN: must be a number between 0 and 1"),
        (job(scaling={"evaluation": "often"}),
         'spec.scaling.evaluation: Invalid value: "often": must be a number of seconds or a string such as "10m",'),
        (job(name="a" * 52),
         "metadata.name: Too long: may not be more than 50 characters: a pod's name adds '-worker-' and up to 5 digit"),
        (job({"worker": worker(), "ps": worker()}, name="7b"),
         'metadata.name: Invalid value: "7b": must consist of lower-case letters, digits and \'-\', start with a'),
        (job(adopts={"apiVersion": "batch/v1", "kind": "Job", "name": "x"}),
         "spec.replicaSpecs.worker.template: Forbidden: a job with spec.adopts creates no pods itself; remove"),
        (job({"worker": {"replicas": 1}}, adopts={"kind": "Job", "name": "x"}),
         "spec.adopts.apiVersion: Required value: must be a string, for example apps/v1"),
        (job({"worker": {"replicas": 1}}, adopts={"apiVersion": "apps/v1?x=", "kind": "StatefulSet", "name": "x"}),
         'spec.adopts.apiVersion: Invalid value: "apps/v1?x=": must match ^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[1-9][0'),
        (job({"worker": {"replicas": 1}}, adopts={"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "../x"}),
         'spec.adopts.name: Invalid value: "../x": must match ^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$, for example train'),
        (job({"worker": {"replicas": 1}}, adopts={"apiVersion": "apps/v1", "kind": "statefulsets", "name": "x"}),
         'spec.adopts.kind: Invalid value: "statefulsets": must match ^[A-Z][A-Za-z0-9]*$, for example StatefulSet'),
    ],
)  # fmt: skip
def test_field_errors_have_the_path_of_the_field(wrong: Document, said: str) -> None:
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
    assert problems(new, old)[0].startswith(
        "spec.nprocPerNode: Forbidden: may not change while the job runs, because its pods were"
    )
    old["spec"]["suspend"] = True
    assert problems(new, old) == []


def test_the_owner_cannot_be_changed() -> None:
    adopts = {"apiVersion": "batch/v1", "kind": "Job", "name": "x"}
    old = job({"worker": {"replicas": 1}}, adopts=adopts)
    new = job({"worker": {"replicas": 1}}, adopts={**adopts, "name": "y"})
    assert problems(new, old) == ["spec.adopts: Forbidden: field is immutable; a job keeps the owner of its pods"]


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
    assert problems(job(nodeCheck={"enabled": "yes"})) == [
        'spec.nodeCheck.enabled: Invalid value: "yes": must be true or false'
    ]
    assert problems(job(nodeCheck={"excludeStragglers": 1})) == [
        "spec.nodeCheck.excludeStragglers: Invalid value: 1: must be true or false"
    ]


def test_a_wish_about_the_data_that_cannot_be_meant_is_named() -> None:
    assert problems(job(elasticData="yes")) == ['spec.elasticData: Invalid value: "yes": must be true or false']
    assert problems(job(keepGlobalBatch=4)) == ["spec.keepGlobalBatch: Invalid value: 4: must be true or false"]
