"""What `outrider chaos --pod` says without a cluster."""

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
def test_a_job_and_a_pod_are_not_both_named(home: Path, outrider: Any, words: list[str]) -> None:
    both = outrider("chaos", *words, *([] if words == ["thaw-member"] else ["digits"]), "--pod", "digits-worker-1",
                    *(["--member", "worker-1"] if words == ["thaw-member"] else []))  # fmt: skip
    assert both.exit_code == 2
    assert "--pod digits-worker-1 is a pod of a cluster" in flat(both.stderr)
    alone = outrider("chaos", *words, "-n", "research")
    assert alone.exit_code == 2
    assert "--namespace is for --pod NAME" in flat(alone.stderr)


def test_without_a_kubeconfig_no_cluster_is_known(outrider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    done = outrider("chaos", "hang", "--pod", "digits-worker-1")
    assert done.exit_code == 2
    assert "no cluster is known: " in flat(done.stderr)


def test_a_pod_without_a_name_is_none(outrider: Any) -> None:
    assert "--pod wants the name of a pod" in flat(outrider("chaos", "hang", "--pod", "").stderr)


@pytest.mark.parametrize("write", [str, lambda status: repr(status.encode())], ids=["text", "bytes"])
def test_an_exec_that_is_refused_is_said_in_the_api_servers_own_words(write: Callable[[str], str]) -> None:
    why = "container outrider-sidecar is not valid for pod lone"
    status = json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "message": why, "code": 400})

    def refuse(**_options: Any) -> None:
        around = "Handshake status 400 Bad Request -+-+- {'content-length': '167'} -+-+- "
        raise ApiException(status=0, reason=f"{around}{write(status)}\n")

    with pytest.raises(UserError) as said:
        call_api(refuse, "execute commands in", "lone", "research")
    assert str(said.value) == (
        f"the API server did not execute commands in the pod 'lone' in the namespace research: {why}"
    )


def test_a_list_that_is_refused_is_of_pods_and_names_none() -> None:
    def refuse(**options: Any) -> None:
        assert "name" not in options
        raise ApiException(status=403, reason="Forbidden")

    with pytest.raises(UserError, match=r"^your credentials may not list pods in the namespace research"):
        call_api(refuse, "list", "", "research", label_selector="outrider.dev/job=digits")


def test_a_frozen_member_must_be_named(outrider: Any) -> None:
    assert "--member ID of a local job, or --pod NAME" in flat(outrider("chaos", "thaw-member").stderr)


def pod(state: str = "running", **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "digits-worker-1", "namespace": "research", "annotations": annotations},
        "spec": {"containers": [{"name": "trainer"}, {"name": "outrider-sidecar"}]},
        "status": {"phase": "Pending", "containerStatuses": [{"name": "trainer", "state": {state: {}}}]},
    }


def test_only_a_supervised_pod_that_says_so_and_runs_is_broken() -> None:
    ours = {INJECTED: "1"}
    assert refused(pod()) == "is not supervised by Outrider: it has no annotation outrider.dev/injected"
    for notes in (ours, ours | {CHAOS: "yes"}):
        said = refused(pod(**notes))
        assert said.startswith(
            "does not say that it may be broken: only a pod with the annotation outrider.dev/chaos: "
        )
        assert said.endswith("kubectl annotate pod digits-worker-1 -n research --overwrite outrider.dev/chaos=allowed")
    allowed = ours | {CHAOS: "allowed"}
    assert refused(pod("waiting", **allowed)) == "is Pending: its container trainer does not run"
    assert refused(pod(**allowed)) == ""
    going = pod(**allowed)
    going["metadata"]["deletionTimestamp"] = "2026-11-22T09:00:00Z"
    assert refused(going) == "is being deleted"
