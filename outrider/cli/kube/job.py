"""Reads the scaling status of an ElasticJob with the user's own rights, as `kubectl get` would.

It counts only workers: other members that train, as a master or a chief, are left out.
"""

from __future__ import annotations

from typing import Any

from outrider.cli.errors import UserError
from outrider.cli.kube.api import call_api, cluster
from outrider.master.core.k8s.elasticjob import scaling as elasticjob_scaling
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import GROUP_VERSION, PLURAL


def scaling_of(name: str, namespace: str | None) -> dict[str, Any]:
    """The scaling part of a status document, as for a local job, and what it counts. Raises UserError."""
    pods, default = cluster()
    from kubernetes.client import CustomObjectsApi

    group, version = GROUP_VERSION.split("/")
    read = CustomObjectsApi(pods.api_client).get_namespaced_custom_object
    job = call_api(read, "get", name, namespace or default, "ElasticJob", group=group, version=version, plural=PLURAL)
    found = elasticjob_scaling.reported(mapping(mapping(job.get("status")).get("elasticScaling")))
    if found is None:
        raise UserError(f"ElasticJob {name} has no automatic scaling: set spec.scaling.policy")
    return {"counted": "workers", **found}
