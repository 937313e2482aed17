"""The meaning of an ElasticJob: its JobSpec."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from outrider.master.core.k8s.elasticjob.cross_field import validate
from outrider.master.core.k8s.elasticjob.spec import spec_of, with_defaults
from outrider.master.core.k8s.values.identity import key_of
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.replica_specs import pod_templates
from outrider.master.core.spec import JobSpec, Rule
from outrider.wire.ids import JobName
from tests.unit.master.core.k8s.documents import job, template, with_memory, worker


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


@pytest.mark.parametrize(
    ("policy", "edited", "replicas"),
    [("throughput", {"maxReplicas": 4}, 4), ("throughput", {"minReplicas": 7}, 7),
     ("throughput", {"maxReplicas": 5}, 4), ("throughput", {"maxReplicas": 2**31 - 1}, 6),
     ("throughput", {"replicas": 8, "maxReplicas": 4}, 8), ("manual", {"maxReplicas": 4}, 6)],
)  # fmt: skip
def test_a_size_that_the_job_has_found_gives_way_to_new_limits_and_no_users_size_does(
    policy: str, edited: dict[str, int], replicas: int
) -> None:
    sizes = {"replicas": 6, "minReplicas": 2, "maxReplicas": 8}
    unit = 2 if edited == {"maxReplicas": 5} else 1
    old = job({"worker": worker(**sizes)}, scaling={"policy": policy}, nodeUnit=unit)
    new = job({"worker": worker(**sizes | edited)}, scaling={"policy": policy}, nodeUnit=unit)
    assert with_defaults(new, old)["spec"]["replicaSpecs"]["worker"]["replicas"] == replicas


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


def test_the_node_check_is_off_by_default() -> None:
    assert not spec_of(job()).node_check
    assert not spec_of(checking(enabled=False, excludeStragglers=False)).node_check


def test_the_node_check_reaches_the_core() -> None:
    made = checking(enabled=True, excludeStragglers=True)
    assert validate(made) == []
    assert (spec_of(made).node_check, spec_of(made).exclude_stragglers) == (True, True)
    assert not spec_of(checking(enabled=True)).exclude_stragglers


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


# -- a signal that asks the script to save --------------------------------------------------------------------------
def test_a_signal_that_asks_the_script_to_save_reaches_the_core_and_another_is_refused() -> None:
    assert validate(job(saveSignal="SIGUSR2")) == []
    assert spec_of(job(saveSignal="SIGUSR2")).save_signal == "SIGUSR2"
    assert spec_of(job(saveSignal="SIGKILL")).save_signal == spec_of(job()).save_signal == ""
    (wrong,) = validate(job(saveSignal="SIGKILL"))
    assert wrong.startswith('spec.saveSignal: Unsupported value: "SIGKILL": supported values: "SIGUSR1", "SIGUSR2",')


def test_a_template_is_the_same_until_it_is_edited_and_whatever_else_is() -> None:
    before, scaled = job({"worker": worker(replicas=4)}), job({"Worker": worker(replicas=2)}, maxRestarts=1)
    assert pod_templates(before) == pod_templates(scaled)
    mended = job({"worker": {"replicas": 4, "template": template(restartPolicy="OnFailure")}})
    assert pod_templates(before) != pod_templates(mended)
