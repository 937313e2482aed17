"""What an ElasticJob's status says of its scaling, read by the user's own rights, as `kubectl get` would. It counts
workers alone: what else trains, as a master or a chief, is left out."""

from __future__ import annotations

from typing import Any

from outrider.cli.errors import UserError
from outrider.cli.kube.api import asked, cluster
from outrider.master.core.k8s.elasticjob import scaling as elasticjob_scaling
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import GROUP_VERSION, PLURAL


def scaling_of(name: str, namespace: str | None) -> dict[str, Any]:
    """As the status document of a local job has it, and whom it counts. Raises UserError."""
    pods, default = cluster()
    from kubernetes.client import CustomObjectsApi

    group, version = GROUP_VERSION.split("/")
    read = CustomObjectsApi(pods.api_client).get_namespaced_custom_object
    job = asked(read, "get", name, namespace or default, "ElasticJob", group=group, version=version, plural=PLURAL)
    found = elasticjob_scaling.told(mapping(mapping(job.get("status")).get("elasticScaling")))
    if found is None:
        raise UserError(f"{name} has the size that its user gives it: its spec.scaling has no policy that finds one")
    return {"counted": "workers", **found}
