"""`migrationDir`: the directory reaches the trainer, and one that would go with the pod is refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.master.core.k8s.pods import migration_dir

CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def trainer(*mounts: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"name": "t", "volumeMounts": [{"name": name, "mountPath": path, **more} for name, path in mounts]}


def test_a_directory_on_a_claim_will_do() -> None:
    spec = {"volumes": [CLAIM]}
    assert migration_dir.objection("/data/moves", spec, trainer(("data", "/data"))) == ""
    assert migration_dir.objection("/data", spec, trainer(("data", "/data"))) == ""


@pytest.mark.parametrize(
    ("directory", "volumes", "container", "word"),
    [
        ("moves", [CLAIM], trainer(("data", "/data")), "must be an absolute path"),
        (
            "/database",
            [CLAIM],
            trainer(("data", "/data")),
            "must be on a persistent volume that is mounted into the trainer; it is on no volume",
        ),
        (
            "/data/x",
            [{"name": "data", "emptyDir": {}}],
            trainer(("data", "/data")),
            "must be on a persistent volume that is mounted into the trainer; volume data (emptyDir)",
        ),
        ("/data/x", [{"name": "data", "configMap": {}}], trainer(("data", "/data")), "configMap"),
        ("/data/x", [CLAIM], trainer(("data", "/data"), readOnly=True), "mounted read-only"),
        (
            "/data/x",
            [],
            {"name": "t"},
            "must be on a persistent volume that is mounted into the trainer; it is on no volume",
        ),
        (
            "/data/tmp/x",
            [CLAIM, {"name": "s", "emptyDir": {}}],
            trainer(("data", "/data"), ("s", "/data/tmp")),
            "emptyD",
        ),
    ],
)
def test_one_that_would_go_with_the_pod_will_not(
    directory: str, volumes: list[dict[str, Any]], container: dict[str, Any], word: str
) -> None:
    assert word in migration_dir.objection(directory, {"volumes": volumes}, container)
