"""Errors of `outrider chaos --pod`, without a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiException

from outrider.cli.chaos.pod import refused
from outrider.cli.errors import UserError
from outrider.cli.kube.api import call_api
from outrider.master.core.k8s.values.names import CHAOS, INJECTED

BEGINNINGS = (
    ["kill-process"],
    ["kill-launcher"],
    ["kill-sidecar"],
    ["kill-member"],
    ["cpu-load", "90"],
    ["fill-memory", "90"],
    ["bad-node"],
    ["slow-network", "100"],
    ["cut-network"],
    ["hang"],
    ["freeze-member"],
    ["thaw-member"],
    ["undo"],
    ["list"],
)


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("words", BEGINNINGS, ids=lambda words: words[0])
def test_a_job_and_a_pod_must_not_be_used_together(home: Path, outrider: Any, words: list[str]) -> None:
    both = outrider("chaos", *words, *([] if words == ["thaw-member"] else ["digits"]), "--pod", "digits-worker-1",
                    *(["--member", "worker-1"] if words == ["thaw-member"] else []))  # fmt: skip
    assert both.exit_code == 2
    assert "must not be used together; a pod belongs to a cluster" in flat(both.stderr)
    alone = outrider("chaos", *words, "-n", "research")
    assert alone.exit_code == 2
    assert "--namespace research: must be used with --pod NAME" in flat(alone.stderr)


def test_without_a_kubeconfig_no_cluster_is_found(outrider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    done = outrider("chaos", "hang", "--pod", "digits-worker-1")
    assert done.exit_code == 2
    assert "no cluster found: " in flat(done.stderr)


def test_the_name_of_a_pod_must_not_be_empty(outrider: Any) -> None:
    assert "--pod: must have the name of a pod" in flat(outrider("chaos", "hang", "--pod", "").stderr)


@pytest.mark.parametrize("write", [str, lambda status: repr(status.encode())], ids=["text", "bytes"])
def test_the_error_for_a_refused_exec_has_the_api_servers_message(write: Callable[[str], str]) -> None:
    why = "container outrider-sidecar is not valid for pod lone"
    status = json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "message": why, "code": 400})

    def refuse(**_options: Any) -> None:
        around = "Handshake status 400 Bad Request -+-+- {'content-length': '167'} -+-+- "
        raise ApiException(status=0, reason=f"{around}{write(status)}\n")

    with pytest.raises(UserError) as error:
        call_api(refuse, "execute commands in", "lone", "research")
    assert str(error.value) == (
        f"the API server did not execute commands in the pod 'lone' in the namespace research: {why}"
    )


def test_the_error_for_a_refused_list_names_no_pod() -> None:
    def refuse(**options: Any) -> None:
        assert "name" not in options
        raise ApiException(status=403, reason="Forbidden")

    with pytest.raises(UserError, match=r"^your credentials may not list pods in the namespace research"):
        call_api(refuse, "list", "", "research", label_selector="outrider.dev/job=digits")


def test_a_frozen_member_must_be_named(outrider: Any) -> None:
    assert "--member ID (of a local job) or --pod NAME" in flat(outrider("chaos", "thaw-member").stderr)


def pod(state: str = "running", **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "digits-worker-1", "namespace": "research", "annotations": annotations},
        "spec": {"containers": [{"name": "trainer"}, {"name": "outrider-sidecar"}]},
        "status": {"phase": "Pending", "containerStatuses": [{"name": "trainer", "state": {state: {}}}]},
    }


def test_only_a_running_supervised_pod_with_the_annotation_gets_faults() -> None:
    ours = {INJECTED: "1"}
    assert refused(pod()) == "is not supervised by Outrider: it has no annotation outrider.dev/injected"
    for notes in (ours, ours | {CHAOS: "yes"}):
        why = refused(pod(**notes))
        assert why.startswith("does not allow faults: it must have the annotation outrider.dev/chaos: allowed")
        assert why.endswith("kubectl annotate pod digits-worker-1 -n research --overwrite outrider.dev/chaos=allowed")
    allowed = ours | {CHAOS: "allowed"}
    assert refused(pod("waiting", **allowed)) == "is Pending: its container trainer is not running"
    assert refused(pod(**allowed)) == ""
    going = pod(**allowed)
    going["metadata"]["deletionTimestamp"] = "2026-11-22T09:00:00Z"
    assert refused(going) == "is being deleted"
