"""What a shared process namespace opens is said for each container beside the trainer, until its user says: meant."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.master.core.k8s.injection.webhook import inject
from outrider.master.core.k8s.values.names import SHARES, SIDECAR_USER, Document
from outrider.master.kubernetes.webhook.http import WARNING_LENGTH
from tests.unit.master.core.k8s.injection.injecting import PLACE, POLICY

TRAINER = {"name": "trainer", "image": "mine", "command": ["python", "train.py"]}


def warned(*beside: Document, notes: dict[str, str] | None = None, **spec: Any) -> tuple[str, ...]:
    pod = {"metadata": {"annotations": notes or {}}, "spec": {"containers": [TRAINER, *beside], **spec}}
    found = inject(pod, PLACE, POLICY)
    assert found.changed
    assert all(len(f"outrider: {warning}") <= WARNING_LENGTH for warning in found.warnings)
    return found.warnings


def container(name: str, image: str = "theirs") -> Document:
    return {"name": name, "image": image, "command": ["run"]}


def test_a_pod_with_the_trainer_alone_is_not_warned_of() -> None:
    assert warned(initContainers=[container("prepare")]) == ()


def test_each_container_beside_it_is_named() -> None:
    first, second = warned(container("logs"), container("metrics"))
    assert "environment and files of logs" in first
    assert "of metrics" in second
    assert "DANGER" not in first + second


@pytest.mark.parametrize(
    "beside",
    [
        container("istio-proxy"), container("linkerd-proxy"), container("vault-agent"), container("cloud-sql-proxy"),
        container("db", "gcr.io/cloudsql-docker/gce-proxy"), container("oauth2-proxy"),
    ],
    ids=lambda beside: beside["name"],
)  # fmt: skip
def test_a_container_with_keys_has_a_stronger_warning(beside: Document) -> None:
    (warning,) = warned(beside)
    assert warning.startswith("DANGER")
    assert f"keys and tokens of {beside['name']}" in warning


def test_a_native_sidecar_is_beside_it_too() -> None:
    (warning,) = warned(initContainers=[{**container("istio-proxy"), "restartPolicy": "Always"}])
    assert "istio-proxy" in warning


def test_what_its_user_means_is_not_said() -> None:
    beside = (container("logs"), container("istio-proxy"))
    (warning,) = warned(*beside, notes={SHARES: "logs"})
    assert "istio-proxy" in warning
    assert warned(*beside, notes={SHARES: "logs, istio-proxy"}) == ()
    assert warned(*beside, shareProcessNamespace=True) == ()


def test_a_long_name_does_not_make_a_warning_too_long() -> None:
    (warning,) = warned(container("istio-proxy-" + 51 * "x", "vault"))
    assert warning.endswith(SHARES)


def test_a_trainer_with_the_sidecars_user_is_warned_of() -> None:
    (warning,) = warned(securityContext={"runAsUser": SIDECAR_USER})
    assert "token" in warning
    assert warned(securityContext={"runAsUser": 65532}) == (), "the user of many images is not the sidecar's"


def test_ours_run_as_a_user_of_their_own() -> None:
    pod = inject({"metadata": {}, "spec": {"containers": [TRAINER]}}, PLACE, POLICY).pod
    ours = [each for each in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]) if "outrider" in each["name"]]
    assert [each["securityContext"]["runAsUser"] for each in ours] == [SIDECAR_USER] * 2
