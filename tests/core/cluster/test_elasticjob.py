"""What is wrong with an ElasticJob, and what one means."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.core.cluster import durations, quantities
from master.core.cluster.elasticjob import adopting, key_of, pod_templates, spec_of, validate, with_defaults
from master.core.cluster.names import Document
from master.core.spec import JobSpec, Rule
from tests.core.cluster.documents import job, template, worker
from wire.ids import JobName


def with_container(**container: Any) -> Document:
    found = {"name": "main", "image": "train:1", **container}
    return job({"worker": {"replicas": 1, "template": {"spec": {"containers": [found]}}}})


def with_memory(request: object = None, limit: object = None) -> Document:
    amounts = {"requests": {"memory": request} if request is not None else {}}
    return with_container(resources=amounts | {"limits": {"memory": limit} if limit is not None else {}})


def test_a_plain_job_is_right() -> None:
    assert validate(job()) == []


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
         "spec.replicaSpecs.worker.replicas: 0 must be a whole number from 1; spec.suspend: true lets all members go"),
        (job({"worker": worker(replicas=2.5)}), "spec.replicaSpecs.worker.replicas: 2.5 must be a whole number from 1"),
        (job({"worker": worker(replicas=True)}), "spec.replicaSpecs.worker.replicas: True must be"),
        (job({"worker": worker(restartLimit=-1)}),
         "spec.replicaSpecs.worker.restartLimit: -1 must be a whole number from 0"),
        (job({"worker": worker(), "helper": worker()}),
         "spec.replicaSpecs.helper: there is no such role; there are worker, chief, ps, evaluator, master"),
        (job({"worker": worker(), "Worker": worker()}),
         "spec.replicaSpecs.Worker: it is the role worker once more, in other letters"),
        (job({"ps": worker()}), "spec.replicaSpecs.worker: it is missing; every job has workers"),
        (job({}), "spec.replicaSpecs: it is missing"),
        (job({"worker": 4}), "spec.replicaSpecs.worker: it must be an object with replicas and template"),
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
        (job(spares=-1), "spec.spares: -1 must be a whole number from 0"),
        (job({"worker": worker(replicas=4, minReplicas=3)}, nodeUnit=2),
         "spec.replicaSpecs.worker.minReplicas: 3 is no multiple of nodeUnit 2"),
        (job(recovery={"silentAfter": "soon"}), "spec.recovery.silentAfter: soon is no duration; write seconds, or"),
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
         "spec.recovery.rules[0].logPattern: ['Xid'] must be a regular expression, a text"),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "x" * 1001}]}),
         "spec.recovery.rules[0].logPattern: it has 1001 characters, and may have 1000"),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "(" * 500 + "x" + ")" * 499}]}),
         "spec.recovery.rules[0].logPattern: "),
        (job(recovery={"rules": [{"action": "fail", "logPattern": "\u00e9" * 1000}] * 20}),
         "spec.recovery.rules: all logPatterns together have 40000 bytes, and may have 32768"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [3]}] * 65}), "spec.recovery.rules: there are 65"),
        (job(recovery={"rules": [{"action": "fail", "exitCodes": [300]}]}),
         "spec.recovery.rules[0].exitCodes: 300 must be a whole number from 0 to 255"),
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
         "spec.recovery.rules[0].nodeCondition: GpuLost must be an object with type, and status"),
        (job(recovery={"rules": [{"action": "replace", "nodeCondition": {"status": "True"}}]}),
         "spec.recovery.rules[0].nodeCondition.type: it is missing"),
        (job(recovery={"rules": [{"action": "replace", "nodeCondition": {"type": "GpuLost", "status": "yes"}}]}),
         'spec.recovery.rules[0].nodeCondition.status: yes is none; there are "True", "False" and "Unknown"'),
        (job(recovery={"rules": [{"action": "replace", "taint": ["gpu"]}]}),
         "spec.recovery.rules[0].taint: ['gpu'] must be the key of a taint"),
        (job(recovery={"rules": [{"action": "reboot", "exitCodes": [3]}]}),
         "spec.recovery.rules[0].action: reboot is none; there are fail, restart, replace, replaceNode"),
        (job({"worker": worker(maxReplicas=4)}, scaling={"schedule": [{"cron": "0 8 * * *", "replicas": 8}]}),
         "spec.scaling.schedule[0].replicas: 8 is more than maxReplicas 4"),
        (job({"worker": worker(minReplicas=1, maxReplicas=4)}, scaling={"policy": "fastest"}),
         "spec.scaling.policy: fastest is none; it may be none, manual or throughput"),
        (job({"worker": worker()}, scaling={"policy": "throughput"}),
         "spec.scaling.policy: throughput has nothing to find, since minReplicas and maxReplicas of worker are both 1"),
        (job(scaling={"minGain": 1.5}), "spec.scaling.minGain: 1.5 must be a number from 0"),
        (job(scaling={"minGain": float("nan")}), "spec.scaling.minGain: nan must be a number from 0"),
        (job(scaling={"evaluation": "often"}), "spec.scaling.evaluation: often is no duration"),
        (job(name="a" * 52), "metadata.name: with '-worker-' and an id of up to 5 digits it has 65 characters"),
        (job({"worker": worker(), "ps": worker()}, name="7b"), "metadata.name: 7b begins the names of Services"),
        (job(adopts={"apiVersion": "batch/v1", "kind": "Job", "name": "x"}),
         "spec.replicaSpecs.worker.template: a job that adopts the pods of another owner makes none itself"),
        (job({"worker": {"replicas": 1}}, adopts={"kind": "Job", "name": "x"}),
         "spec.adopts.apiVersion: it is missing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_the_path_of_the_field(wrong: Document, said: str) -> None:
    sentences = validate(wrong)
    assert any(sentence.startswith(said) for sentence in sentences), sentences
    assert len(sentences) == 1


def test_the_longest_name_that_still_fits_is_right() -> None:
    assert validate(job(name="a" * 50)) == []


def test_a_job_may_have_every_role_in_any_letters() -> None:
    assert validate(job({role: worker() for role in ("Worker", "CHIEF", "Ps", "evaluator", "Master")})) == []


def test_what_its_pods_were_made_with_cannot_be_changed_while_they_run() -> None:
    old, new = job(nprocPerNode=2), job(nprocPerNode=4)
    assert validate(new, old)[0].startswith("spec.nprocPerNode: it cannot be changed while the job runs")
    old["spec"]["suspend"] = True
    assert validate(new, old) == []


def test_the_owner_cannot_be_changed() -> None:
    adopts = {"apiVersion": "batch/v1", "kind": "Job", "name": "x"}
    old = job({"worker": {"replicas": 1}}, adopts=adopts)
    new = job({"worker": {"replicas": 1}}, adopts={**adopts, "name": "y"})
    assert validate(new, old) == ["spec.adopts: it cannot be changed; a job keeps the owner of its pods"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("replicaSpecs", "nprocPerNode", "nodeUnit", "spares", "recovery", "scaling", "adopts", "suspend", "hang",
          "exitCodes", "rules", "schedule", "worker", "PS", "template", "spec", "containers", "resources", "limits",
          "memory", "replicas", "minReplicas", "maxReplicas", "retryable", "permanent", "logPattern",
          "times", "within", "dryRun", "elasticData", "keepGlobalBatch", "saveSignal")  # fmt: skip
shapes = st.recursive(
    json_values,
    lambda inner: st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5) | st.lists(inner, max_size=2),
    max_leaves=12,
)


@given(shapes)
def test_no_shape_of_a_spec_breaks_the_check(spec: object) -> None:
    broken = {"metadata": {"name": "x"}, "spec": spec}
    assert all(isinstance(sentence, str) for sentence in validate(broken, job()))
    if not isinstance(spec, dict):
        return
    with_defaults(broken, job())


# -- defaults -----------------------------------------------------------------------------------------------------
def test_roles_are_stored_in_lower_case_with_their_replicas_and_no_other_size() -> None:
    before = job({"Worker": worker(maxReplicas=6), "PS": worker(minReplicas=2)})
    kept = deepcopy(before)
    roles = with_defaults(before)["spec"]["replicaSpecs"]
    assert before == kept
    assert {role: spec["replicas"] for role, spec in roles.items()} == {"worker": 6, "ps": 2}
    assert "minReplicas" not in roles["worker"]
    assert "maxReplicas" not in roles["ps"]


@pytest.mark.parametrize("order", [("worker", "Worker"), ("Worker", "worker")])
def test_a_role_that_is_applied_again_in_other_letters_is_what_the_user_says_now(order: tuple[str, str]) -> None:
    stored = with_defaults(job({"Worker": worker(replicas=2)}))
    sizes = {"worker": 2, "Worker": 3}
    merged = job({role: worker(replicas=sizes[role]) for role in order})
    assert with_defaults(merged, stored)["spec"]["replicaSpecs"]["worker"]["replicas"] == 3


def test_defaults_are_made_once() -> None:
    once = with_defaults(job({"Worker": worker()}))
    assert with_defaults(once, once) == once


# -- meaning ------------------------------------------------------------------------------------------------------
def test_a_job_with_nothing_but_replicas_has_that_size() -> None:
    assert spec_of(job()) == JobSpec(JobName("research/mnist"), 4, 4, 4, keep_failed_pods=3)


def test_the_most_memory_is_the_users_else_a_multiple_of_the_templates() -> None:
    asked = with_memory("1Gi", "2Gi")
    assert spec_of(asked).max_memory == 32 * 2 * 2**30
    assert spec_of(with_memory("1Gi")).max_memory is None
    asked["spec"]["replicaSpecs"]["worker"]["maxMemory"] = "16Gi"
    assert spec_of(asked).max_memory == 16 * 2**30


def test_the_pods_of_another_owner_are_not_ours_to_delete_or_to_make_larger() -> None:
    asked = with_memory("1Gi", "2Gi")
    asked["spec"] |= {"adopts": {"apiVersion": "batch/v1", "kind": "Job", "name": "x"}, "keepFailedPods": 1}
    assert (spec_of(asked).keep_failed_pods, spec_of(asked).max_memory) == (None, None)


def test_exit_codes_and_rules_reach_the_core() -> None:
    rules: list[Document] = [{"exitCodes": [3, 4], "action": "replace"}, {"exitCodes": [5], "action": "fail"}]
    rules += [{"nodeCondition": {"type": "GpuUnhealthy"}, "action": "replaceNode"}]
    rules += [{"nodeCondition": {"type": "RdmaReady", "status": "False"}, "action": "replace"}]
    rules += [{"taint": "maintenance", "action": "restart"}]
    asked = job(recovery={"exitCodes": {"retryable": [7], "permanent": [2]}, "rules": rules})
    assert validate(asked) == []
    spec = spec_of(asked)
    assert (spec.retryable_codes, spec.permanent_codes) == ((7,), (2,))
    assert spec.rules == (
        Rule((3, 4), "replace"),
        Rule((5,), "fail"),
        Rule((), "replaceNode", ("GpuUnhealthy", "True")),
        Rule((), "replace", ("RdmaReady", "False")),
        Rule((), "restart", taint="maintenance"),
    )
    assert spec_of(job()).retryable_codes == (130, 134, 135, 137, 138, 139, 143)


@pytest.mark.parametrize(
    ("given_sizes", "meant"),
    [
        ({}, (1, 1, 1)),
        ({"replicas": 4}, (4, 4, 4)),
        ({"minReplicas": 2}, (2, 2, 2)),
        ({"maxReplicas": 8}, (8, 8, 8)),
        ({"minReplicas": 2, "maxReplicas": 8}, (2, 8, 8)),
        ({"minReplicas": 2, "maxReplicas": 8, "replicas": 4}, (2, 8, 4)),
    ],
)
def test_sizes_that_are_left_out_follow_from_the_others(
    given_sizes: dict[str, int], meant: tuple[int, int, int]
) -> None:
    asked = job({"worker": worker(**given_sizes)})
    assert validate(asked) == []
    for form in (asked, with_defaults(asked)):
        spec = spec_of(form)
        assert (spec.min_members, spec.max_members, spec.replicas) == meant


def test_everything_that_a_user_may_ask_for_reaches_the_core() -> None:
    asked = job(
        {"Worker": worker(replicas=4, restartLimit=0)},
        nprocPerNode=8,
        nodeUnit=2,
        spares=1,
        maxRestarts=0,
        recovery={
            "silentAfter": 5,
            "replaceAfter": "1m30s",
            "stopGrace": "500ms",
            "handlerGrace": 1,
            "saveGrace": "2m",
            "growPatience": "1h",
            "startPatience": 2.5,
        },
    )
    assert spec_of(asked) == JobSpec(
        JobName("research/mnist"), 4, 4, 4, nproc=8, node_unit=2, spares=1, max_restarts=0, relaunch_limit=0,
        silent_after=5.0, replace_after=90.0, stop_grace=0.5, handler_grace=1.0, save_grace=120.0, grow_patience=3600.0,
        start_patience=2.5, max_restarts_asked=True, keep_failed_pods=3,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hang", "meant"),
    [
        ({}, (True, None, None)),
        ({"enabled": True}, (True, None, None)),
        ({"enabled": False, "step": 5}, (False, 5.0, None)),
        ({"step": "2m", "init": "1h"}, (True, 120.0, 3600.0)),
        ("off", (True, None, None)),
    ],
)
def test_limits_of_a_hang_that_are_left_out_are_the_cores(hang: Any, meant: tuple[bool, float | None, float]) -> None:
    spec = spec_of(job(recovery={"hang": hang}))
    assert (spec.hang_detection, spec.hang_step, spec.hang_init) == meant


def test_rules_reach_the_core_as_they_were_written() -> None:
    asked = job(
        recovery={
            "rules": [
                {
                    "logPattern": "Xid (?P<xid>\\d+)",
                    "action": "replaceNode",
                    "times": 3,
                    "within": "1h",
                    "dryRun": True,
                },
                {"exitCodes": [13, 14], "action": "replace"},
                {"nodeCondition": {"type": "GpuLost"}, "action": "restart"},
            ]
        }
    )
    assert validate(asked) == []
    assert spec_of(asked).rules == (
        Rule((), "replaceNode", log_pattern="Xid (?P<xid>\\d+)", times=3, within=3600.0, dry_run=True),
        Rule((13, 14), "replace"),
        Rule((), "restart", ("GpuLost", "True")),
    )


def test_the_key_of_a_job_names_its_namespace() -> None:
    assert key_of(job()) == "research/mnist"
    assert key_of({"metadata": {"name": "x"}}) == "default/x"


# -- the node check -----------------------------------------------------------------------------------------------
def checking(**fields: Any) -> Document:
    return {**job(), "spec": {**job()["spec"], "nodeCheck": fields}}


def test_the_node_check_is_off_where_nobody_wants_it() -> None:
    assert not spec_of(job()).node_check
    assert not spec_of(checking(enabled=False, excludeStragglers=False)).node_check


def test_the_node_check_reaches_the_core() -> None:
    made = checking(enabled=True, excludeStragglers=True)
    assert validate(made) == []
    assert (spec_of(made).node_check, spec_of(made).exclude_stragglers) == (True, True)
    assert not spec_of(checking(enabled=True)).exclude_stragglers


def test_a_node_check_that_cannot_be_meant_is_named() -> None:
    assert validate(checking(enabled="yes")) == ["spec.nodeCheck.enabled: yes must be true or false"]
    assert validate(checking(excludeStragglers=1)) == ["spec.nodeCheck.excludeStragglers: 1 must be true or false"]


def test_stragglers_can_be_replaced_while_training_without_a_check_before_it() -> None:
    made = checking(excludeStragglers=True)
    assert validate(made) == []
    assert (spec_of(made).node_check, spec_of(made).exclude_stragglers) == (False, True)


# -- the data -----------------------------------------------------------------------------------------------------
def test_what_is_asked_of_the_data_reaches_the_core_and_is_off_else() -> None:
    asked = job(elasticData=True, keepGlobalBatch=True)
    assert validate(asked) == []
    assert (spec_of(asked).elastic_data, spec_of(asked).keep_global_batch) == (True, True)
    assert (spec_of(job()).elastic_data, spec_of(job()).keep_global_batch) == (False, False)


def test_a_wish_about_the_data_that_cannot_be_meant_is_named() -> None:
    assert validate(job(elasticData="yes")) == ["spec.elasticData: yes must be true or false"]
    assert validate(job(keepGlobalBatch=4)) == ["spec.keepGlobalBatch: 4 must be true or false"]


# -- a signal that asks the script to save --------------------------------------------------------------------------
def test_a_signal_that_asks_the_script_to_save_reaches_the_core_and_another_is_refused() -> None:
    assert validate(job(saveSignal="SIGUSR2")) == []
    assert spec_of(job(saveSignal="SIGUSR2")).save_signal == "SIGUSR2"
    assert spec_of(job(saveSignal="SIGKILL")).save_signal == spec_of(job()).save_signal == ""
    (wrong,) = validate(job(saveSignal="SIGKILL"))
    assert wrong.startswith("spec.saveSignal: SIGKILL cannot ask a script to save: no process can handle it; it may be")


# -- other owners -------------------------------------------------------------------------------------------------
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


# -- amounts and durations ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "amount"),
    [("0", 0), ("1Ki", 1024), ("1.5Gi", 3 << 29), ("500M", 500_000_000), (".5k", 500), ("1e3", 1000), ("1E3", 1000),
     ("2E", 2 * 10**18), ("1Ei", 1 << 60), ("1500m", 2), (128974848, 128974848), (1.5, 2), ("-1Mi", -(1 << 20)),
     ("+1", 1), ("1 Gi", None), ("Gi", None), ("", None), ("1gi", None), (None, None), (True, None), ([], None),
     ("1e999999999", None), ("0x10", None), ("١", None)],
)  # fmt: skip
def test_amounts_of_memory(text: object, amount: int | None) -> None:
    assert quantities.parsed(text) == amount


@given(st.integers(min_value=0, max_value=1 << 60))
def test_an_amount_that_is_written_reads_the_same(amount: int) -> None:
    assert quantities.parsed(quantities.written(amount)) == amount


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(0, 0.0), (3, 3.0), (2.5, 2.5), ("90", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("500ms", 0.5), ("1.5s", 1.5),
     ("1m30s", 90.0), (-1, None), ("-1s", None), ("", None), ("soon", None), ("10m30", None), ("1d", None),
     (True, None), (None, None), (float("inf"), None), (float("nan"), None), ([], None)],
)  # fmt: skip
def test_durations(text: object, seconds: float | None) -> None:
    assert durations.parsed(text) == seconds


def test_a_template_is_the_same_until_it_is_edited_and_whatever_else_is() -> None:
    before, scaled = job({"worker": worker(replicas=4)}), job({"Worker": worker(replicas=2)}, maxRestarts=1)
    assert pod_templates(before) == pod_templates(scaled)
    mended = job({"worker": {"replicas": 4, "template": template(restartPolicy="OnFailure")}})
    assert pod_templates(before) != pod_templates(mended)
