"""Names that pods, manifests and master must agree on (docs/contracts.md §8)."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
"""A JSON object of the Kubernetes API."""

DOMAIN = "outrider.dev"
GROUP_VERSION = f"{DOMAIN}/v1alpha1"
KIND = "ElasticJob"
PLURAL = "elasticjobs"

JOB, ROLE, MEMBER, ID, RANK_INDEX, RELAUNCHES, INJECT, LEADER, SERVES = (
    f"{DOMAIN}/{word}"
    for word in ("job", "role", "member", "id", "rank-index", "relaunches", "inject", "leader", "serves")
)
INJECTED = f"{DOMAIN}/injected"
PART = f"{DOMAIN}/part"
"""Label of Outrider's own pods: `master` or `webhook`."""
ALONE_AFTER = f"{DOMAIN}/alone-after"
"""Annotation: seconds after which the pod's command starts without a master (docs/adr/0028)."""
MODE = f"{DOMAIN}/supervision-mode"
RESOURCES = f"{DOMAIN}/resources"
"""Annotation: the resources that the pod of a parameter server was created with, as text."""
MIN, MAX, NPROC, SPARES, NODE_CHECK, SCRIPT, PYTHONPATH, PER_RANK, MAX_RESTARTS, CONTAINER, CHAOS, \
    ELASTIC_DATA, KEEP_GLOBAL_BATCH, MIGRATION_DIR, CHECKPOINT_MEMORY, CHECKPOINT_PATH, SAVE_SIGNAL, PS_RESOURCES, \
    ATOMIC_SAVE, REQUIRE_RESUME = (
    f"{DOMAIN}/{word}"
    for word in (
        "min", "max", "nproc-per-node", "spares", "node-check", "script", "pythonpath", "per-rank", "max-restarts",
        "container", "chaos", "elastic-data", "keep-global-batch",
        "migration-dir", "checkpoint-memory", "checkpoint-path", "save-signal", "ps-resources", "atomic-save",
        "require-resume",
    )
)  # fmt: skip
"""Annotations that a user may set on a pod or on an ElasticJob."""

SHARES = f"{DOMAIN}/shares-processes"
"""Annotation: names of the containers, separated by commas, whose processes the user permits the trainer to see."""
SIDECAR_USER = 64087
"""User id of the sidecar, which no known image uses (many use 65532): a trainer with the same user id can read the
sidecar's token."""
CONTROL_PLANE = ("kube-system", "kube-public", "kube-node-lease")
"""Namespaces in which Outrider never does anything."""
HOOKS_CONTAINER = "outrider-hooks"
SIDECAR_CONTAINER = "outrider-sidecar"
PROXIES = ("istio-proxy", "linkerd-proxy")
"""Containers that a service mesh adds to pods, sometimes as the first: they are never the trainer."""
VOLUME = "outrider"
TOKEN_VOLUME = "outrider-token"
MOUNT = "/outrider"
TOKEN_MOUNT = "/var/run/secrets/outrider"
AUDIENCE = "outrider"
USERS_PYTHONPATH = "OUTRIDER_USERS_PYTHONPATH"
"""Variable that holds the user's PYTHONPATH if it is known only when the container starts; PYTHONPATH refers to it."""
RESERVED = ("OUTRIDER_DIR", "OUTRIDER_HOOKS", "OUTRIDER_POD_UID", "OUTRIDER_JOB", USERS_PYTHONPATH)
"""Variables of the trainer's container that only Outrider may set."""
MASTER_KEY = "OUTRIDER_MASTER_KEY"
"""Variable of the sidecar with its master's CURVE public key."""
